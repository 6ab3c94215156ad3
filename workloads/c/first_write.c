// SPDX-License-Identifier: MIT OR Apache-2.0
//
// first_write: no first write to a page is ever lost.
//
// When several threads write to the same fresh page at the same moment, each
// of them faults, and each fault allocates a fresh frame. One may install
// its frame; the others must use that one. The classic mistake is that a later
// fault replaces the frame of an earlier one: a completed write
// disappears. So here every thread writes a word of its own in the same page,
// all at the same time, page after page. In the end every word must be present
// and every unwritten word must be zero.
//
// Pages differ in the accesses before and during the writes (`enum Kind`):
// a page that was read first is mapped to the shared zero page, and the race
// is then one of copy-on-write faults.
//
// With -d, further threads keep changing the protection of one page in the middle of
// the same mapping, which splits and merges the mapping under the
// faults.

#define _GNU_SOURCE
#include "common.h"

#include <getopt.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { HELP = 256 };

// How the threads access a page; page number n has kind n % KINDS.
enum Kind {
    FRESH,       // all threads write at the same time
    READ_BEFORE, // one thread has read it before; then all write at the same time
    READ_FIRST,  // each thread reads its word, then writes it
    READ_BESIDE, // odd threads read while even threads write; then they write
    ADD,         // all threads add 1 to the same word, atomically
    KINDS
};

static const char *const kind_name[KINDS] = {
    "fresh", "read-before", "read-first", "read-beside", "atomic-add",
};

static struct {
    size_t threads;
    size_t pages;
    size_t rounds;
    size_t disturbers;
} opt = {.threads = 8, .pages = 1000, .rounds = 10};

static const char *program;
static size_t page;          // bytes in a page
static size_t words;         // words in a page
static uint64_t *region;     // opt.pages pages, and the disturbed one
static size_t disturbed;     // the number of that page
static uint64_t round_number;
static atomic_bool stop;

static uint64_t lost[KINDS];
static uint64_t stale[KINDS];
static uint64_t written[KINDS];

// ------------------------------------------------------------ the gate

// Releases all threads at the same time. A thread spins a while before it yields:
// threads that the scheduler wakes would arrive one after the other, without a
// race. `gate_open` counts the openings.
static struct {
    _Alignas(LINE_PAIR) _Atomic size_t waiting;
    _Alignas(LINE_PAIR) _Atomic size_t opened;
} gate;

static void pass_gate(void)
{
    size_t before = atomic_load_explicit(&gate.opened, memory_order_relaxed);
    unsigned spins = 0;

    // Acquire and release: everything that any thread did before the gate is
    // visible to all threads behind it.
    if (atomic_fetch_add_explicit(&gate.waiting, 1, memory_order_acq_rel) + 1 ==
        opt.threads) {
        atomic_store_explicit(&gate.waiting, 0, memory_order_relaxed);
        atomic_store_explicit(&gate.opened, before + 1, memory_order_release);
        return;
    }
    while (atomic_load_explicit(&gate.opened, memory_order_acquire) == before)
        if (++spins % 200 == 0)
            sched_yield();
}

// ------------------------------------------------------------ the threads

// The number of a thread's word in a page; threads are spread over the
// page, and no two share a word.
static size_t word_of(size_t thread)
{
    return thread * (words / opt.threads);
}

// The value that a thread writes there: never 0, and never the same twice.
static uint64_t value_of(size_t page_number, size_t thread)
{
    return (round_number << 44 | (uint64_t)page_number << 13 | thread) + 1;
}

static volatile uint64_t *page_at(size_t number)
{
    // The disturbed page is not counted.
    size_t skip = number >= disturbed ? 1 : 0;

    return region + (number + skip) * words;
}

static void check_unwritten(const char *what, size_t number, uint64_t seen)
{
    if (seen != 0)
        die(program, "page %zu read 0x%" PRIx64 " %s it was written", number,
            seen, what);
}

static void race_on_page(size_t number, size_t self)
{
    volatile uint64_t *p = page_at(number);
    volatile uint64_t *word = &p[word_of(self)];

    if (number % KINDS == READ_BEFORE && self == number % opt.threads)
        check_unwritten("before", number, *word);
    pass_gate();
    switch ((enum Kind)(number % KINDS)) {
    case FRESH:
    case READ_BEFORE:
        *word = value_of(number, self);
        break;
    case READ_FIRST:
        check_unwritten("before", number, *word);
        *word = value_of(number, self);
        break;
    case READ_BESIDE:
        if (self % 2 == 1)
            for (int i = 0; i < 4; i++)
                check_unwritten("before", number, *word);
        *word = value_of(number, self);
        break;
    case ADD:
        __atomic_fetch_add(&p[word_of(0)], 1, __ATOMIC_RELAXED);
        break;
    case KINDS:
        break;
    }
}

// The expected value of a word after all threads have written.
static uint64_t expected(size_t number, size_t word)
{
    size_t stride = words / opt.threads;

    if (number % KINDS == ADD)
        return word == word_of(0) ? opt.threads : 0;
    if (word % stride != 0 || word / stride >= opt.threads)
        return 0;
    return value_of(number, word / stride);
}

static void check_page(size_t number)
{
    volatile uint64_t *p = page_at(number);
    size_t kind = number % KINDS;

    for (size_t i = 0; i < words; i++) {
        uint64_t want = expected(number, i);

        if (p[i] == want)
            continue;
        if (want == 0)
            stale[kind]++;
        else if (kind == ADD && p[i] < want)
            lost[kind] += want - p[i];
        else
            lost[kind]++;
    }
    written[kind] += opt.threads;
}

