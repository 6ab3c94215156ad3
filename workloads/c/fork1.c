// SPDX-License-Identifier: MIT OR Apache-2.0
//
// fork1: how many processes a second can be forked and ended?
//
// An operation is one fork, the child's exit and the parent's wait. With -b the
// parent has so much memory, all of it written to, that the child inherits; with
// -w the child writes to so many pages of it, which copies them.

#define _GNU_SOURCE
#include "process.h"

static size_t pages; // -w

static void option(int letter, const char *value)
{
    if (letter == 'b')
        parent_bytes = number_option(letter, value, true, 0, (size_t)1 << 46);
    else
        pages = number_option(letter, value, false, 0, (size_t)1 << 34);
}

static void begin(void)
{
    make_large();
    if (pages > parent_bytes / page_size())
        die(common.program, "-w %zu: the parent has %zu pages (-b)", pages,
            parent_bytes / page_size());
}

static void repeat(void *prepared, uint64_t times)
{
    (void)prepared;
    while (times-- > 0) {
        pid_t child = fork();

        if (child == 0) {
            for (size_t i = 0; i < pages; i++)
                ((volatile char *)parent_memory)[i * page_size()] = 2;
            _exit(0);
        }
        wait_for_child(child);
    }
}

int main(int argc, char **argv)
{
    static const Testcase testcase = {
        .title = "fork, exit and wait",
        .letters = "b:w:",
        .usage = "\t-b bytes\tMemory of the parent, all written to; K, M, G allowed (0)\n"
                 "\t-w pages\tPages of it that the child writes to (0)\n",
        .option = option,
        .begin = begin,
        .repeat = repeat,
    };

    return measure(&testcase, argc, argv);
}
