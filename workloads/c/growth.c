// SPDX-License-Identifier: MIT OR Apache-2.0
//
// growth: which calls take longer if a process has more memory?
//
// Every call is timed twice, in a process that has almost no memory and in the
// same process with 256 MiB in memory and 10,000 mappings. A line for each gives
// its name and the nanoseconds of one call, before and after. With a clock that
// counts instructions (./x bench growth) these are instructions.

#define _GNU_SOURCE
#include "common.h"
#include "vfork.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum {
    PAGE = 4096,
    ROUNDS = 7,
    ROUND_NS = 200000,
};

static size_t bytes = 256ull << 20;
static size_t mappings = 10000;

static volatile char *page; // one of three that are mapped and touched
static char buffer[1 << 16];
static int pipes[2];
static int memory; // a memfd of two pages, of which one is mapped
static char *shared;
static const char itself[] = "/proc/self/exe";

typedef struct {
    const char *name;
    void (*call)(int argument);
    int argument;
    const char *path; // opened before, and read by `call`
} Call;

static void must(bool done, const char *what)
{
    if (!done)
        die("growth", "%s: %s", what, strerror(errno));
}

static char *map(size_t length, int flags)
{
    char *at = mmap(NULL, length, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);

    must(at != MAP_FAILED, "mmap");
    return at;
}

static void call_getpid(int n) { (void)n; syscall(SYS_getpid); }
static void call_yield(int n) { (void)n; sched_yield(); }

static void call_getrusage(int who)
{
    struct rusage usage;

    must(getrusage(who, &usage) == 0, "getrusage");
}

static void call_times(int n)
{
    struct tms all;

    (void)n;
    times(&all);
}

static void call_sysinfo(int n)
{
    struct sysinfo all;

    (void)n;
    must(sysinfo(&all) == 0, "sysinfo");
}

static void call_rlimit(int resource)
{
    struct rlimit limit;

    must(getrlimit(resource, &limit) == 0, "getrlimit");
    must(setrlimit(resource, &limit) == 0, "setrlimit");
}

// The first bytes of a file, and the whole file.
static void call_read_some(int file) { must(pread(file, buffer, 64, 0) > 0, "pread"); }

static void call_read(int file)
{
    off_t at = 0;
    ssize_t done;

    while ((done = pread(file, buffer, sizeof buffer, at)) > 0)
        at += done;
    must(done == 0, "pread");
}

// A file of the process's memory: the part about the page.
static void call_read_pagemap(int file)
{
    must(pread(file, buffer, 8, (off_t)((uintptr_t)page / PAGE * 8)) == 8, "pagemap");
}

static void call_read_memory(int file)
{
    must(pread(file, buffer, 64, (off_t)(uintptr_t)page) == 64, "mem");
}

static void call_reset_peak(int file) { must(write(file, "5", 1) == 1, "clear_refs"); }
static void call_soft_dirty(int file) { must(write(file, "4", 1) == 1, "clear_refs"); }
static void call_accessed(int file) { must(write(file, "1", 1) == 1, "clear_refs"); }

static void call_open(int n)
{
    int file = open("/proc/self/statm", O_RDONLY);

    (void)n;
    must(file >= 0, "open");
    close(file);
}

static void call_brk(int n)
{
    char *end = (char *)syscall(SYS_brk, 0);

    (void)n;
    syscall(SYS_brk, end + PAGE);
    syscall(SYS_brk, end);
}

static void call_mmap(int touch)
{
    volatile char *at = map(PAGE, 0);

    if (touch)
        *at = 1;
    munmap((char *)at, PAGE);
}

// Maps another page over the page.
static void call_mmap_over(int n)
{
    (void)n;
    mmap((char *)page, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    *page = 1;
}

static void call_mmap_file(int flags)
{
    volatile char *at = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, flags, memory, 0);

    must(at != MAP_FAILED, "mmap");
    *at = 1;
    munmap((char *)at, PAGE);
}

static void call_truncate(int n)
{
    (void)n;
    must(ftruncate(memory, PAGE) == 0, "ftruncate");
    must(ftruncate(memory, 2 * PAGE) == 0, "ftruncate");
    shared[PAGE] = 1;
}

static void call_futex(int n)
{
    (void)n;
    must(syscall(SYS_futex, shared, 1 /* FUTEX_WAKE */, 1, NULL, NULL, 0) == 0, "futex");
}

static void call_membarrier(int command) { must(syscall(SYS_membarrier, command, 0, 0) == 0, "membarrier"); }

static void call_mprotect(int n)
{
    (void)n;
    must(mprotect((char *)page, PAGE, PROT_READ) == 0, "mprotect");
    must(mprotect((char *)page, PAGE, PROT_READ | PROT_WRITE) == 0, "mprotect");
}

static void call_madvise(int advice)
{
    must(madvise((char *)page, PAGE, advice) == 0, "madvise");
    *page = 1;
}

static void call_mincore(int n)
{
    unsigned char there;

    (void)n;
    must(mincore((char *)page, PAGE, &there) == 0, "mincore");
}

static void call_msync(int n)
{
    (void)n;
    must(msync((char *)page, PAGE, MS_SYNC) == 0, "msync");
}

