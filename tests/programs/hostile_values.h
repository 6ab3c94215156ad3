// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Arguments of a hostile program's system calls: interesting values, and
// structures that are nearly right.
//
// Structures are made in an arena that all threads of a process share, so one
// thread changes what the kernel is reading for another. The arena has
// pages that are read-only, untouched, or missing, and
// structures often end, or break off, where such a page begins.

#ifndef TESTS_HOSTILE_VALUES_H
#define TESTS_HOSTILE_VALUES_H

#include "common.h"

enum {
    PAGE = 4096,
    ARENA_PAGES = 96,
    // Of each eight pages: touched, touched, missing, read-only, touched,
    // untouched, untouched, without any permission.
    PERIOD = 8,
};

typedef unsigned long word;

static char *arena;
// The processes that must live for the run to end: the supervisor, and the leader of the round.
static pid_t supervisor, leader;

// xorshift64*, one state for each thread.
static inline word next(word *random)
{
    word x = *random;

    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *random = x;
    return x * 0x2545f4914f6cdd1dul >> 16;
}

static inline bool one_in(word *random, word n)
{
    return next(random) % n == 0;
}

static inline void make_arena(void)
{
    arena = mmap(NULL, ARENA_PAGES * PAGE, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (arena == MAP_FAILED)
        _exit(1);
    for (int page = 0; page < ARENA_PAGES; page++) {
        char *at = arena + page * PAGE;
        int kind = page % PERIOD;

        if (kind <= 4)
            *(volatile char *)at = 'x';
        if (kind == 2)
            munmap(at, PAGE);
        if (kind == 3)
            mprotect(at, PAGE, PROT_READ);
        if (kind == 7)
            mprotect(at, PAGE, PROT_NONE);
    }
}

// An address in the arena.
static inline word address(word *random)
{
    word page = (word)arena + next(random) % ARENA_PAGES * PAGE;

    switch (next(random) % 4) {
    case 0:
        return page;
    case 1:
        return page + next(random) % PAGE;
    case 2:
        return page + next(random) % PAGE / 8 * 8;
    default:
        return page - 1 - next(random) % 16;
    }
}

// A writable place for a structure: right before a missing page, so that a longer
// structure breaks off, or anywhere in two good pages.
static inline word *place(word *random, word size)
{
    word group = next(random) % (ARENA_PAGES / PERIOD) * PERIOD;
    char *at = arena + group * PAGE;
    word room = 2 * PAGE;

    if (one_in(random, 4))
        return (word *)(at + room - size);
    return (word *)(at + next(random) % ((room - size) / 8) * 8);
}

// A value of any kind.
static inline word anything(word *random)
{
    static const word edges[] = {
        0, 1, 2, -1ul, -2ul, -14ul, 0x7fffffff, 0x80000000, 0xffffffff,
        0x100000000, 1ul << 62, 1ul << 63, (1ul << 63) - 1, -4096ul, -8ul,
        // The end of user memory, the hole, the kernel's half.
        0x7ffffffff000, 0x7fffffffeff8, 0x7fffffffffff, 0x7fffffffe000,
        0x800000000000, 0x8000000000000000 >> 16, 0xffff7fffffffffff,
        0xffff800000000000, 0xffffffff80000000, 0xffffffff80100000,
        0xffffffffffffe000, 4096, 4095, 4097, 65536, 0x555555554000,
    };

    switch (next(random) % 10) {
    case 0:
        return 0;
    case 1:
    case 2:
        return edges[next(random) % (sizeof edges / sizeof *edges)];
    case 3:
    case 4:
        return next(random) % 64;
    case 5:
        return 1ul << next(random) % 64;
    case 6:
        return (1ul << next(random) % 64) - next(random) % 3;
    case 7:
        // The program's own text and data.
        return (word)&make_arena + (next(random) % 65536 & -8ul);
    case 8:
        return next(random) << 16 ^ next(random);
    default:
        return address(random);
    }
}

static inline word length(word *random)
{
    switch (next(random) % 8) {
    case 0:
        return anything(random);
    case 1:
        return next(random) % 8 * PAGE;
    case 2:
        return next(random) % (16 * PAGE);
    default:
        return next(random) % 256;
    }
}

static inline word flags(word *random)
{
    word all = 0;

    if (one_in(random, 4))
        return 0;
    for (word n = 1 + next(random) % 3; n > 0; n--)
        all |= 1ul << next(random) % 24;
    return one_in(random, 16) ? anything(random) : all;
}

static inline word process(word *random)
{
    switch (next(random) % 8) {
    case 0:
        return 0;
    case 1:
        return anything(random);
    case 2:
        return -(word)(leader + next(random) % 40);
    default:
        // Process numbers are given in order: children and threads, past and present.
        return leader + next(random) % 60;
    }
}

static inline word descriptor(word *random)
{
    switch (next(random) % 16) {
    case 0:
        return anything(random);
    case 1:
        return (word)-100; // AT_FDCWD
    case 2:
        return 1000 + next(random) % 30;
    default:
        return next(random) % 24;
    }
}

// A short time, a long one, or an invalid one.
static inline word time_span(word *random)
{
    word *at = place(random, 32);

    for (int i = 0; i < 4; i += 2) {
        at[i] = one_in(random, 12) ? anything(random) : 0;
        at[i + 1] = one_in(random, 12) ? anything(random)
                                       : next(random) % 3000000;
    }
    return (word)at;
}

// A path that shows the memory of a process, but not of the supervisor or the leader. Without the C library,
// which needs registers that hostile programs spoil.
static inline word path_of_process(word *random, char *to)
{
    static const char *const names[] = {
        "mem", "mem", "pagemap", "clear_refs", "smaps", "smaps_rollup", "maps",
        "statm",
    };
    const char *name = names[next(random) % (sizeof names / sizeof *names)];
    word other = process(random) % 1000000, size = 0, ten = 1;

    if (other == (word)supervisor || other == (word)leader)
        other++;
    for (const char *from = "/proc/"; *from != 0;)
        to[size++] = *from++;
    while (ten * 10 <= other)
        ten *= 10;
    for (; ten > 0; ten /= 10)
        to[size++] = (char)('0' + other / ten % 10);
    to[size++] = '/';
    while (*name != 0)
        to[size++] = *name++;
    return size;
}

static inline word path(word *random)
{
    static const char *const known[] = {
        "a", "b", "c", "d", "d/e", "d/f", "d/../a", ".", "..", "", "/", "//",
        "/tmp", "/tmp/x", "/tmp/y/z", "/dev/null", "/dev/zero", "/dev/full",
        "/dev/urandom", "/dev/random", "/dev/tty", "/proc", "/proc/self/maps",
        "/proc/self/stat", "/proc/self/status", "/proc/self/statm",
        "/proc/self/exe", "/proc/self/fd", "/proc/self/fd/3", "/proc/self/fd/5",
        "/proc/self/cwd", "/proc/self/root", "/proc/self/task", "/proc/meminfo",
        "/proc/self/cmdline", "/proc/self/environ", "/proc/self/auxv",
        "/proc/self/mem", "/proc/self/smaps", "/proc/self/smaps_rollup",
        "/proc/self/pagemap", "/proc/self/clear_refs", "/proc/vmstat",
        "/proc/cpuinfo", "/proc/interrupts",
        "/proc/stat", "/proc/mounts", "/proc/sys/vm/overcommit_memory",
        "/proc/sys/kernel/random/uuid", "/dev/shm/s", "/proc/100/maps",
        "/proc/101/fd", "/proc/103/status", "/proc/105/task", "/proc/1/stat",
        "/bin/test", "/bin/test/x", "l", "l/l", "a/b", "d/d/d/d/d/d",
    };
    word *at = place(random, 512);
    char *to = (char *)at;
    word size = 0;

    switch (next(random) % 16) {
    case 0:
        // Too long, or not terminated before the end of the page.
        for (; size < 512; size++)
            to[size] = 'a' + size % 3;
        return (word)at;
    case 1:
        for (; size < 300; size++)
            to[size] = "/.la\xff"[next(random) % 5];
        break;
    case 2:
    case 3:
        size = path_of_process(random, to);
        break;
    default:
        size = strlen(known[0]);
        {
            const char *from =
                known[next(random) % (sizeof known / sizeof *known)];

            size = strlen(from);
            memcpy(to, from, size);
        }
    }
    to[size] = 0;
    return (word)at;
}

// Pairs of an address and a length; also nearly a list of strings.
static inline word vectors(word *random)
{
    word *at = place(random, 128);

    for (int i = 0; i < 16; i += 2) {
        at[i] = one_in(random, 10) ? anything(random) : address(random);
        at[i + 1] = length(random);
    }
    return (word)at;
}

#endif
