// SPDX-License-Identifier: MIT OR Apache-2.0
//
// mmap2: maps and unmaps of a file per second.
//
// Like the test case of that name in will-it-scale: an operation is
// one mmap of the task's file and its munmap; nothing is touched. The mapping is
// shared, as there; private with -p.

#define _GNU_SOURCE
#include "file.h"

static size_t bytes = 128u << 20;
static int flags = MAP_SHARED;

static void option(int letter, const char *value)
{
    if (letter == 'p')
        flags = MAP_PRIVATE;
    else
        bytes = number_option(letter, value, true, 1, (size_t)1 << 40);
}

static void *prepare(size_t task)
{
    (void)task;
    return (void *)(intptr_t)make_file(bytes);
}

static void repeat(void *prepared, uint64_t times)
{
    int file = (int)(intptr_t)prepared;

    while (times-- > 0)
        unmap_file(map_file(file, bytes, flags), bytes);
}

int main(int argc, char **argv)
{
    static const Testcase testcase = {
        .title = "Separate file mmap/munmap",
        .letters = "b:p",
        .usage = "\t-b bytes\tSize of each task's file; K, M, G allowed (128M)\n"
                 "\t-p\t\tPrivate mappings, not shared ones\n",
        .option = option,
        .prepare = prepare,
        .repeat = repeat,
    };

    return measure(&testcase, argc, argv);
}
