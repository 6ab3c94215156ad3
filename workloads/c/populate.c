// SPDX-License-Identifier: MIT OR Apache-2.0
//
// populate: what the first access to memory costs, and how many faults it takes.
//
// A line for each way gives its name and the nanoseconds for each page of 4 KiB; with a
// clock that counts instructions (./x run --icount, ./x compare with one CPU) these
// are instructions. A second line gives the faults for each 2 MiB.
//
// add          an atomic add of 0, as OpenJDK pre-touches its heap
// store        a store
// exclusive    a load exclusive and a store exclusive; on x86-64 the same as add
// populate     MADV_POPULATE_WRITE
// read         a load
// file_cold    a load from a mapped file whose page is not there yet
// file_warm    the same of pages that are there
//
// On AArch64 an atomic instruction on absent memory faults as a load first, and QEMU does
// so with one CPU only: with several it reports a store.
//
// With -x the accesses are made by text that may only be executed.

#define _GNU_SOURCE
#include "common.h"

#include <fcntl.h>
#include <getopt.h>
#include <sys/mman.h>
#include <sys/resource.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { PAGE = 4096, HUGE = 2 << 20 };

static size_t bytes = 128ull << 20;
static const char *program;

static void must(bool done, const char *what)
{
    if (!done)
        die(program, "%s: %s", what, strerror(errno));
}

// The accesses are alone in their pages, which -x protects.
#define ALONE __attribute__((section("touches"), aligned(64), noinline))

#if defined(__aarch64__)
#define ADD(at) __asm__ volatile(".arch_extension lse\nldadd %w0, w9, [%1]" : : "r"(0), "r"(at) : "w9", "memory")
#define EXCLUSIVE(at)                                                                                       \
    __asm__ volatile("1: ldxr w9, [%0]\nstxr w10, w9, [%0]\ncbnz w10, 1b" : : "r"(at) : "w9", "w10", "memory")
#else
#define ADD(at) __asm__ volatile("lock addl $0, (%0)" : : "r"(at) : "memory")
#define EXCLUSIVE(at) ADD(at)
#endif

__attribute__((section("touches"), aligned(4096), noinline)) static void add(char *from, char *to)
{
    for (; from < to; from += PAGE)
        ADD(from);
}

ALONE static void exclusive(char *from, char *to)
{
    for (; from < to; from += PAGE)
        EXCLUSIVE(from);
}

ALONE static void store(char *from, char *to)
{
    for (; from < to; from += PAGE)
        *(volatile char *)from = 1;
}

ALONE static void load(char *from, char *to)
{
    for (; from < to; from += PAGE)
        (void)*(volatile char *)from;
}

static void populate(char *from, char *to)
{
    must(madvise(from, (size_t)(to - from), MADV_POPULATE_WRITE) == 0, "MADV_POPULATE_WRITE");
}

extern char __start_touches[];

// The last of the section: nothing else shares its last page.
__attribute__((section("touches"), aligned(4096), used)) static void touches_end(void)
{
}

static void execute_only(void)
{
    uintptr_t from = (uintptr_t)__start_touches & -(uintptr_t)PAGE;
    size_t length = (uintptr_t)touches_end - from;

    must(mprotect((void *)from, length, PROT_EXEC) == 0, "mprotect");
}

static long faults(void)
{
    struct rusage used;

    must(getrusage(RUSAGE_SELF, &used) == 0, "getrusage");
    return used.ru_minflt + used.ru_majflt;
}

static void measure(const char *name, void (*touch)(char *, char *), int file)
{
    int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
    char *at = mmap(NULL, bytes + HUGE, PROT_READ | PROT_WRITE, flags, file, 0);
    char *from = (char *)(((uintptr_t)at + HUGE - 1) & -(uintptr_t)HUGE);
    uint64_t begun, taken;
    long before;

    must(at != MAP_FAILED, "mmap");
    if (file >= 0)
        from = at;
    // Its own page, stack and counters are there.
    touch(from, from);
    before = faults();
    begun = now_ns();
    touch(from, from + bytes);
    taken = now_ns() - begun;
    before = faults() - before;
    printf("%s %.0f ns/page\n", name, (double)taken / (double)(bytes / PAGE));
    printf("# %s: %.1f faults for 2 MiB\n", name, (double)before / (double)(bytes / HUGE));
    must(munmap(at, bytes + HUGE) == 0, "munmap");
}

static const struct {
    const char *name;
    void (*touch)(char *, char *);
    bool file;
} ways[] = {
    {"add", add, false},   {"store", store, false},    {"exclusive", exclusive, false}, {"populate", populate, false},
    {"read", load, false}, {"file_cold", load, true}, {"file_warm", load, true},
};

static void usage(FILE *to)
{
    fprintf(to,
            "usage: populate [-x] [MIB] [WAY...]\n"
            "The first access to MIB of memory (128), by each way: add, store, exclusive, populate, read,\n"
            "file_cold, file_warm (all). -x: by text that may only be executed.\n"
            "example: ./x compare --arch aarch64 --linux 6.12 -- populate 128 add\n");
}

static bool is_wanted(const char *name, int count, char **names)
{
    bool wanted = count == 0;

    for (int i = 0; i < count; i++)
        wanted = wanted || strcmp(names[i], name) == 0;
    return wanted;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"help", no_argument, NULL, 'h'}, {0}};
    int option, file;

    program = "populate";
    while ((option = getopt_long(argc, argv, "xh", options, NULL)) != -1) {
        if (option == 'h') {
            usage(stdout);
            return 0;
        }
        if (option != 'x') {
            usage(stderr);
            return 2;
        }
        execute_only();
    }
    if (optind < argc) {
        char *end;
        unsigned long size = strtoul(argv[optind++], &end, 10);

        if (*end || size == 0 || size > 1ul << 20 || size % 2)
            die(program, "MIB has to be an even number from 2 to 1048576");
        bytes = size << 20;
    }
    for (int i = optind; i < argc; i++) {
        size_t way = 0;

        while (way < sizeof ways / sizeof *ways && strcmp(ways[way].name, argv[i]) != 0)
            way++;
        if (way == sizeof ways / sizeof *ways)
            die(program, "there is no way '%s': --help names them", argv[i]);
    }
    file = memfd_create("populate", MFD_CLOEXEC);
    must(file >= 0 && ftruncate(file, (off_t)(bytes + HUGE)) == 0, "memfd_create");
    for (size_t way = 0; way < sizeof ways / sizeof *ways; way++) {
        if (is_wanted(ways[way].name, argc - optind, argv + optind))
            measure(ways[way].name, ways[way].touch, ways[way].file ? file : -1);
    }
    return 0;
}
