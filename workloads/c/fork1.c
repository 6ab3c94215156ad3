// SPDX-License-Identifier: MIT OR Apache-2.0
//
// fork1: processes forked and ended per second.
//
// An operation is one fork, the child's exit and the parent's wait. With -b the
// parent has this much memory, all of it written to, which the child inherits; with
// -w the child writes to this many pages of it, which copies them. With -n the
// parent has this many more mappings, each of one page that was written to.

#define _GNU_SOURCE
#include "process.h"

static size_t pages;    // -w
static size_t mappings; // -n

static void option(int letter, const char *value)
{
    if (letter == 'b')
        parent_bytes = number_option(letter, value, true, 0, (size_t)1 << 46);
    else if (letter == 'n')
        mappings = number_option(letter, value, false, 0, 1 << 16);
    else
        pages = number_option(letter, value, false, 0, (size_t)1 << 34);
}

// Holes between the mappings keep them from merging.
static void make_mappings(void)
{
    size_t page = page_size();
    char *at;

    if (mappings == 0)
        return;
    at = mmap(NULL, 2 * mappings * page, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        die(common.program, "cannot map %zu pages: %s", 2 * mappings, strerror(errno));
    for (size_t i = 0; i < mappings; i++, at += 2 * page) {
        *(volatile char *)at = 1;
        if (munmap(at + page, page) != 0)
            die(common.program, "munmap: %s", strerror(errno));
    }
}

static void begin(void)
{
    make_large();
    make_mappings();
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
        .letters = "b:w:n:",
        .usage = "\t-b bytes\tMemory of the parent, all written to; K, M, G allowed (0)\n"
                 "\t-w pages\tPages of it that the child writes to (0)\n"
                 "\t-n mappings\tMappings of the parent of a page each, written to (0)\n",
        .option = option,
        .begin = begin,
        .repeat = repeat,
    };

    return measure(&testcase, argc, argv);
}
