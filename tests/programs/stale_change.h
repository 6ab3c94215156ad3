// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The changers of stale.c: each announces its changes, and checks for uses of stale translations.

#ifndef TESTS_STALE_CHANGE_H
#define TESTS_STALE_CHANGE_H

#include "stale_places.h"

static void begin(struct place *p)
{
    atomic_store(&p->begun, ++p->number);
}

static void end(struct place *p, enum Rights rights, uint64_t content)
{
    atomic_store(&p->content, content);
    atomic_store(&p->ended, p->number << 2 | rights);
}

static void wait_for_touches(struct place *p, unsigned touches, unsigned most)
{
    uint64_t until = atomic_load(&p->touched) + touches;
    unsigned spins = 0;

    while (atomic_load(&p->touched) < until && spins < most)
        if (++spins % 4000 == 0)
            sched_yield();
}

// Waits before a change, so that it meets accesses at any point.
static void let_begin(struct place *p)
{
    uint64_t random = next(&p->random);

    wait_for_touches(p, random % 4, 40u << random / 4 % 11);
}

// Waits after a change, so that accesses in progress end.
static void let_end(struct place *p)
{
    wait_for_touches(p, 1 + next(&p->random) % 2, 40000);
}

static volatile uint64_t *map(volatile void *at, size_t pages)
{
    void *mapped = mmap((void *)at, pages * PAGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);

    EXPECT(mapped == at, "mmap");
    return mapped;
}

// Gives content to a new target page, and ends the change.
static void furnish(struct place *p)
{
    EXPECT(p->target[LAST] == 0, "a new page holds %" PRIu64, p->target[LAST]);
    p->target[LAST] = p->number;
    end(p, WRITE, p->number);
}

static volatile uint64_t *canaries_of(struct place *p)
{
    return p->target + REGION / 8;
}

// Maps pages that replace those just freed. No other thread knows them.
static void map_canaries(struct place *p)
{
    volatile uint64_t *page = map(canaries_of(p), CANARIES);

    for (int i = 0; i < CANARIES; i++, page += WORDS)
        page[LAST] = 1;
}

static void check_canaries(struct place *p, const char *change)
{
    volatile uint64_t *word = canaries_of(p);

    for (int i = 0; i < CANARIES * WORDS; i++)
        EXPECT(word[i] == (i % WORDS == LAST), "a write through an old translation, after %s",
               change);
}

static void change_protection(struct place *p, size_t bytes, int protection)
{
    enum Rights rights = protection == PROT_NONE ? NONE : READ;
    uint64_t content = atomic_load(&p->content);

    begin(p);
    EXPECT(mprotect((void *)p->target, bytes, protection) == 0, "mprotect");
    end(p, rights, content);
    if (rights == READ)
        memcpy(p->before, (void *)p->target, PAGE);
    let_end(p);
    EXPECT(rights == NONE || memcmp(p->before, (void *)p->target, PAGE) == 0,
           "a write to the read-only page, change %" PRIu64, p->number);
    begin(p);
    EXPECT(mprotect((void *)p->target, bytes, PROT_READ | PROT_WRITE) == 0, "mprotect");
    end(p, WRITE, content);
}

static void unmap(struct place *p, size_t bytes)
{
    begin(p);
    EXPECT(munmap((void *)p->target, bytes) == 0, "munmap");
    end(p, NONE, 0);
    map_canaries(p);
    let_end(p);
    check_canaries(p, "munmap");
    begin(p);
    // The page behind them keeps the table from being freed next time.
    if (bytes == REGION)
        *(volatile char *)map((char *)p->target + REGION - PAGE, 1) = 1;
    map(p->target, TAIL);
    furnish(p);
}

static void replace(struct place *p, size_t bytes, bool by_mmap)
{
    begin(p);
    if (by_mmap)
        map(p->target, bytes / PAGE);
    else
        EXPECT(madvise((void *)p->target, bytes, MADV_DONTNEED) == 0, "madvise");
    map_canaries(p);
    furnish(p);
    let_end(p);
    check_canaries(p, by_mmap ? "mmap" : "madvise");
}

static void show_zero_page(struct place *p)
{
    begin(p);
    EXPECT(madvise((void *)p->target, PAGE, MADV_DONTNEED) == 0, "madvise");
    end(p, QUIET, p->target[LAST]);
    let_begin(p);
    begin(p);
    p->target[LAST] = p->number;
    end(p, WRITE, p->number);
}

static void *change(void *argument)
{
    struct place *p = argument;

    // Until all threads are started: a stack could be placed where a target is
    // unmapped for a moment, and then be mapped over.
    while (!atomic_load(&go))
        sleep_ms(1);
    while (!atomic_load(&stop)) {
        uint64_t random = next(&p->random);
        size_t pages = random % 8 ? 1 : 1 + random / 8 % TAIL;

        for (size_t i = 1; i < pages; i += 3)
            p->target[i * WORDS] = 1;
        enum Change change = atomic_load(&the_change);
        if (change == CHANGES)
            change = random / 256 % CHANGES;
        switch (change) {
        case BAR_WRITES: change_protection(p, pages * PAGE, PROT_READ); break;
        case BAR_ALL: change_protection(p, pages * PAGE, PROT_NONE); break;
        case UNMAP: unmap(p, pages * PAGE); break;
        case UNMAP_TABLE: unmap(p, REGION); break;
        case MAP_OVER: replace(p, pages * PAGE, true); break;
        case DISCARD: replace(p, pages * PAGE, false); break;
        case ZERO_PAGE: show_zero_page(p); break;
        case CHANGES: break;
        }
        let_begin(p);
    }
    return NULL;
}

#endif
