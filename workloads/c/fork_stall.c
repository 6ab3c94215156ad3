// SPDX-License-Identifier: MIT OR Apache-2.0
//
// fork_stall: how long does a page fault wait for another thread's fork?
//
// One thread forks a process with much memory, all of it written to. Meanwhile
// the others touch memory continuously: alternately a random page of that memory,
// which the fork may have made copy-on-write, and an untouched page of another
// mapping. Each access is timed. If a fork stalls faults, an access takes
// as long as the rest of the fork.
//
// Between two forks all of the memory is written again, so that all forks start
// from the same state. The figure is the longest access during a fork: the
// median of all forks, because a shared machine may stop any thread at
// any time. Accesses are spaced in time, so that they copy little.

#define _GNU_SOURCE
#include "common.h"

#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { HELP = 256 };

// The time from one access to the next.
#define DISTANCE_NS 20000ull

static const char *program;
static size_t memory_bytes = (size_t)1 << 30; // -b
static size_t threads = 1;                    // -t
static size_t forks = 5;                      // -n
static char *memory;

// The bytes that each toucher may touch for the first time during one fork.
#define FRESH_BYTES ((size_t)16 << 20)

typedef struct {
    _Alignas(LINE_PAIR) pthread_t thread;
    char *fresh;
    uint64_t random;
    uint64_t longest;
    uint64_t accesses;
} Toucher;

// The rounds: a toucher touches while `under_way` is odd, and reports in `ready`.
static struct {
    _Alignas(LINE_PAIR) _Atomic size_t under_way;
    _Alignas(LINE_PAIR) _Atomic size_t ready;
    _Alignas(LINE_PAIR) _Atomic size_t done;
} rounds;

static char *map(size_t bytes)
{
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        die(program, "cannot map %zu bytes: %s", bytes, strerror(errno));
    return p;
}

// xorshift64*
static uint64_t random_number(uint64_t *state)
{
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return *state * 0x2545f4914f6cdd1dull;
}

// Touches until the fork is over.
static void touch(Toucher *self, size_t round)
{
    size_t page = page_size(), fresh = 0;
    uint64_t next = now_ns();

    self->longest = 0;
    atomic_fetch_add(&rounds.ready, 1);
    while (atomic_load_explicit(&rounds.under_way, memory_order_acquire) == round) {
        uint64_t begun = now_ns(), took;
        volatile char *at = memory + random_number(&self->random) % (memory_bytes / page) * page;

        if (begun < next)
            continue;
        if (self->accesses++ % 2 == 0 && fresh < FRESH_BYTES) {
            at = self->fresh + fresh;
            fresh += page;
        }
        *at = 2;
        next = now_ns();
        took = next - begun;
        next += DISTANCE_NS;
        self->longest = took > self->longest ? took : self->longest;
    }
    atomic_fetch_add(&rounds.done, 1);
}

static void *toucher_thread(void *toucher)
{
    size_t round = 0;

    for (;;) {
        size_t now = atomic_load_explicit(&rounds.under_way, memory_order_acquire);

        if (now == SIZE_MAX)
            return NULL;
        if (now != round && now % 2 == 1)
            touch(toucher, round = now);
        else
            sched_yield();
    }
}

// Waits until `count` is the number of touchers, and resets it to 0.
static void await(_Atomic size_t *count)
{
    while (atomic_load(count) != threads)
        sched_yield();
    atomic_store(count, 0);
}

