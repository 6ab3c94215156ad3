// SPDX-License-Identifier: MIT OR Apache-2.0
//
// page_fault1: how many first touches of anonymous memory a second?
//
// In the manner of the test case of that name in will-it-scale, its threaded
// form: every thread maps a private anonymous region, writes to each of its
// pages once, unmaps it, and starts again. Same -s and -t, same lines of
// output, so that scripts written for it work with this program.
//
// With -1 all threads fault inside one mapping, each in its own part of it,
// and give the pages back by MADV_DONTNEED, which leaves the mapping whole.
// This is the case that a lock or a reference count in the mapping makes slow.
//
// The figure is the last line: pages touched a second by all threads together.

#define _GNU_SOURCE
#include "common.h"

#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>

enum { ONE_MAPPING = '1', HELP = 256 };

static struct {
    size_t tasks;
    size_t samples;
    size_t bytes; // each thread's region, or its part of the one mapping
    bool one_mapping;
    bool small_pages;
} opt = {.tasks = 1, .samples = 5, .bytes = 128u << 20};

// One thread's state, on lines that no other thread writes. The main thread
// reads `touched` once a second.
typedef struct {
    _Alignas(LINE_PAIR) _Atomic uint64_t touched;
    uint64_t previous; // main thread only: `touched` at the last sample
    pthread_t thread;
    char *part; // with -1: where this thread's part begins
} Worker;

static const char *program;
static Worker worker[MAX_THREADS];
static atomic_bool stop;
static pthread_barrier_t start;

static void usage(FILE *to)
{
    fprintf(to,
            "Usage: %s [options]\n\n"
            "\t-s iterations\tNumber of seconds to measure, after one to warm up (5)\n"
            "\t-t tasks\tNumber of threads to run (1)\n"
            "\t-b bytes\tSize of each thread's region; K, M, G allowed (128M)\n"
            "\t-1\t\tAll threads in one mapping, each in its own part of it\n"
            "\t-N\t\tNo huge pages for this process, where the system has them\n"
            "\t--help\t\tPrint this\n"
            "Example: %s -t 4 -s 10 -b 16M -1\n",
            program, program);
}

__attribute__((noreturn)) static void bad_usage(void)
{
    usage(stderr);
    exit(1);
}

static size_t number_option(int letter, const char *text, bool suffix,
                            size_t high)
{
    uint64_t n;

    if (!parse_number(text, suffix, 1, high, &n)) {
        fprintf(stderr, "%s: -%c: not a number from 1 to %zu: %s\n", program,
                letter, high, text);
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

    while ((c = getopt_long(argc, argv, "s:t:b:1N", long_options, NULL)) != -1) {
        switch (c) {
        case 's': opt.samples = number_option(c, optarg, false, INT_MAX); break;
        case 't': opt.tasks = number_option(c, optarg, false, MAX_THREADS); break;
        case 'b': opt.bytes = number_option(c, optarg, true, (size_t)1 << 46); break;
        case ONE_MAPPING: opt.one_mapping = true; break;
        case 'N': opt.small_pages = true; break;
        case HELP: usage(stdout); exit(0);
        default: bad_usage();
        }
    }
    if (optind < argc) {
        fprintf(stderr, "%s: unexpected argument: %s\n", program, argv[optind]);
        bad_usage();
    }
    opt.bytes = round_up(opt.bytes, page_size());
}

static char *map(size_t size)
{
    char *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        die(program, "cannot map %zu bytes: %s", size, strerror(errno));
    return p;
}

// Writes to each page of the region until told to stop. Only the owner writes
// its counter, so a load and a store do, without a locked instruction.
static void touch_pages(Worker *self, char *region, size_t page)
{
    uint64_t touched = atomic_load_explicit(&self->touched, memory_order_relaxed);

    for (size_t i = 0; i < opt.bytes; i += page) {
        if (atomic_load_explicit(&stop, memory_order_relaxed))
            return;
        ((volatile char *)region)[i] = 1;
        atomic_store_explicit(&self->touched, ++touched, memory_order_relaxed);
    }
}

static void *run(void *argument)
{
    Worker *self = argument;
    size_t page = page_size();

    pthread_barrier_wait(&start);
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        char *region = opt.one_mapping ? self->part : map(opt.bytes);

        touch_pages(self, region, page);
        if (opt.one_mapping) {
            if (madvise(region, opt.bytes, MADV_DONTNEED) != 0)
                die(program, "madvise: %s", strerror(errno));
        } else if (munmap(region, opt.bytes) != 0) {
            die(program, "munmap: %s", strerror(errno));
        }
    }
    return NULL;
}

static void start_threads(void)
{
    char *shared = opt.one_mapping ? map(opt.tasks * opt.bytes) : NULL;

    pthread_barrier_init(&start, NULL, (unsigned)opt.tasks + 1);
    for (size_t i = 0; i < opt.tasks; i++) {
        int err;

        if (opt.one_mapping)
            worker[i].part = shared + i * opt.bytes;
        err = pthread_create(&worker[i].thread, NULL, run, &worker[i]);
        if (err != 0)
            die(program, "cannot start thread %zu: %s", i, strerror(err));
    }
}

// Prints what each thread touched since the last sample, and returns the sum.
// A sleep of a second may last longer, so the counts are brought to a second.
static uint64_t sample(uint64_t *since)
{
    struct timespec left = {.tv_sec = 1};
    uint64_t min = UINT64_MAX, max = 0, total = 0;
    uint64_t now;
    double seconds;

    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
    now = now_ns();
    seconds = (double)(now - *since) / (double)NANOS_PER_SECOND;
    *since = now;
    for (size_t i = 0; i < opt.tasks; i++) {
        Worker *w = &worker[i];
        uint64_t touched = atomic_load_explicit(&w->touched, memory_order_relaxed);
        uint64_t rate = (uint64_t)((double)(touched - w->previous) / seconds);

        w->previous = touched;
        min = rate < min ? rate : min;
        max = rate > max ? rate : max;
        total += rate;
    }
    printf("min:%" PRIu64 " max:%" PRIu64 " total:%" PRIu64 "\n", min, max, total);
    fflush(stdout);
    return total;
}

int main(int argc, char **argv)
{
    uint64_t since, total = 0;

    program = argv[0];
    read_options(argc, argv);
    // Where this is not known, there are no huge pages to keep away either.
    if (opt.small_pages)
        prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    start_threads();

    printf("testcase:Anonymous memory page fault\n");
    printf("warmup\n");
    pthread_barrier_wait(&start);
    since = now_ns();
    sample(&since);
    printf("measurement\n");
    for (size_t i = 0; i < opt.samples; i++)
        total += sample(&since);
    printf("average:%" PRIu64 "\n", total / opt.samples);

    atomic_store_explicit(&stop, true, memory_order_relaxed);
    for (size_t i = 0; i < opt.tasks; i++)
        pthread_join(worker[i].thread, NULL);
    return 0;
}
