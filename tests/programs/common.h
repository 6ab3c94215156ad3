// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Shared by the test programs. They end with 0 if all is well, and with
// another status and a line on stderr if not.

#ifndef TESTS_COMMON_H
#define TESTS_COMMON_H

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// Ends the program with a line on stderr unless the condition holds.
#define EXPECT(condition, ...)                                                 \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                    \
            fprintf(stderr, __VA_ARGS__);                                      \
            fprintf(stderr, " (errno %d)\n", errno);                           \
            _exit(100);                                                        \
        }                                                                      \
    } while (0)

// The same, with the condition as the line.
#define CHECK(condition) EXPECT(condition, "%s", #condition)

static inline pthread_t start(void *(*run)(void *), void *argument)
{
    pthread_t thread;
    int error = pthread_create(&thread, NULL, run, argument);

    EXPECT(error == 0, "pthread_create: %d", error);
    return thread;
}

static inline void sleep_ms(long ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};

    nanosleep(&time, NULL);
}

// Sleeps until a condition holds. The limit is for a broken kernel:
// far longer than a busy host may delay a guest.
#define WAIT_FOR(condition, ...)                                               \
    do {                                                                       \
        for (int tries = 0; !(condition); tries++) {                           \
            EXPECT(tries < 4000, __VA_ARGS__);                                 \
            sleep_ms(5);                                                       \
        }                                                                      \
    } while (0)

// Restricts a thread (0: the caller) to the CPUs of a mask.
static inline void restrict_to(pid_t thread, unsigned long mask)
{
    long result = syscall(SYS_sched_setaffinity, thread, sizeof mask, &mask);

    EXPECT(result == 0, "sched_setaffinity");
}

// Makes the caller's end slow, so that other things do happen during it:
// the kernel walks a thread's list of robust locks, and each of these
// is in an untouched page.
static inline void make_my_end_slow(void)
{
    enum { LOCKS = 2048, PAGE = 4096 };
    static _Atomic(char *) all;
    struct {
        char *first;
        long to_word;
        char *pending;
    } *head = calloc(1, sizeof *head);
    char *locks = atomic_load(&all);
    char *words = mmap(NULL, LOCKS * PAGE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    EXPECT(head != NULL && words != MAP_FAILED, "no memory");
    if (locks == NULL) {
        // Two concurrent callers make one lock too many.
        locks = mmap(NULL, (LOCKS + 1) * PAGE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        EXPECT(locks != MAP_FAILED, "no memory");
        for (long i = 0; i < LOCKS; i++)
            *(char **)(locks + i * PAGE) = locks + (i + 1) * PAGE;
        atomic_store(&all, locks);
    }
    head->first = locks;
    head->to_word = words - locks;
    EXPECT(syscall(SYS_set_robust_list, head, sizeof *head) == 0, "robust list");
}

static inline int current_cpu(void)
{
    unsigned cpu = ~0u;

    syscall(SYS_getcpu, &cpu, NULL, NULL);
    return (int)cpu;
}

#endif
