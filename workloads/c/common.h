// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Shared by the workload programs: parsing numbers, reading the clock,
// exiting with one line. Header only, so that each program is one file to
// compile.

#ifndef WORKLOADS_COMMON_H
#define WORKLOADS_COMMON_H

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// The distance between data of different threads: two lines, because some
// processors fetch lines in pairs.
#define LINE_PAIR 128

#define NANOS_PER_SECOND 1000000000ull

// More threads than this are a typing mistake.
#define MAX_THREADS 4096

// Prints one line with the program's name to stderr, and exits with 1.
__attribute__((noreturn, format(printf, 2, 3))) static inline void
die(const char *program, const char *format, ...)
{
    va_list args;

    fflush(stdout);
    fprintf(stderr, "%s: ", program);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

// Nanoseconds on a clock that never steps back.
static inline uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * NANOS_PER_SECOND + (uint64_t)now.tv_nsec;
}

static inline size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static inline size_t round_up(size_t n, size_t unit)
{
    return (n + unit - 1) / unit * unit;
}

// Parses a number in C notation (so 0x10 is 16) between `low` and `high`, with
// one of the suffixes K, M, G allowed if `suffix`. Returns false, and stores nothing,
// if `text` is anything else.
static inline bool parse_number(const char *text, bool suffix, uint64_t low,
                                uint64_t high, uint64_t *number)
{
    char *end;
    unsigned shift = 0;
    unsigned long long n;

    // strtoull would skip spaces, and wrap a negative number around.
    if (text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    n = strtoull(text, &end, 0);
    if (errno != 0)
        return false;
    if (suffix && *end != '\0') {
        switch (*end++) {
        case 'k': case 'K': shift = 10; break;
        case 'm': case 'M': shift = 20; break;
        case 'g': case 'G': shift = 30; break;
        default: return false;
        }
    }
    if (*end != '\0' || n > (UINT64_MAX >> shift))
        return false;
    n <<= shift;
    if (n < low || n > high)
        return false;
    *number = n;
    return true;
}

#endif