static void call_mremap(int n)
{
    char *at = map(PAGE, MAP_POPULATE), *to;

    (void)n;
    to = mremap(at, PAGE, 2 * PAGE, MREMAP_MAYMOVE);
    must(to != MAP_FAILED, "mremap");
    munmap(to, 2 * PAGE);
}

static void call_mlock(int n)
{
    (void)n;
    must(mlock((char *)page, PAGE) == 0, "mlock");
    must(munlock((char *)page, PAGE) == 0, "munlock");
}

static void call_lock_future(int n)
{
    (void)n;
    must(mlockall(MCL_FUTURE) == 0, "mlockall");
    must(munlockall() == 0, "munlockall");
}

static void call_lock_all(int n)
{
    (void)n;
    must(mlockall(MCL_CURRENT) == 0, "mlockall");
    must(munlockall() == 0, "munlockall");
}

static void call_process_vm(int n)
{
    struct iovec to = {buffer, 64}, from = {(char *)page, 64};

    (void)n;
    must(process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 64, "process_vm_readv");
}

static void call_pipe(int n)
{
    (void)n;
    must(write(pipes[1], buffer, 64) == 64 && read(pipes[0], buffer, 64) == 64, "pipe");
}

static void ignore(int number) { (void)number; }
static void call_signal(int number) { must(kill(getpid(), number) == 0, "kill"); }

static void *nothing(void *argument) { return argument; }

static void call_thread(int n)
{
    pthread_t thread;

    (void)n;
    must(pthread_create(&thread, NULL, nothing, NULL) == 0, "pthread_create");
    pthread_join(thread, NULL);
}

static void call_vfork(int n)
{
    pid_t child = vfork();

    (void)n;
    if (child == 0)
        _exit(0);
    must(child > 0 && waitpid(child, NULL, 0) == child, "vfork");
}

// Runs this program with nothing to do.
static void call_vfork_exec(int n)
{
    pid_t child = vfork();

    (void)n;
    if (child == 0) {
        execl(itself, itself, "-e", (char *)NULL);
        _exit(1);
    }
    must(child > 0 && waitpid(child, NULL, 0) == child, "vfork");
}

static void call_fork_exec(int n)
{
    pid_t child = fork();

    (void)n;
    if (child == 0) {
        execl(itself, itself, "-e", (char *)NULL);
        _exit(1);
    }
    must(child > 0 && waitpid(child, NULL, 0) == child, "fork");
}

static void call_fork(int n)
{
    pid_t child = fork();

    (void)n;
    if (child == 0)
        _exit(0);
    must(child > 0 && waitpid(child, NULL, 0) == child, "fork");
}

static const Call calls[] = {
    {"getpid", call_getpid, 0, NULL},
    {"sched_yield", call_yield, 0, NULL},
    {"getrusage", call_getrusage, RUSAGE_SELF, NULL},
    {"getrusage_thread", call_getrusage, RUSAGE_THREAD, NULL},
    {"times", call_times, 0, NULL},
    {"sysinfo", call_sysinfo, 0, NULL},
    {"setrlimit_as", call_rlimit, RLIMIT_AS, NULL},
    {"setrlimit_data", call_rlimit, RLIMIT_DATA, NULL},
    {"setrlimit_memlock", call_rlimit, RLIMIT_MEMLOCK, NULL},
    {"open_close", call_open, 0, NULL},
    {"pipe", call_pipe, 0, NULL},
    {"signal", call_signal, SIGUSR1, NULL},
    {"futex_shared", call_futex, 0, NULL},
    {"membarrier", call_membarrier, 1 << 3, NULL}, // private, expedited
    {"statm", call_read, 0, "/proc/self/statm"},
    {"stat", call_read, 0, "/proc/self/stat"},
    {"status", call_read, 0, "/proc/self/status"},
    {"limits", call_read, 0, "/proc/self/limits"},
    {"cmdline", call_read, 0, "/proc/self/cmdline"},
    {"meminfo", call_read, 0, "/proc/meminfo"},
    {"maps_first", call_read_some, 0, "/proc/self/maps"},
    {"smaps_first", call_read_some, 0, "/proc/self/smaps"},
    {"pagemap_page", call_read_pagemap, 0, "/proc/self/pagemap"},
    {"mem_page", call_read_memory, 0, "/proc/self/mem"},
    {"clear_peak", call_reset_peak, 0, "/proc/self/clear_refs"},
    {"brk", call_brk, 0, NULL},
    {"mmap", call_mmap, false, NULL},
    {"mmap_touched", call_mmap, true, NULL},
    {"mmap_over", call_mmap_over, 0, NULL},
    {"mmap_shared_file", call_mmap_file, MAP_SHARED, NULL},
    {"mmap_private_file", call_mmap_file, MAP_PRIVATE, NULL},
    {"ftruncate", call_truncate, 0, NULL},
    {"mprotect", call_mprotect, 0, NULL},
    {"madvise_dontneed_fault", call_madvise, MADV_DONTNEED, NULL},
    {"madvise_free", call_madvise, MADV_FREE, NULL},
    {"madvise_sequential", call_madvise, MADV_SEQUENTIAL, NULL},
    {"mincore", call_mincore, 0, NULL},
    {"msync", call_msync, 0, NULL},
    {"mremap", call_mremap, 0, NULL},
    {"mlock", call_mlock, 0, NULL},
    {"mlockall_future", call_lock_future, 0, NULL},
    {"process_vm_readv", call_process_vm, 0, NULL},
    {"thread", call_thread, 0, NULL},
    {"vfork", call_vfork, 0, NULL},
    {"vfork_exec", call_vfork_exec, 0, NULL},
    {"fork", call_fork, 0, NULL},
    {"fork_exec", call_fork_exec, 0, NULL},
    {"maps", call_read, 0, "/proc/self/maps"},
    {"smaps", call_read, 0, "/proc/self/smaps"},
    {"smaps_rollup", call_read, 0, "/proc/self/smaps_rollup"},
    {"clear_soft_dirty", call_soft_dirty, 0, "/proc/self/clear_refs"},
    {"clear_accessed", call_accessed, 0, "/proc/self/clear_refs"},
    {"mlockall", call_lock_all, 0, NULL},
};

