// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Processes that take turns on a CPU, each with memory of its own at the same addresses. None sees memory of another, or
// what it has discarded itself, whatever a TLB keeps over a switch.

#include "common.h"

#include <sched.h>
#include <sys/wait.h>

enum { PROCESSES = 12, PAGES = 16, PAGE = 4096, TURNS = 100 };

static char *const memory = (char *)0x7000000000;

static volatile long *page(int number)
{
    return (volatile long *)(memory + number * PAGE);
}

static void fill(int first, int last, long value)
{
    for (int i = first; i < last; i++)
        *page(i) = value;
}

// Ends with 1 if another value is seen.
static void expect(int first, int last, long value)
{
    for (int i = first; i < last; i++)
        if (*page(i) != value)
            _exit(1);
}

static void take_turns(long own)
{
    CHECK(mmap(memory, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) ==
          memory);
    fill(0, PAGES, own);
    for (int turn = 0; turn < TURNS; turn++) {
        sched_yield();
        expect(0, PAGES, own);
        CHECK(madvise(memory + PAGES / 2 * PAGE, PAGES / 2 * PAGE, MADV_DONTNEED) == 0);
        if (turn % 2)
            sched_yield();
        expect(0, PAGES / 2, own);
        expect(PAGES / 2, PAGES, 0);
        fill(PAGES / 2, PAGES, own);
    }
    _exit(0);
}

int main(void)
{
    int status, right = 0;

    for (long own = 1; own <= PROCESSES; own++)
        if (fork() == 0)
            take_turns(own);
    while (wait(&status) > 0)
        right += WIFEXITED(status) && WEXITSTATUS(status) == 0;
    CHECK(right == PROCESSES);
    return 0;
}