// Forks once, while all touchers touch; returns the longest access.
static uint64_t stalled_by_fork(Toucher *touchers, size_t number, uint64_t *took)
{
    uint64_t begun, longest = 0;
    pid_t child;
    int status, gate[2];
    char nothing;

    if (pipe(gate) != 0)
        die(program, "cannot begin: %s", strerror(errno));
    for (size_t i = 0; i < memory_bytes; i += page_size())
        ((volatile char *)memory)[i] = 1;
    for (size_t i = 0; i < threads; i++)
        touchers[i].fresh = map(FRESH_BYTES);
    atomic_store_explicit(&rounds.under_way, 2 * number + 1, memory_order_release);
    await(&rounds.ready);
    begun = now_ns();
    child = fork();
    if (child == 0) {
        // The child's exit takes a CPU for long, perhaps a toucher's. So it waits until all
        // touchers have seen the end of the fork.
        close(gate[1]);
        while (read(gate[0], &nothing, 1) < 0 && errno == EINTR)
            ;
        _exit(0);
    }
    *took = now_ns() - begun;
    atomic_store_explicit(&rounds.under_way, 2 * number + 2, memory_order_release);
    if (child < 0)
        die(program, "cannot fork: %s", strerror(errno));
    await(&rounds.done);
    close(gate[0]);
    close(gate[1]);
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            die(program, "cannot wait for a process: %s", strerror(errno));
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        die(program, "a child failed (status %#x)", (unsigned)status);
    for (size_t i = 0; i < threads; i++) {
        longest = touchers[i].longest > longest ? touchers[i].longest : longest;
        munmap(touchers[i].fresh, FRESH_BYTES);
    }
    return longest;
}

static int compare(const void *one, const void *other)
{
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;

    return (a > b) - (a < b);
}

static void usage(FILE *to)
{
    fprintf(to,
            "Usage: %s [options]\n\n"
            "\t-b bytes\tMemory of the process, all written to; K, M, G allowed (1G)\n"
            "\t-t threads\tThreads that touch memory during a fork (1)\n"
            "\t-n forks\tForks (5)\n"
            "\t--help\t\tPrint this\n"
            "Example: %s -b 256M -n 9\n",
            program, program);
}

static void read_options(int argc, char **argv)
{
    static const struct option long_options[] = {
        {"help", no_argument, NULL, HELP},
        {NULL, 0, NULL, 0},
    };
    int c;

    while ((c = getopt_long(argc, argv, "b:t:n:", long_options, NULL)) != -1) {
        uint64_t n = 0;
        bool good = c != '?';

        if (c == HELP) {
            usage(stdout);
            exit(0);
        }
        if (c == 'b')
            good = parse_number(optarg, true, page_size(), (uint64_t)1 << 46, &n);
        else if (c == 't')
            good = parse_number(optarg, false, 1, MAX_THREADS, &n);
        else if (c == 'n')
            good = parse_number(optarg, false, 1, 1 << 20, &n);
        if (!good) {
            if (c != '?')
                fprintf(stderr, "%s: -%c: not a number that it can be: %s\n", program, c, optarg);
            usage(stderr);
            exit(1);
        }
        *(c == 'b' ? &memory_bytes : c == 't' ? &threads : &forks) = n;
    }
    if (optind < argc) {
        fprintf(stderr, "%s: unexpected argument: %s\n", program, argv[optind]);
        usage(stderr);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    uint64_t *longest;
    Toucher *touchers;

    program = argv[0];
    read_options(argc, argv);
    memory_bytes = round_up(memory_bytes, page_size());
    memory = map(memory_bytes);
    longest = calloc(forks, sizeof *longest);
    touchers = aligned_alloc(LINE_PAIR, threads * sizeof *touchers);
    if (longest == NULL || touchers == NULL)
        die(program, "no memory");
    for (size_t i = 0; i < threads; i++) {
        int err;

        touchers[i] = (Toucher){.random = 0x9e3779b97f4a7c15ull + i};
        err = pthread_create(&touchers[i].thread, NULL, toucher_thread, &touchers[i]);
        if (err != 0)
            die(program, "cannot start a thread: %s", strerror(err));
    }
    for (size_t i = 0; i < forks; i++) {
        uint64_t took;

        longest[i] = stalled_by_fork(touchers, i, &took);
        printf("fork:%" PRIu64 " longest:%" PRIu64 "\n", took, longest[i]);
        fflush(stdout);
    }
    atomic_store_explicit(&rounds.under_way, SIZE_MAX, memory_order_release);
    for (size_t i = 0; i < threads; i++)
        pthread_join(touchers[i].thread, NULL);
    qsort(longest, forks, sizeof *longest, compare);
    printf("worst:%" PRIu64 "\n", longest[forks - 1]);
    printf("%.1f ns/op\n", (double)longest[forks / 2]);
    return 0;
}
