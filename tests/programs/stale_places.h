// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Shared by touchers and changers of stale.c: the targets, and the present phase.

#ifndef TESTS_STALE_PLACES_H
#define TESTS_STALE_PLACES_H

#include "common.h"

#include <inttypes.h>

enum {
    PAGE = 4096,
    WORDS = PAGE / 8,
    LAST = WORDS - 1,   // this word of a target is its changer's
    REGION = 2 << 20,   // what one page table maps
    TAIL = 40,          // more pages than are flushed one by one
    RUN_UP = 128 << 10, // what long copies write before they reach a target
    OWN = 64,           // pages of a toucher, to fault on
    CANARIES = 4,
    PHASE_MS = 15,
    MOST = 64,
};

// The accesses that a target allows. With QUIET the touchers only read,
// so that the zero page stays.
enum Rights { NONE, READ, QUIET, WRITE };

static struct place {
    volatile uint64_t *target;
    _Alignas(128) _Atomic uint64_t begun; // the change that began last
    _Atomic uint64_t ended;   // the change that ended last, and the Rights since
    _Atomic uint64_t content; // the target's last word since
    _Alignas(128) _Atomic uint64_t touched;
    _Alignas(128) uint64_t number, random;
    uint64_t before[WORDS];
} places[MOST];

enum Way { STRAIGHT, CALL, FAULT, SIGNAL, BAD_FAULT, YIELD, SLEEP, WAYS };
static const char *const way_name[] = {
    "no entry", "a call", "a fault", "a signal", "SIGSEGV", "a yield", "a sleep",
};

enum Kind {
    LOAD, STORE, CLOCK, SLOW_TEXT, LONG_COPY, FAULTING_COPY, PIPE_WRITE, FUTEX, KINDS
};
static const char *const kind_name[] = {
    "load", "store", "clock_gettime", "read of a text", "long read",
    "long read that faults", "write to a pipe", "futex",
};

enum Change {
    BAR_WRITES, BAR_ALL, UNMAP, UNMAP_TABLE, MAP_OVER, DISCARD, ZERO_PAGE, CHANGES
};

// The present phase; the last value of each enumeration means any.
static _Atomic enum Way the_way = WAYS;
static _Atomic enum Kind the_kind = KINDS;
static _Atomic enum Change the_change = CHANGES;
static atomic_int active; // touchers

static bool writes(enum Kind kind)
{
    return kind != LOAD && kind != PIPE_WRITE && kind != FUTEX;
}

static struct toucher {
    uint64_t random;
    int number, pipe[2];
    char *own;         // pages to fault on, and behind them one without access
    int used;          // how many of them have been used
    struct place *place;
    uint64_t seen[MOST]; // an earlier value of each target
    _Alignas(128) uint64_t looks, sure[KINDS], sure_after[WAYS], refused;
} touchers[MOST];

static int changers = 1;
static int text;  // a file with content that the kernel takes long to generate
static int image; // a file that is longer than the run-up: this program
static const char padding[RUN_UP] = {1};
static atomic_bool go, stop;

static uint64_t next(uint64_t *random)
{
    *random ^= *random << 13;
    *random ^= *random >> 7;
    *random ^= *random << 17;
    return *random >> 11;
}

#endif
