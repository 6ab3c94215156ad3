// SPDX-License-Identifier: MIT OR Apache-2.0
//
// mmap1: maps and unmaps of memory per second.
//
// Like the test case of that name in will-it-scale: an operation is
// one mmap of anonymous memory and its munmap; nothing is touched.

#define _GNU_SOURCE
#include "operation.h"

#include <sys/mman.h>

static size_t bytes = 128u << 20;

static void option(int letter, const char *value)
{
    bytes = number_option(letter, value, true, 1, (size_t)1 << 46);
}

static void repeat(void *prepared, uint64_t times)
{
    (void)prepared;
    while (times-- > 0) {
        void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (p == MAP_FAILED)
            die(common.program, "cannot map %zu bytes: %s", bytes, strerror(errno));
        if (munmap(p, bytes) != 0)
            die(common.program, "munmap: %s", strerror(errno));
    }
}

int main(int argc, char **argv)
{
    static const Testcase testcase = {
        .title = "Anonymous memory mmap/munmap",
        .letters = "b:",
        .usage = "\t-b bytes\tSize of the mapping; K, M, G allowed (128M)\n",
        .option = option,
        .repeat = repeat,
    };

    return measure(&testcase, argc, argv);
}
