// SPDX-License-Identifier: MIT OR Apache-2.0
//
// brk1: moves of the program break per second.
//
// Like the test case of that name in will-it-scale: the break moves
// up by a page and down again. An operation is one call. With -w the page is
// written to in between, and an operation is still one call. A process has one
// break, so several tasks must be processes.

#define _GNU_SOURCE
#include "operation.h"

#include <sys/syscall.h>

static bool write_page;

static void option(int letter, const char *value)
{
    (void)letter, (void)value;
    write_page = true;
}

static void begin(void)
{
    if (common.tasks > 1 && !common.processes)
        die(common.program, "threads share one break: -t %zu needs -P", common.tasks);
}

// A raw system call, because musl's functions refuse to move the break.
static char *move_break(char *to)
{
    return (char *)syscall(SYS_brk, to);
}

static void repeat(void *prepared, uint64_t times)
{
    size_t page = page_size();
    // The C library's heap may end inside a page.
    char *low = (char *)round_up((size_t)move_break(NULL), page);

    (void)prepared;
    for (; times >= 2; times -= 2) {
        if (move_break(low + page) != low + page)
            die(common.program, "the break does not go up");
        if (write_page)
            *(volatile char *)low = 1;
        if (move_break(low) != low)
            die(common.program, "the break does not go down");
    }
    // An odd number of calls, in the first batches only.
    if (times > 0 && move_break(low) != low)
        die(common.program, "the break does not stay");
}

int main(int argc, char **argv)
{
    static const Testcase testcase = {
        .title = "brk increase/decrease",
        .letters = "w",
        .usage = "\t-w\t\tWrite to the page in between\n",
        .option = option,
        .begin = begin,
        .repeat = repeat,
    };

    return measure(&testcase, argc, argv);
}
