// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Shared by the programs that touch memory which may not be mapped.

#ifndef TESTS_TOUCH_H
#define TESTS_TOUCH_H

#include "common.h"

#include <setjmp.h>

#define PAGE 4096L

static sigjmp_buf touched;
static siginfo_t trapped;

static void on_trap(int number, siginfo_t *info, void *context)
{
    (void)number;
    (void)context;
    trapped = *info;
    siglongjmp(touched, 1);
}

static inline void catch_traps(void)
{
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};

    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    CHECK(sigaction(SIGBUS, &action, NULL) == 0);
}

static inline void say_trap(const char *what, const volatile char *where)
{
    printf("%s: signal %d code %d%s\n", what, trapped.si_signo, trapped.si_code,
           trapped.si_addr == (void *)where ? "" : " elsewhere");
}

// Prints the value of a byte, or the signal.
static inline void say_byte(const volatile char *where)
{
    if (sigsetjmp(touched, 1) == 0)
        printf("there is %d\n", *where);
    else
        say_trap("read", where);
}

// Writes a byte; prints the signal.
static inline void put_byte(volatile char *where, char value)
{
    if (sigsetjmp(touched, 1) == 0)
        *where = value;
    else
        say_trap("write", where);
}

// Maps readable and writable pages at a fixed address.
static inline char *map_at(char *where, long pages)
{
    char *got = mmap(where, pages * PAGE, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);

    EXPECT(got == where, "mmap %p", (void *)where);
    return got;
}

// Prints for each page whether it is present.
static inline void say_present(const char *where, long pages)
{
    unsigned char there[64];
    int result = mincore((void *)where, pages * PAGE, there);

    printf("there: ");
    for (long page = 0; result == 0 && page < pages; page++)
        putchar('0' + (there[page] & 1));
    puts(result == 0 ? "" : strerror(errno));
}

#endif
