// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Threads that end by exit, not exit_group: the last one's status is the
// program's. The argument:
//
//   first     the first thread ends first with 3, another later with 5: 5
//   together  all end at the same time, each with 7: 7, whichever is last

#include "common.h"

enum { THREADS = 4 };

static atomic_int ready;
static bool together;

static void *end(void *argument)
{
    make_my_end_slow();
    if (together) {
        atomic_fetch_add(&ready, 1);
        while (atomic_load(&ready) < THREADS)
            ;
        syscall(SYS_exit, 7);
    }
    // Until the first thread is gone: the kernel then clears its number and wakes waiters.
    while (atomic_load((atomic_int *)argument) != 0)
        sleep_ms(1);
    sleep_ms(20);
    syscall(SYS_exit, 5);
    return NULL;
}

int main(int argc, char **argv)
{
    static atomic_int first = 1;

    together = argc > 1 && strcmp(argv[1], "together") == 0;
    for (int i = 1; i < (together ? THREADS : 2); i++)
        start(end, &first);
    if (together)
        end(NULL);
    syscall(SYS_set_tid_address, &first);
    syscall(SYS_exit, 3);
}
