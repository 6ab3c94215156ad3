// SPDX-License-Identifier: MIT OR Apache-2.0
//
// context_switch1: hand-overs between two tasks per second.
//
// Like the test case of that name in will-it-scale: every task has a
// partner, a thread or with -P a process, and a byte goes to it and back through
// two pipes. An operation is one such round: two hand-overs. A control: it
// contains no page fault.

#define _GNU_SOURCE
#include "operation.h"

typedef struct {
    int to_partner[2];
    int from_partner[2];
} Pair;

static void option(int letter, const char *value)
{
    (void)letter, (void)value;
}

// Sends back every byte until the pipe ends.
static void *answer(void *argument)
{
    Pair *pair = argument;
    char byte;

    while (read(pair->to_partner[0], &byte, 1) == 1)
        if (write(pair->from_partner[1], &byte, 1) != 1)
            break;
    return NULL;
}

static void start_partner(Pair *pair)
{
    pthread_t thread;
    pid_t child;
    int err;

    if (!common.processes) {
        err = pthread_create(&thread, NULL, answer, pair);
        if (err != 0)
            die(common.program, "cannot start a partner: %s", strerror(err));
        return;
    }
    child = fork();
    if (child < 0)
        die(common.program, "cannot start a partner: %s", strerror(errno));
    if (child == 0) {
        // Closes its own write end; otherwise its read would not end when the other task is gone.
        close(pair->to_partner[1]);
        close(common.rates);
        answer(pair);
        _exit(0);
    }
}

static void *prepare(size_t task)
{
    Pair *pair = calloc(1, sizeof *pair);

    (void)task;
    if (pair == NULL || pipe(pair->to_partner) != 0 || pipe(pair->from_partner) != 0)
        die(common.program, "cannot make pipes: %s", strerror(errno));
    start_partner(pair);
    return pair;
}

static void repeat(void *prepared, uint64_t times)
{
    Pair *pair = prepared;
    char byte = 0;

    while (times-- > 0) {
        if (write(pair->to_partner[1], &byte, 1) != 1)
            die(common.program, "cannot write: %s", strerror(errno));
        if (read(pair->from_partner[0], &byte, 1) != 1)
            die(common.program, "cannot read: %s", strerror(errno));
    }
}

int main(int argc, char **argv)
{
    static const Testcase testcase = {
        .title = "context switches by two pipes",
        .letters = "",
        .usage = "",
        .option = option,
        .prepare = prepare,
        .repeat = repeat,
    };

    return measure(&testcase, argc, argv);
}
