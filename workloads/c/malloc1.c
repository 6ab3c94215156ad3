// SPDX-License-Identifier: MIT OR Apache-2.0
//
// malloc1: allocations and frees per second.
//
// Like the test case of that name in will-it-scale: an operation is
// one malloc and its free; nothing is touched. musl's malloc maps memory of
// this size with mmap and frees it with munmap. Blocks below 128 KiB come from
// its heap, which consists of brk and mmap memory, and cost the kernel little.

#define _GNU_SOURCE
#include "operation.h"

static size_t bytes = 128u << 20;

static void option(int letter, const char *value)
{
    bytes = number_option(letter, value, true, 1, (size_t)1 << 46);
}

static void repeat(void *prepared, uint64_t times)
{
    (void)prepared;
    while (times-- > 0) {
        // Keeps the compiler from removing it.
        void *volatile p = malloc(bytes);

        if (p == NULL)
            die(common.program, "cannot allocate %zu bytes: %s", bytes, strerror(errno));
        free(p);
    }
}

int main(int argc, char **argv)
{
    static const Testcase testcase = {
        .title = "malloc/free of large blocks",
        .letters = "b:",
        .usage = "\t-b bytes\tSize of the block; K, M, G allowed (128M)\n",
        .option = option,
        .repeat = repeat,
    };

    return measure(&testcase, argc, argv);
}
