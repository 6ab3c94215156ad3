// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Shared by the programs that make processes.

#ifndef TESTS_CHILDREN_H
#define TESTS_CHILDREN_H

#include "common.h"

#include <sys/wait.h>

// Waits for the end of a child, however it was made.
static inline int status_of(pid_t child)
{
    int status = -1;

    CHECK(waitpid(child, &status, __WALL) == child);
    return status;
}

// For threads and children that are ended from outside.
static inline void *sleep_for_ever(void *argument)
{
    (void)argument;
    for (;;)
        pause();
    return NULL;
}

static inline void *spin_for_ever(void *argument)
{
    (void)argument;
    for (;;)
        sched_yield();
    return NULL;
}

#endif