enum { CALLS = sizeof calls / sizeof *calls };

static int opened[CALLS];

static int compare(const void *one, const void *other)
{
    double a = *(const double *)one, b = *(const double *)other;

    return (a > b) - (a < b);
}

static uint64_t time_of(const Call *call, int argument, uint64_t times)
{
    uint64_t start = now_ns();

    for (uint64_t i = 0; i < times; i++)
        call->call(argument);
    return now_ns() - start;
}

// The median of a few rounds, each of which repeats the call for a while.
static double measure(size_t number)
{
    const Call *call = &calls[number];
    int argument = call->path != NULL ? opened[number] : call->argument;
    double rounds[ROUNDS];
    uint64_t once, times;

    time_of(call, argument, 2);
    once = time_of(call, argument, 1);
    times = once < ROUND_NS ? ROUND_NS / (once + 1) + 1 : 1;
    for (size_t i = 0; i < ROUNDS; i++)
        rounds[i] = (double)time_of(call, argument, times) / (double)times;
    qsort(rounds, ROUNDS, sizeof *rounds, compare);
    return rounds[ROUNDS / 2];
}

// Touches `bytes`, and makes every second one of the first pages read-only.
static void grow(void)
{
    char *all = map(bytes, MAP_NORESERVE);

    for (size_t at = 0; at < bytes; at += PAGE)
        all[at] = 1;
    for (size_t i = 0; i < mappings / 2; i++)
        must(mprotect(all + (2 * i + 1) * PAGE, PAGE, PROT_READ) == 0, "mprotect");
}

__attribute__((noreturn)) static void help(void)
{
    printf("Usage: growth [-b bytes] [-m mappings] [-h]\n\n"
           "Times calls with little memory, and with much: a line for each says its\n"
           "name and the nanoseconds of one call, before and after.\n\n"
           "\t-b bytes\tMemory that is touched between (256M)\n"
           "\t-m mappings\tMappings that it is divided into (10000)\n"
           "\t-h, --help\tThis text\n");
    exit(0);
}

static void options(int argc, char **argv)
{
    uint64_t number;

    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";

        if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0)
            help();
        if (strcmp(argv[i], "-e") == 0)
            exit(0);
        if (strcmp(argv[i], "-b") == 0 && parse_number(value, true, PAGE, 1ull << 40, &number))
            bytes = number;
        else if (strcmp(argv[i], "-m") == 0 && parse_number(value, true, 0, 60000, &number))
            mappings = number;
        else
            die("growth", "bad option '%s': growth --help shows all", argv[i]);
        i++;
    }
    if (bytes / PAGE < mappings + 1)
        die("growth", "%zu mappings need more than %zu bytes", mappings, bytes);
}

int main(int argc, char **argv)
{
    static double before[CALLS];
    char *pages;

    options(argc, argv);
    signal(SIGUSR1, ignore);
    must(pipe(pipes) == 0, "pipe");
    must(syscall(SYS_membarrier, 1 << 4, 0, 0) == 0, "membarrier");
    memory = memfd_create("growth", 0);
    must(memory >= 0 && ftruncate(memory, 2 * PAGE) == 0, "memfd_create");
    shared = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
    must(shared != MAP_FAILED, "mmap");
    pages = map(3 * PAGE, MAP_POPULATE);
    page = pages + PAGE;
    *page = 1;
    for (size_t i = 0; i < CALLS; i++) {
        bool writes = calls[i].path != NULL && strstr(calls[i].path, "clear_refs") != NULL;

        if (calls[i].path != NULL) {
            opened[i] = open(calls[i].path, writes ? O_WRONLY : O_RDONLY);
            must(opened[i] >= 0, calls[i].path);
        }
    }
    for (size_t i = 0; i < CALLS; i++)
        before[i] = measure(i);
    grow();
    for (size_t i = 0; i < CALLS; i++) {
        printf("%s %.0f %.0f\n", calls[i].name, before[i], measure(i));
        fflush(stdout);
    }
    return 0;
}
