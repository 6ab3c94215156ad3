// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Pages on a disk that fails. Says how many it has taken, how many came back as they were, and how many were SIGBUS; all others end the
// program with an error.

#include "common.h"

#include <setjmp.h>
#include <sys/swap.h>

#define PAGE 4096L

enum { PAGES = 40 };

static sigjmp_buf before;
static char *expected;

static void at_bus_error(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    CHECK(info->si_code == BUS_ADRERR);
    CHECK((char *)info->si_addr == expected);
    siglongjmp(before, 1);
}

// How many pages the disk has taken.
static long written(void)
{
    char line[256];
    long count = -1;
    FILE *file = fopen("/proc/vmstat", "r");

    CHECK(file != NULL);
    while (fgets(line, sizeof line, file) != NULL)
        if (sscanf(line, "pswpout %ld", &count) == 1)
            break;
    fclose(file);
    return count;
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = at_bus_error, .sa_flags = SA_SIGINFO};
    char *memory = mmap(NULL, PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    volatile int right = 0, lost = 0;

    CHECK(memory != MAP_FAILED && sigaction(SIGBUS, &action, NULL) == 0);
    for (long i = 0; i < PAGES; i++)
        memset(memory + i * PAGE, (int)i + 1, PAGE);
    CHECK(madvise(memory, PAGES * PAGE, MADV_PAGEOUT) == 0);
    for (volatile long i = 0; i < PAGES; i++) {
        expected = memory + i * PAGE;
        if (sigsetjmp(before, 1) != 0) {
            lost++;
            continue;
        }
        for (long at = 0; at < PAGE; at++)
            CHECK(((volatile char *)expected)[at] == i + 1);
        right++;
    }
    printf("%ld written, %d right, %d lost\n", written(), right, lost);
    printf("swapoff: %s\n", swapoff("/dev/vda") == 0 ? "done" : strerror(errno));
    return 0;
}
