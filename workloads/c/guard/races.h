// SPDX-License-Identifier: MIT OR Apache-2.0
//
// One thread (the toucher) accesses a page continuously, while the check
// itself changes the mapping. The two wait for each other at each step, for at
// most `patience`, so that the races also happen with one CPU.

#ifndef WORKLOADS_GUARD_RACES_H
#define WORKLOADS_GUARD_RACES_H

#include "pages.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

static const uint64_t patience = 20 * NANOS_PER_SECOND;

static struct {
    char *page;
    int code;                     // the si_code its faults must have; 0: none
    atomic_bool stop;
    _Atomic(const char *) wrong;  // the first error, or NULL
    _Alignas(LINE_PAIR) _Atomic uint64_t faults;
    _Alignas(LINE_PAIR) _Atomic uint64_t done; // accesses completed
} toucher;

static void complain(const char *what)
{
    const char *none = NULL;

    atomic_compare_exchange_strong(&toucher.wrong, &none, what);
}

static bool wait_beyond(_Atomic uint64_t *counter, uint64_t value)
{
    uint64_t start = now_ns();

    while (atomic_load(counter) <= value) {
        if (now_ns() - start > patience || atomic_load(&toucher.wrong))
            return false;
        sched_yield();
    }
    return true;
}

static pthread_t start_toucher(void *(*body)(void *), char *at, int code)
{
    pthread_t thread;

    toucher.page = at;
    toucher.code = code;
    atomic_store(&toucher.stop, false);
    atomic_store(&toucher.wrong, NULL);
    atomic_store(&toucher.faults, 0);
    atomic_store(&toucher.done, 0);
    if (pthread_create(&thread, NULL, body, NULL) != 0)
        die("guard", "cannot start a thread");
    return thread;
}

// Returns false, with an explanation, if the toucher found an error.
static bool stop_toucher(pthread_t thread)
{
    atomic_store(&toucher.stop, true);
    pthread_join(thread, NULL);
    if (atomic_load(&toucher.wrong) == NULL)
        return true;
    explain("%s", atomic_load(&toucher.wrong));
    return false;
}

// Stops the toucher and returns from the check, unless the condition holds.
#define EXPECT_IN_RACE(condition, ...)                                         \
    do {                                                                       \
        if (!(condition)) {                                                    \
            explain(__VA_ARGS__);                                              \
            map_over(toucher.page, 1, RW);                                     \
            stop_toucher(thread);                                              \
            return;                                                            \
        }                                                                      \
    } while (0)

// The toucher's handler: counts, yields to the other thread, tries again.
static void try_again(siginfo_t *info, ucontext_t *context)
{
    char *at = info->si_addr;

    (void)context;
    if (toucher.code == 0)
        complain("an access faulted that is always allowed");
    else if (info->si_code != toucher.code)
        complain("a fault had another si_code");
    else if (at < toucher.page || at >= toucher.page + page)
        complain("a fault had another si_addr");
    atomic_fetch_add(&toucher.faults, 1);
    sched_yield();
    if (atomic_load(&toucher.wrong))
        map_over(toucher.page, 1, RW); // so that the access can end
}

static void flip_back(siginfo_t *info, ucontext_t *context)
{
    (void)context;
    if (info->si_code != SEGV_ACCERR)
        complain("a fault had another si_code");
    atomic_fetch_add(&toucher.faults, 1);
    mprotect(toucher.page, page, RW);
}

// Writes 1, 2, 3, ... to the words of the page in turn, and reads each back.
static void *write_words(void *handler)
{
    volatile uint64_t *word = (volatile uint64_t *)toucher.page;
    size_t words = page / sizeof *word;

    catcher.repair = handler != NULL ? flip_back : try_again;
    for (uint64_t i = 1; !atomic_load(&toucher.stop); i++) {
        word[i % words] = i;
        if (word[i % words] != i)
            complain("a write was lost");
        atomic_store(&toucher.done, i);
    }
    return NULL;
}

static void *write_words_and_flip_back(void *unused)
{
    (void)unused;
    return write_words(&toucher);
}

// True if the page contains the last writes of write_words.
static bool words_are_there(void)
{
    volatile uint64_t *word = (volatile uint64_t *)toucher.page;
    uint64_t words = page / sizeof *word, done = atomic_load(&toucher.done);

    for (uint64_t i = done > words ? done - words + 1 : 1; i <= done; i++)
        if (word[i % words] != i)
            return false;
    return true;
}

static void check_race_protect(void)
{
    char *p = map_pages(1, RW);
    char *copy = map_pages(1, RW);
    pthread_t thread = start_toucher(write_words, p, SEGV_ACCERR);

    for (size_t r = 0; r < rounds; r++) {
        uint64_t faults = atomic_load(&toucher.faults);

        // After mprotect has returned, no write may land.
        protect(p, 1, PROT_READ);
        memcpy(copy, p, page);
        EXPECT_IN_RACE(wait_beyond(&toucher.faults, faults),
                       "a write to the read-only page did not fault");
        EXPECT_IN_RACE(memcmp(copy, p, page) == 0,
                       "a write landed after mprotect had returned");
        protect(p, 1, RW);
        EXPECT_IN_RACE(wait_beyond(&toucher.done, atomic_load(&toucher.done)),
                       "the writer did not go on");
    }
    if (!stop_toucher(thread))
        return;
    EXPECT(words_are_there(), "a write was lost");
    unmap(p, 1);
    unmap(copy, 1);
}

