// SPDX-License-Identifier: MIT OR Apache-2.0
//
// ebizzy: threads that copy a chunk of memory, look a record up in the copy,
// and free the copy again, as a search application does for each request.
//
// An independent implementation, with the options and the output lines of
// ebizzy 0.3, so that scripts for that program work with this one.
// The options are explained in usage() and in README.md.
//
// The figure is records/s; a record is one allocate-copy-search-free cycle.
//
// About random numbers: in ebizzy 0.3 the generator always yields 0. So
// -R, published as a random size, always copies one single record, always
// from chunk 0, and looks for key 0. One record of the published `-mTRp`
// therefore maps one page, touches it, and unmaps it. Published figures are
// of that form, so it is kept ("compat"); --true-random uses a generator that
// works.

#define _GNU_SOURCE
#include "common.h"

#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

typedef size_t Record;

enum { TRUE_RANDOM = 256, HELP };

static struct {
    bool always_mmap;
    bool never_mmap;
    bool use_permissions;
    bool use_holes;
    bool random_size;
    bool true_random;
    bool touch_pages;
    bool own_memcpy;
    bool linear;
    unsigned verbose;
    size_t chunks;
    size_t chunk_size;
    size_t seconds;
    size_t threads;
} opt = {
    .chunks = 10,
    .chunk_size = 64 * 1024 * sizeof(Record),
    .seconds = 10,
};

// One thread's state, in cache lines that no other thread writes.
typedef struct {
    _Alignas(LINE_PAIR) pthread_t thread;
    uint64_t random_state;
    uint64_t records;
    void *slot; // with -M: the place of this thread's copies
} Worker;

static const char *program;
static Record **chunk;
static Worker *worker;
static atomic_bool stop;

// Passed once when every thread is ready, and once more to start them all:
// the clock is read in between.
static pthread_barrier_t start;

// ---------------------------------------------------------------- options

static void usage(FILE *to)
{
    fprintf(to,
            "Usage: %s [options]\n"
            "-T\t\t Only touch each page of the copy: no copying, no search\n"
            "-l\t\t Copy with a plain byte loop, not the library's memcpy\n"
            "-m\t\t Always mmap and munmap, instead of malloc and free\n"
            "-M\t\t Never mmap: take memory from the program break, reuse it\n"
            "-n <num>\t Number of memory chunks to allocate (10)\n"
            "-p\t\t Prevent mmap coalescing by permissions (every other chunk read-only)\n"
            "-P\t\t Prevent mmap coalescing by holes (a page's gap after each chunk)\n"
            "-R\t\t Randomize size of memory to copy and search;\n"
            "\t\t as in ebizzy 0.3 this always yields the smallest size\n"
            "-s <size>\t Size of memory chunks, in bytes; K, M, G allowed (512K)\n"
            "-S <seconds>\t Number of seconds to run (10)\n"
            "-t <num>\t Number of threads (2 * number of CPUs)\n"
            "-v[v[v]]\t Be verbose (more v's for more)\n"
            "-z\t\t Linear search instead of binary search\n"
            "--true-random\t Random chunks, keys and sizes that are random; implies -R\n"
            "--help\t\t Print this\n"
            "Example: %s -mTRp -S 5 -t 4\n",
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
        {"true-random", no_argument, NULL, TRUE_RANDOM},
        {"help", no_argument, NULL, HELP},
        {NULL, 0, NULL, 0},
    };
    int c;

    while ((c = getopt_long(argc, argv, "TlmMn:pPRs:S:t:vz", long_options,
                            NULL)) != -1) {
        switch (c) {
        case 'T': opt.touch_pages = true; break;
        case 'l': opt.own_memcpy = true; break;
        case 'm': opt.always_mmap = true; break;
        case 'M': opt.never_mmap = true; break;
        case 'n': opt.chunks = number_option(c, optarg, false, INT_MAX); break;
        case 'p': opt.use_permissions = true; break;
        case 'P': opt.use_holes = true; break;
        case 'R': opt.random_size = true; break;
        case 's': opt.chunk_size = number_option(c, optarg, true, SSIZE_MAX); break;
        case 'S': opt.seconds = number_option(c, optarg, false, INT_MAX); break;
        case 't': opt.threads = number_option(c, optarg, false, MAX_THREADS); break;
        case 'v': opt.verbose++; break;
        case 'z': opt.linear = true; break;
        case TRUE_RANDOM: opt.true_random = opt.random_size = true; break;
        case HELP: usage(stdout); exit(0);
        default: bad_usage();
        }
    }
    if (optind < argc) {
        fprintf(stderr, "%s: unexpected argument: %s\n", program, argv[optind]);
        bad_usage();
    }
    if (opt.always_mmap && opt.never_mmap) {
        fprintf(stderr, "%s: -m and -M exclude each other\n", program);
        bad_usage();
    }
    if (opt.chunk_size < sizeof(Record)) {
        fprintf(stderr, "%s: -s: a chunk of %zu bytes cannot hold a record of %zu\n",
                program, opt.chunk_size, sizeof(Record));
        bad_usage();
    }
    if (opt.threads == 0) {
        long cpus = sysconf(_SC_NPROCESSORS_ONLN);
        opt.threads = cpus > 0 ? 2 * (size_t)cpus : 2;
    }
}