static void fresh_region(void)
{
    size_t size = (opt.pages + 1) * page;

    if (region != NULL && munmap(region, size) != 0)
        die(program, "munmap: %s", strerror(errno));
    region = mmap(NULL, size, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (region == MAP_FAILED)
        die(program, "cannot map %zu bytes: %s", size, strerror(errno));
}

// Toggles the protection of the page in the middle until the round is over. Thread 0
// ends it by clearing `disturbing` and waits until all disturbers are in `idle`, so that
// none accesses an unmapped region.
static atomic_bool disturbing;
static _Atomic size_t idle;

static void *disturb(void *unused)
{
    (void)unused;
    while (!atomic_load(&stop)) {
        if (!atomic_load(&disturbing)) {
            sched_yield();
            continue;
        }
        atomic_fetch_sub(&idle, 1);
        while (atomic_load(&disturbing)) {
            uint64_t *p = region + disturbed * words;

            if (mprotect(p, page, PROT_READ) != 0 ||
                mprotect(p, page, PROT_READ | PROT_WRITE) != 0)
                die(program, "mprotect: %s", strerror(errno));
        }
        atomic_fetch_add(&idle, 1);
    }
    return NULL;
}

static void begin_round(size_t number)
{
    round_number = number;
    fresh_region();
    atomic_store(&disturbing, true);
}

static void end_round(void)
{
    atomic_store(&disturbing, false);
    while (atomic_load(&idle) != opt.disturbers)
        sched_yield();
    for (size_t i = 0; i < opt.pages; i++)
        check_page(i);
}

static void *run(void *argument)
{
    size_t self = (size_t)(uintptr_t)argument;

    for (size_t r = 0; r < opt.rounds; r++) {
        if (self == 0)
            begin_round(r);
        pass_gate();
        for (size_t i = 0; i < opt.pages; i++)
            race_on_page(i, self);
        pass_gate();
        if (self == 0)
            end_round();
    }
    return NULL;
}

// ---------------------------------------------------------------- main

static void usage(FILE *to)
{
    fprintf(to,
            "Usage: %s [options]\n"
            "-t <num>\t Number of threads that write (8)\n"
            "-n <num>\t Number of pages in a round (1000)\n"
            "-r <num>\t Number of rounds (10)\n"
            "-d <num>\t Number of threads that disturb the mapping (0)\n"
            "--help\t\t Print this\n"
            "Exits with 1 if a write was lost.\n"
            "Example: %s -t 4 -n 5000 -d 1\n",
            program, program);
}

__attribute__((noreturn)) static void bad_usage(void)
{
    usage(stderr);
    exit(1);
}

static size_t number_option(int letter, const char *text, size_t low, size_t high)
{
    uint64_t n;

    if (!parse_number(text, false, low, high, &n)) {
        fprintf(stderr, "%s: -%c: not a number from %zu to %zu: %s\n", program,
                letter, low, high, text);
        bad_usage();
    }
    return n;
}

static void read_options(int argc, char **argv)
{
    static const struct option long_options[] = {
        {"help", no_argument, NULL, HELP},
        {NULL, 0, NULL, 0},
    };
    int c;

    while ((c = getopt_long(argc, argv, "t:n:r:d:", long_options, NULL)) != -1) {
        switch (c) {
        // One word for each thread, in a page of 4 KiB.
        case 't': opt.threads = number_option(c, optarg, 1, 512); break;
        case 'n': opt.pages = number_option(c, optarg, 1, INT_MAX); break;
        case 'r': opt.rounds = number_option(c, optarg, 1, 1 << 20); break;
        case 'd': opt.disturbers = number_option(c, optarg, 0, 512); break;
        case HELP: usage(stdout); exit(0);
        default: bad_usage();
        }
    }
    if (optind < argc) {
        fprintf(stderr, "%s: unexpected argument: %s\n", program, argv[optind]);
        bad_usage();
    }
}

static pthread_t start_thread(void *(*body)(void *), size_t number)
{
    pthread_t thread;
    int err = pthread_create(&thread, NULL, body, (void *)(uintptr_t)number);

    if (err != 0)
        die(program, "cannot start thread %zu: %s", number, strerror(err));
    return thread;
}

static bool report(void)
{
    uint64_t all = 0, all_lost = 0, all_stale = 0;
    struct rusage usage = {0};

    for (size_t k = 0; k < KINDS; k++) {
        printf("%-12s %" PRIu64 " first writes, %" PRIu64 " lost, %" PRIu64
               " words not zero\n",
               kind_name[k], written[k], lost[k], stale[k]);
        all += written[k];
        all_lost += lost[k];
        all_stale += stale[k];
    }
    printf("%-12s %" PRIu64 " first writes, %" PRIu64 " lost, %" PRIu64
           " words not zero\n",
           "total", all, all_lost, all_stale);
    // More faults than pages show that threads met in a page.
    getrusage(RUSAGE_SELF, &usage);
    printf("%-12s %ld for %zu pages\n", "faults", usage.ru_minflt,
           opt.rounds * opt.pages);
    return all_lost == 0 && all_stale == 0;
}

int main(int argc, char **argv)
{
    pthread_t thread[512], disturber[512];

    program = argv[0];
    read_options(argc, argv);
    page = page_size();
    words = page / sizeof(uint64_t);
    disturbed = opt.pages / 2;
    atomic_init(&idle, opt.disturbers);

    for (size_t i = 0; i < opt.disturbers; i++)
        disturber[i] = start_thread(disturb, i);
    for (size_t i = 0; i < opt.threads; i++)
        thread[i] = start_thread(run, i);
    for (size_t i = 0; i < opt.threads; i++)
        pthread_join(thread[i], NULL);
    atomic_store(&stop, true);
    for (size_t i = 0; i < opt.disturbers; i++)
        pthread_join(disturber[i], NULL);
    return report() ? 0 : 1;
}
