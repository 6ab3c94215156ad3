// SPDX-License-Identifier: MIT OR Apache-2.0
//
// thread_storm: threads started and ended per second.
//
// Every task starts some threads, each of which ends immediately, and waits
// for all of them. An operation is one such thread: a stack mapped, protected,
// touched and unmapped, a clone, an exit.

#define _GNU_SOURCE
#include "operation.h"

enum { MOST_AT_ONCE = 1024 };

static size_t at_once = 8;

static void option(int letter, const char *value)
{
    at_once = number_option(letter, value, false, 1, MOST_AT_ONCE);
}

static void *end_at_once(void *argument)
{
    return argument;
}

static void repeat(void *prepared, uint64_t times)
{
    pthread_t threads[MOST_AT_ONCE];

    (void)prepared;
    while (times > 0) {
        size_t started = times < at_once ? times : at_once;

        for (size_t i = 0; i < started; i++) {
            int err = pthread_create(&threads[i], NULL, end_at_once, NULL);

            if (err != 0)
                die(common.program, "cannot start a thread: %s", strerror(err));
        }
        for (size_t i = 0; i < started; i++)
            pthread_join(threads[i], NULL);
        times -= started;
    }
}

int main(int argc, char **argv)
{
    static const Testcase testcase = {
        .title = "Thread creation and exit",
        .letters = "n:",
        .usage = "\t-n threads\tThreads that a task starts at once (8)\n",
        .option = option,
        .repeat = repeat,
    };

    return measure(&testcase, argc, argv);
}