static void print_options(void)
{
    printf("ebizzy 0.3 (the implementation of Faultless)\n"
           "always_mmap %d\n"
           "never_mmap %d\n"
           "chunks %zu\n"
           "prevent coalescing using permissions %d\n"
           "prevent coalescing using holes %d\n"
           "random_size %d\n"
           "true_random %d\n"
           "chunk_size %zu\n"
           "seconds %zu\n"
           "threads %zu\n"
           "verbose %u\n"
           "linear %d\n"
           "touch_pages %d\n"
           "page size %zu\n",
           opt.always_mmap, opt.never_mmap, opt.chunks, opt.use_permissions,
           opt.use_holes, opt.random_size, opt.true_random, opt.chunk_size,
           opt.seconds, opt.threads, opt.verbose, opt.linear, opt.touch_pages,
           page_size());
}

// ----------------------------------------------------------------- memory

// Extends the program break and returns the start of the new part, or
// NULL. musl's sbrk refuses to move the break, and glibc's malloc must know
// of every move: hence the two ways. With musl, malloc must not be called after
// the break has moved, because it would move it back; with -M this
// program does not call it.
static void *grow_break(size_t size)
{
#ifdef __GLIBC__
    void *old = sbrk((intptr_t)size);

    return old == (void *)-1 ? NULL : old;
#else
    uintptr_t old = (uintptr_t)syscall(SYS_brk, 0);

    if ((uintptr_t)syscall(SYS_brk, old + size) < old + size)
        return NULL;
    return (void *)old;
#endif
}

static void *allocate(size_t size)
{
    void *p;

    if (opt.always_mmap) {
        p = mmap(NULL, size, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p == MAP_FAILED)
            p = NULL;
    } else if (opt.never_mmap) {
        p = grow_break(round_up(size, LINE_PAIR));
    } else {
        p = malloc(size);
    }
    if (p == NULL)
        die(program,
            "cannot allocate %zu bytes (%zu chunks of %zu; try a smaller -n or -s)",
            size, opt.chunks, opt.chunk_size);
    return p;
}

static void release(void *p, size_t size)
{
    if (opt.always_mmap) {
        if (munmap(p, size) != 0)
            die(program, "munmap: %s", strerror(errno));
    } else if (!opt.never_mmap) {
        free(p);
    }
}

// With -M a thread gets the memory back that it freed last, as from a
// heap: each thread has one slot of the break for it.
static Record *allocate_copy(const Worker *self, size_t size)
{
    return opt.never_mmap ? self->slot : allocate(size);
}

// ----------------------------------------------------------- the data set

static void make_chunks(void)
{
    char **hole = NULL;

    chunk = allocate(opt.chunks * sizeof *chunk);
    if (opt.use_holes)
        hole = allocate(opt.chunks * sizeof *hole);
    for (size_t i = 0; i < opt.chunks; i++) {
        chunk[i] = allocate(opt.chunk_size);
        if (opt.use_holes)
            hole[i] = allocate(page_size());
    }
    for (size_t i = 0; opt.use_holes && i < opt.chunks; i++)
        release(hole[i], page_size());
    if (opt.use_holes)
        release(hole, opt.chunks * sizeof *hole);
    if (opt.verbose)
        printf("Allocated memory\n");
}

// Makes the whole pages inside a chunk read-only. The pages at its ends may
// also belong to a neighbour, unless the chunk is from mmap; then these
// are all its pages.
static void write_protect(Record *p)
{
    uintptr_t page = page_size();
    uintptr_t first = round_up((uintptr_t)p, page);
    uintptr_t end = (uintptr_t)p + opt.chunk_size;

    end = opt.always_mmap ? round_up(end, page) : end / page * page;
    if (first < end && mprotect((void *)first, end - first, PROT_READ) != 0)
        die(program, "mprotect: %s", strerror(errno));
}

// Every chunk contains the same sorted records: 0, 1, 2, ...
static void fill_chunks(void)
{
    for (size_t i = 0; i < opt.chunks; i++) {
        for (size_t j = 0; j < opt.chunk_size / sizeof(Record); j++)
            chunk[i][j] = j;
        if (opt.use_permissions && i % 2 == 0)
            write_protect(chunk[i]);
    }
    if (opt.verbose)
        printf("Wrote memory\n");
}

// -------------------------------------------------------------- the work

// A number in 0..max. Always 0 in compat form: see the top of the file.
static size_t random_below(Worker *self, size_t max)
{
    uint64_t x = self->random_state;

    if (!opt.true_random)
        return 0;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    self->random_state = x;
    return x % max;
}

