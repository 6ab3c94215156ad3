// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The touchers of stale.c: they access the targets, mostly right after an entry into the kernel.

#ifndef TESTS_STALE_TOUCH_H
#define TESTS_STALE_TOUCH_H

#include "stale_places.h"

#include <setjmp.h>

static _Thread_local struct toucher *self;
static _Thread_local sigjmp_buf *recover;

static void on_segv(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    EXPECT(recover != NULL, "a fault at %p", info->si_addr);
    siglongjmp(*recover, 1);
}

// Loads or stores; returns false if the access was refused.
static bool try(volatile uint64_t *word, bool write, uint64_t *value)
{
    sigjmp_buf here, *outer = recover;

    if (sigsetjmp(here, 0) != 0) {
        recover = outer;
        return false;
    }
    recover = &here;
    atomic_signal_fence(memory_order_seq_cst);
    if (write)
        *word = *value;
    else
        *value = *word;
    atomic_signal_fence(memory_order_seq_cst);
    recover = outer;
    return true;
}

// Performs the access; returns false if it was refused. Readers get the target's last word.
static bool perform(struct toucher *t, struct place *p, enum Kind kind, uint64_t *value)
{
    volatile uint64_t *target = p->target;
    uint64_t random = next(&t->random);
    volatile uint64_t *word = target + random % (LAST - 1);
    const int wait = 0 | 128; // FUTEX_WAIT, private to this process
    struct timespec no_time = {0, 1};
    uint64_t old;
    long result;

    switch (kind) {
    case LOAD:
        return try(target + LAST, false, value);
    case STORE:
        return try(word, true, &random);
    case CLOCK:
        return syscall(SYS_clock_gettime, CLOCK_MONOTONIC, word) == 0;
    case SLOW_TEXT:
        // Long in the kernel before a short copy.
        return syscall(SYS_pread64, text, target, 256, 0) > 0;
    case FAULTING_COPY:
        // The copy continues after a fault, which may sleep.
        madvise((char *)target - RUN_UP, (1 + random % 8) * PAGE, MADV_DONTNEED);
        try(word, true, &random);
        // Fall through.
    case LONG_COPY:
        return syscall(SYS_pread64, image, (char *)target - RUN_UP, RUN_UP + 256, 0) > RUN_UP;
    case PIPE_WRITE:
        result = write(t->pipe[1], (void *)(target + LAST), sizeof *value);
        return result > 0 && read(t->pipe[0], value, sizeof *value) > 0;
    case FUTEX:
        // A value that the word did not hold before, so the call does not sleep.
        old = t->seen[p - places] != *value ? t->seen[p - places] : ~*value;
        result = syscall(SYS_futex, target + LAST, wait, (uint32_t)old, &no_time);
        if (result == 0 || errno == ETIMEDOUT)
            *value = old;
        return result == 0 || errno != EFAULT;
    case KINDS:
        break;
    }
    return false;
}

static void look(struct toucher *t, struct place *p, enum Kind kind, enum Way way)
{
    uint64_t ended = atomic_load(&p->ended), content = atomic_load(&p->content);
    uint64_t value = content;
    enum Rights rights = ended & 3;
    bool done;

    if (rights == QUIET && writes(kind))
        kind = LOAD;
    done = perform(t, p, kind, &value);
    bool sure = atomic_load(&p->begun) == ended >> 2;
    atomic_fetch_add(&p->touched, 1);
    t->looks++;
    if (!sure)
        return;
    EXPECT(done == (rights >= (writes(kind) ? WRITE : READ)),
           "%s after %s was %s with rights %d, change %" PRIu64, kind_name[kind],
           way_name[way], done ? "done" : "refused", rights, ended >> 2);
    EXPECT(!done || value == content,
           "%s after %s found %" PRIu64 " for %" PRIu64 ", change %" PRIu64,
           kind_name[kind], way_name[way], value, content, ended >> 2);
    t->sure[kind]++;
    t->sure_after[way]++;
    t->refused += !done;
    t->seen[p - places] = content;
}

static enum Kind any_kind(struct toucher *t)
{
    unsigned n = next(&t->random) % 16;
    enum Kind kind = atomic_load(&the_kind);

    if (kind != KINDS)
        return kind;
    return n < 6 ? LOAD : n < 10 ? STORE : CLOCK + n % (KINDS - CLOCK);
}

static void on_signal(int signal)
{
    int error = errno;

    (void)signal;
    look(self, self->place, any_kind(self), SIGNAL);
    errno = error;
}

static void enter_kernel(struct toucher *t, enum Way way)
{
    struct timespec moment = {0, 1000};
    uint64_t value = 1;

    switch (way) {
    case CALL:
        syscall(SYS_getppid);
        break;
    case FAULT:
        t->own[t->used++ * PAGE] = 1;
        break;
    case SIGNAL:
        // The handler looks, and the caller looks again behind it.
        syscall(SYS_tkill, syscall(SYS_gettid), SIGUSR1);
        break;
    case BAD_FAULT:
        try((uint64_t *)(t->own + OWN * PAGE), true, &value);
        break;
    case YIELD:
        sched_yield();
        break;
    case SLEEP:
        nanosleep(&moment, NULL);
        break;
    case STRAIGHT:
    case WAYS:
        break;
    }
}

static void *touch(void *argument)
{
    struct toucher *t = self = argument;

    while (!atomic_load(&stop)) {
        unsigned n = next(&t->random) % 64;
        enum Way way = atomic_load(&the_way);

        if (atomic_load(&active) <= t->number) {
            sleep_ms(1);
            continue;
        }
        if (way == WAYS)
            way = n == 0 ? SLEEP : n < 3 ? YIELD : n % YIELD;
        if (t->used == OWN) {
            madvise(t->own, OWN * PAGE, MADV_DONTNEED);
            t->used = 0;
        }
        t->place = &places[next(&t->random) % (unsigned)changers];
        // Creates a translation that can become stale.
        look(t, t->place, n % 4 ? STORE : LOAD, STRAIGHT);
        enter_kernel(t, way);
        look(t, t->place, any_kind(t), way);
    }
    return NULL;
}

#endif
