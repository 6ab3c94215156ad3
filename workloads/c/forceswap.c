// SPDX-License-Identifier: MIT OR Apache-2.0
//
// forceswap: does the first write to a page that comes back from swap copy it?
//
// Each round pages memory out by MADV_PAGEOUT, and then reads and writes every
// page. The read brings the page back; only the write is timed. A system that
// maps the page read-only, and cannot tell that the page is not shared, copies
// it in that write and flushes the TLBs of all other CPUs. The other threads
// run in the same address space, so that there are TLBs to flush.
//
// Each page has a word of its own, which counts the rounds. The read checks it,
// so that a page that comes back empty, old or as another one is noticed. The
// rest of a page is zero. Major faults prove that pages were really paged out:
// without swap MADV_PAGEOUT succeeds, and changes nothing.

#define _GNU_SOURCE
#include "common.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

static const char *program;
static size_t threads, rounds, pages;
static char *memory;
static _Alignas(LINE_PAIR) _Atomic bool stop;

static void *spin(void *nothing)
{
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
#ifdef __x86_64__
        __builtin_ia32_pause();
#endif
    }
    return nothing;
}

// The processor's cycles; nanoseconds where that is not known.
static inline uint64_t cycles(void)
{
#ifdef __x86_64__
    unsigned processor;

    return __builtin_ia32_rdtscp(&processor);
#else
    return now_ns();
#endif
}

static uint64_t major_faults(void)
{
    struct rusage usage;

    if (getrusage(RUSAGE_SELF, &usage) != 0)
        die(program, "cannot count faults: %s", strerror(errno));
    return (uint64_t)usage.ru_majflt;
}

static volatile uint64_t *word_of(size_t page)
{
    return (volatile uint64_t *)(memory + page * page_size());
}

// The word of a page after this many rounds: never 0, and different for all pages.
static uint64_t word(size_t page, size_t round)
{
    return (uint64_t)(page + 1) << 32 | (uint32_t)round;
}

static void page_out(void)
{
    if (madvise(memory, pages * page_size(), MADV_PAGEOUT) == 0)
        return;
    if (errno == EINVAL)
        die(program, "this system has no MADV_PAGEOUT");
    die(program, "cannot page out: %s", strerror(errno));
}

// Pages all pages out, then reads and writes each. Returns the cycles of the writes.
static uint64_t do_round(size_t round)
{
    uint64_t took = 0;

    page_out();
    for (size_t i = 0; i < pages; i++) {
        volatile uint64_t *at = word_of(i);
        uint64_t found = *at, next = word(i, round + 1), begun;

        if (found != word(i, round))
            die(program, "page %zu came back with %#" PRIx64 " instead of %#" PRIx64 " in round %zu",
                i, found, word(i, round), round);
        begun = cycles();
        *at = next;
        took += cycles() - begun;
    }
    return took;
}

static void check_at_the_end(void)
{
    for (size_t i = 0; i < pages; i++)
        if (*word_of(i) != word(i, rounds + 1))
            die(program, "page %zu has lost its last write", i);
}

static void usage(FILE *to)
{
    fprintf(to,
            "Usage: %s NTHREADS NOPS NPAGES\n\n"
            "\tNTHREADS\tThreads in all; one works, the others spin\n"
            "\tNOPS\t\tRounds in which all pages are paged out, read and written\n"
            "\tNPAGES\t\tPages\n"
            "\t--help\t\tPrint this\n"
            "Needs swap. Prints the cycles of the writes of a round, 'time: N'.\n"
            "Example: %s 2 100000 1\n",
            program, program);
}

static size_t argument(const char *name, const char *text, uint64_t most)
{
    uint64_t n;

    if (parse_number(text, false, 1, most, &n))
        return (size_t)n;
    fprintf(stderr, "%s: %s: not a number from 1 to %" PRIu64 ": %s\n", program, name, most, text);
    usage(stderr);
    exit(1);
}

static void read_arguments(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        usage(stdout);
        exit(0);
    }
    if (argc != 4) {
        fprintf(stderr, "%s: three arguments are expected\n", program);
        usage(stderr);
        exit(1);
    }
    threads = argument("NTHREADS", argv[1], MAX_THREADS);
    rounds = argument("NOPS", argv[2], UINT32_MAX - 1);
    pages = argument("NPAGES", argv[3], 1u << 30);
}

int main(int argc, char **argv)
{
    pthread_t *spinners;
    uint64_t time = 0, begun, took, faults, expected;

    program = argv[0];
    read_arguments(argc, argv);
    expected = (uint64_t)rounds * pages;
    spinners = calloc(threads, sizeof *spinners);
    memory = mmap(NULL, pages * page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                  -1, 0);
    if (spinners == NULL || memory == MAP_FAILED)
        die(program, "no memory");
    for (size_t i = 0; i < pages; i++)
        *word_of(i) = word(i, 0);
    for (size_t i = 0; i + 1 < threads; i++) {
        int err = pthread_create(&spinners[i], NULL, spin, NULL);

        if (err != 0)
            die(program, "cannot start a thread: %s", strerror(err));
    }
    // One round is not measured. It shows whether there is swap at all.
    faults = major_faults();
    do_round(0);
    if (major_faults() == faults)
        die(program, "MADV_PAGEOUT has paged nothing out: this system has no swap, or it is full");
    faults = major_faults();
    begun = now_ns();
    for (size_t i = 1; i <= rounds; i++)
        time += do_round(i);
    took = now_ns() - begun;
    faults = major_faults() - faults;
    check_at_the_end();
    atomic_store_explicit(&stop, true, memory_order_relaxed);
    for (size_t i = 0; i + 1 < threads; i++)
        pthread_join(spinners[i], NULL);
    printf("time: %" PRIu64 "\n", time / rounds);
    printf("paged: %" PRIu64 " of %" PRIu64 "\n", faults, expected);
    // A page that stays costs a fraction of one that goes: the figure would mix the two.
    if (faults < expected - expected / 20)
        die(program, "only %" PRIu64 " of %" PRIu64 " pages were paged out", faults, expected);
    printf("%.1f ns/op\n", (double)took / (double)expected);
    return 0;
}
