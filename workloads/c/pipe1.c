// SPDX-License-Identifier: MIT OR Apache-2.0
//
// pipe1: writes and reads of a pipe per second.
//
// Like the test case of that name in will-it-scale: an operation is
// one write and one read of the same bytes by the same task, without waiting. A
// control: it contains no page fault.

#define _GNU_SOURCE
#include "operation.h"

enum { MOST_BYTES = 4096 }; // a pipe holds this much for sure

static size_t bytes = 512;

typedef struct {
    int ends[2];
    char buffer[MOST_BYTES];
} Pipe;

static void option(int letter, const char *value)
{
    bytes = number_option(letter, value, true, 1, MOST_BYTES);
}

static void *prepare(size_t task)
{
    Pipe *own = calloc(1, sizeof *own);

    (void)task;
    if (own == NULL || pipe(own->ends) != 0)
        die(common.program, "cannot make a pipe: %s", strerror(errno));
    return own;
}

static void repeat(void *prepared, uint64_t times)
{
    Pipe *own = prepared;

    while (times-- > 0) {
        if (write(own->ends[1], own->buffer, bytes) != (ssize_t)bytes)
            die(common.program, "cannot write: %s", strerror(errno));
        if (read(own->ends[0], own->buffer, bytes) != (ssize_t)bytes)
            die(common.program, "cannot read: %s", strerror(errno));
    }
}

int main(int argc, char **argv)
{
    static const Testcase testcase = {
        .title = "pipe write and read",
        .letters = "b:",
        .usage = "\t-b bytes\tBytes written and read, at most 4096 (512)\n",
        .option = option,
        .prepare = prepare,
        .repeat = repeat,
    };

    return measure(&testcase, argc, argv);
}