static void check_race_flip_back(void)
{
    char *p = map_pages(1, RW);
    pthread_t thread = start_toucher(write_words_and_flip_back, p, SEGV_ACCERR);

    for (size_t r = 0; r < rounds; r++) {
        uint64_t done = atomic_load(&toucher.done);

        protect(p, 1, r % 2 ? PROT_READ : PROT_NONE);
        EXPECT_IN_RACE(wait_beyond(&toucher.done, done + 1),
                       "the writer did not go on");
    }
    if (!stop_toucher(thread))
        return;
    protect(p, 1, RW);
    EXPECT(words_are_there(), "a write was lost");
    EXPECT(atomic_load(&toucher.faults) > 0, "no write ever faulted");
    unmap(p, 1);
}

static void *read_word(void *unused)
{
    (void)unused;
    catcher.repair = try_again;
    for (uint64_t i = 1; !atomic_load(&toucher.stop); i++) {
        access_byte(READ, toucher.page);
        atomic_store(&toucher.done, i);
    }
    return NULL;
}

static void check_race_unmap(void)
{
    char *p = map_pages(1, RW);
    pthread_t thread = start_toucher(read_word, p, SEGV_MAPERR);

    for (size_t r = 0; r < rounds; r++) {
        uint64_t faults = atomic_load(&toucher.faults);
        uint64_t done;

        *(volatile char *)p = 7;
        unmap(p, 1);
        done = atomic_load(&toucher.done);
        EXPECT_IN_RACE(wait_beyond(&toucher.faults, faults),
                       "a read of the unmapped page did not fault");
        // Before munmap one read may have completed without being counted.
        EXPECT_IN_RACE(atomic_load(&toucher.done) <= done + 1,
                       "a read went on after munmap had returned");
        EXPECT_IN_RACE(map_over(p, 1, RW) == p, "mmap: %s", strerror(errno));
        EXPECT_IN_RACE(*(volatile char *)p == 0, "old contents came back");
        EXPECT_IN_RACE(wait_beyond(&toucher.done, atomic_load(&toucher.done)),
                       "the reader did not go on");
    }
    if (!stop_toucher(thread))
        return;
    unmap(p, 1);
}

static void *write_first_word(void *unused)
{
    (void)unused;
    catcher.repair = try_again;
    for (uint64_t i = 1; !atomic_load(&toucher.stop); i++) {
        *(volatile uint64_t *)toucher.page = i;
        atomic_store(&toucher.done, i);
    }
    return NULL;
}

static void check_race_dontneed(void)
{
    char *p = map_pages(1, RW);
    pthread_t thread = start_toucher(write_first_word, p, 0);

    for (size_t r = 0; r < rounds; r++) {
        uint64_t done, seen;

        EXPECT_IN_RACE(wait_beyond(&toucher.done, atomic_load(&toucher.done)),
                       "the writer did not go on");
        done = atomic_load(&toucher.done);
        EXPECT_IN_RACE(madvise(p, page, MADV_DONTNEED) == 0, "%s", strerror(errno));
        seen = *(volatile uint64_t *)p;
        EXPECT_IN_RACE(seen == 0 || seen > done,
                       "contents from before MADV_DONTNEED: %" PRIu64
                       ", when %" PRIu64 " was written", seen, done);
    }
    if (!stop_toucher(thread))
        return;
    unmap(p, 1);
}

static void check_race_fixed_over(void)
{
    char *p = map_pages(3, RW) + page;
    pthread_t thread = start_toucher(read_word, p, 0);

    for (size_t r = 0; r < rounds; r++) {
        EXPECT_IN_RACE(map_over(p, 1, RW) == p, "mmap: %s", strerror(errno));
        EXPECT_IN_RACE(all_zero(p, page), "old contents in the new mapping");
        memset(p, 7, page);
        EXPECT_IN_RACE(wait_beyond(&toucher.done, atomic_load(&toucher.done)),
                       "the reader did not go on");
    }
    if (!stop_toucher(thread))
        return;
    unmap(p - page, 3);
}

// Discards its page and writes it again, over and over.
static void *refault(void *unused)
{
    volatile uint64_t *word = (volatile uint64_t *)toucher.page;

    (void)unused;
    catcher.repair = try_again;
    for (uint64_t i = 1; !atomic_load(&toucher.stop); i++) {
        madvise(toucher.page, page, MADV_DONTNEED);
        if (*word != 0)
            complain("old contents after MADV_DONTNEED");
        *word = i;
        if (*word != i)
            complain("a write was lost");
        atomic_store(&toucher.done, i);
    }
    return NULL;
}

// Changes neighbours in the same mapping and the same page table; the page
// itself must not notice.
static void check_race_neighbours(void)
{
    char *p = map_pages(3, RW) + page;
    pthread_t thread = start_toucher(refault, p, 0);

    for (size_t r = 0; r < rounds; r++) {
        protect(p - page, 1, PROT_NONE);
        protect(p + page, 1, PROT_READ);
        protect(p - page, 1, RW);
        protect(p + page, 1, RW);
        EXPECT_IN_RACE(munmap(p + page, page) == 0, "%s", strerror(errno));
        EXPECT_IN_RACE(map_over(p + page, 1, RW) == p + page, "%s", strerror(errno));
        EXPECT_IN_RACE(wait_beyond(&toucher.done, atomic_load(&toucher.done)),
                       "the writer did not go on");
    }
    if (!stop_toucher(thread))
        return;
    unmap(p - page, 3);
}

#endif
