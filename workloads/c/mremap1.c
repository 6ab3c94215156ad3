// SPDX-License-Identifier: MIT OR Apache-2.0
//
// mremap1: moves of memory per second.
//
// An operation moves a mapping, every page of which was written, to another place
// and leaves the old place unmapped. Both places begin at multiples of 2 MiB, so that
// a system can move whole page tables. With -u the second is offset by one page, so
// that it cannot.

#define _GNU_SOURCE
#include "operation.h"

#include <sys/mman.h>

#define TABLE ((size_t)2 << 20)
// The places of the first task.
#define FIRST ((uintptr_t)1 << 44)

static size_t bytes = 64u << 20;
static bool uneven;

typedef struct {
    char *at[2];
    int now;
} Places;

static void option(int letter, const char *value)
{
    if (letter == 'u')
        uneven = true;
    else
        bytes = number_option(letter, value, true, 4096, (size_t)1 << 40);
}

static void *prepare(size_t task)
{
    static Places all[1024];
    Places *places = &all[task % 1024];
    // Both places, and a table between them. Fixed, and far from all else: in what one task reserved and
    // unmapped, another could map meanwhile.
    size_t span = (2 * (bytes + 2 * TABLE) + TABLE - 1) & ~(TABLE - 1);
    char *p;

    places->at[0] = (char *)FIRST + task * span;
    places->at[1] = places->at[0] + ((bytes + TABLE - 1) & ~(TABLE - 1)) + (uneven ? 4096 : 0);
    p = mmap(places->at[0], bytes, PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    if (p == MAP_FAILED)
        die(common.program, "cannot map %zu bytes: %s", bytes, strerror(errno));
    for (size_t at = 0; at < bytes; at += 4096)
        p[at] = 1;
    return places;
}

static void repeat(void *prepared, uint64_t times)
{
    Places *places = prepared;

    while (times-- > 0) {
        char *from = places->at[places->now], *to = places->at[!places->now];

        if (mremap(from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to) != to)
            die(common.program, "mremap: %s", strerror(errno));
        places->now = !places->now;
    }
}

int main(int argc, char **argv)
{
    static const Testcase testcase = {
        .title = "Touched anonymous memory mremap",
        .letters = "b:u",
        .usage = "\t-b bytes\tSize of the mapping; K, M, G allowed (64M)\n"
                 "\t-u\t\tTo where page tables cannot move whole\n",
        .option = option,
        .prepare = prepare,
        .repeat = repeat,
    };

    return measure(&testcase, argc, argv);
}
