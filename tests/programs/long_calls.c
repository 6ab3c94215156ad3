// SPDX-License-Identifier: MIT OR Apache-2.0
//
// For two seconds or more, a thread is nearly always in a long call that reschedules, and never
// sleeps. The kernel's stop_machine must succeed nevertheless.

#include "common.h"

static const size_t SIZE = 64UL << 20;

// Newer than the headers.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

int main(void)
{
    struct timespec start, now;

    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        char *memory = mmap(NULL, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        EXPECT(memory != MAP_FAILED, "mmap");
        CHECK(madvise(memory, SIZE, MADV_POPULATE_READ) == 0);
        CHECK(munmap(memory, SIZE) == 0);
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while (now.tv_sec - start.tv_sec < 3);
    return 0;
}
