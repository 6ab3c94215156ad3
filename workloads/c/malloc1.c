// SPDX-License-Identifier: MIT OR Apache-2.0
//
// malloc1: how many times a second can memory be allocated and freed?
//
// In the manner of the test case of that name in will-it-scale: an operation is
// one malloc and its free; nothing is touched. musl's malloc takes memory of
// this size by mmap and gives it back by munmap; blocks below 128 KiB come out
// of its heap, which is made of brk and mmap, and cost the kernel little.

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
        // The compiler may not leave it out.
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
