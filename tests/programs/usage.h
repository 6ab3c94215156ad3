// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What a program sees of its own memory: fields of /proc/self/smaps, its faults, and where it begins.

#ifndef USAGE_H
#define USAGE_H

#include "common.h"

#include <sys/mman.h>
#include <sys/resource.h>

enum { HUGE_BYTES = 2 << 20 };

// The value of a field in the record of the mapping at an address, in /proc/self/smaps.
static inline long field_of(const volatile void *at, const char *field)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[256];
    int is_its = 0;
    long value = -1;

    while (value < 0 && fgets(line, sizeof line, file) != NULL) {
        unsigned long start, end;

        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            is_its = start <= (uintptr_t)at && (uintptr_t)at < end;
        else if (is_its && strncmp(line, field, strlen(field)) == 0)
            value = atol(line + strlen(field) + 1);
    }
    fclose(file);
    return value;
}

static inline long faults(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt + usage.ru_majflt;
}

// Memory that begins at a huge page, with nothing of this mapping beside it.
static inline volatile char *map_aligned(size_t bytes)
{
    char *at = mmap(NULL, bytes + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uintptr_t aligned = ((uintptr_t)at + HUGE_BYTES - 1) & ~(uintptr_t)(HUGE_BYTES - 1);

    munmap(at, aligned - (uintptr_t)at);
    munmap((char *)aligned + bytes, (uintptr_t)at + HUGE_BYTES - aligned);
    return (char *)aligned;
}

#endif