static void copy_bytes(void *to, const void *from, size_t size)
{
    char *t = to;
    const char *f = from;

    for (size_t i = 0; i < size; i++) {
        t[i] = f[i];
        // Otherwise the compiler would make it a call of memcpy.
        __asm__ volatile("" ::: "memory");
    }
}

static const Record *search_linear(const Record *p, size_t count, Record key)
{
    for (size_t i = 0; i < count; i++)
        if (p[i] == key)
            return &p[i];
    return NULL;
}

static const Record *search_binary(const Record *p, size_t count, Record key)
{
    size_t low = 0, high = count;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (p[middle] == key)
            return &p[middle];
        if (p[middle] < key)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static void touch(Record *copy, size_t size)
{
    volatile char *p = (volatile char *)copy;
    size_t step = 4096; // also correct, if wasteful, with larger pages

    for (size_t i = 0; i < size; i += step)
        p[i] = 1;
}

static void copy_and_search(Worker *self, const Record *from, Record *copy,
                            size_t count)
{
    Record key;
    const Record *found;

    if (opt.own_memcpy)
        copy_bytes(copy, from, count * sizeof(Record));
    else
        memcpy(copy, from, count * sizeof(Record));
    key = random_below(self, count);
    if (opt.verbose > 2)
        printf("[%td] Search key %zu, copy size %zu\n", self - worker, key,
               count * sizeof(Record));
    found = opt.linear ? search_linear(copy, count, key)
                       : search_binary(copy, count, key);
    if (found == NULL)
        die(program, "memory corrupted: record %zu is not in its copy", key);
}

static void one_record(Worker *self)
{
    size_t count = opt.chunk_size / sizeof(Record);
    const Record *from = chunk[random_below(self, opt.chunks)];
    Record *copy;

    if (opt.random_size)
        count = random_below(self, count) + 1;
    copy = allocate_copy(self, count * sizeof(Record));
    if (opt.touch_pages)
        touch(copy, count * sizeof(Record));
    else
        copy_and_search(self, from, copy, count);
    release(copy, count * sizeof(Record));
}

static void *run(void *argument)
{
    Worker *self = argument;
    uint64_t records = 0;

    if (opt.verbose > 1)
        printf("[%td] Thread started\n", self - worker);
    pthread_barrier_wait(&start);
    pthread_barrier_wait(&start);
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        one_record(self);
        records++;
    }
    self->records = records;
    if (opt.verbose > 1)
        printf("[%td] Thread finished, processed %" PRIu64 " records\n",
               self - worker, records);
    return NULL;
}

static void start_threads(void)
{
    if (opt.verbose)
        printf("Threads starting\n");
    worker = allocate((opt.threads + 1) * sizeof *worker);
    worker = (Worker *)round_up((uintptr_t)worker, LINE_PAIR);
    pthread_barrier_init(&start, NULL, (unsigned)opt.threads + 1);
    for (size_t i = 0; i < opt.threads; i++) {
        worker[i] = (Worker){.random_state = 0x9e3779b97f4a7c15u * (i + 1)};
        if (opt.never_mmap)
            worker[i].slot = allocate(opt.chunk_size);
    }
    for (size_t i = 0; i < opt.threads; i++) {
        int err = pthread_create(&worker[i].thread, NULL, run, &worker[i]);

        if (err != 0)
            die(program, "cannot start thread %zu: %s", i, strerror(err));
    }
}

static double seconds_between(struct timeval a, struct timeval b)
{
    return (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_usec - a.tv_usec) / 1e6;
}

static void measure(void)
{
    struct rusage usage_start = {0}, usage_end = {0};
    uint64_t time_start, records = 0;
    struct timespec left = {.tv_sec = (time_t)opt.seconds};
    double real;

    pthread_barrier_wait(&start);
    getrusage(RUSAGE_SELF, &usage_start);
    time_start = now_ns();
    pthread_barrier_wait(&start);
    while (nanosleep(&left, &left) != 0 && errno == EINTR)
        ;
    atomic_store_explicit(&stop, true, memory_order_relaxed);
    real = (double)(now_ns() - time_start) / (double)NANOS_PER_SECOND;
    getrusage(RUSAGE_SELF, &usage_end);

    for (size_t i = 0; i < opt.threads; i++) {
        pthread_join(worker[i].thread, NULL);
        records += worker[i].records;
    }
    if (opt.verbose)
        printf("Threads finished\n");
    printf("%" PRIu64 " records/s\n", (uint64_t)((double)records / real));
    printf("real %5.2f s\n", real);
    printf("user %5.2f s\n",
           seconds_between(usage_start.ru_utime, usage_end.ru_utime));
    printf("sys  %5.2f s\n",
           seconds_between(usage_start.ru_stime, usage_end.ru_stime));
}

int main(int argc, char **argv)
{
    program = argv[0];
    read_options(argc, argv);
    if (opt.verbose)
        print_options();
    make_chunks();
    fill_chunks();
    start_threads();
    measure();
    return 0;
}
