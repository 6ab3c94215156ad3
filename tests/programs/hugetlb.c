// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The pool of huge pages, as programs use it: MAP_HUGETLB and MFD_HUGETLB, reservations, what operations refuse, and the counts.
// Linux 6.12 prints the same (hugetlb.linux-6.12).

#include "common.h"
#include "usage.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/vfs.h>
#include <sys/wait.h>

#ifndef MFD_HUGETLB
#define MFD_HUGETLB 4U
#endif

enum { PAGE_BYTES = 4096, HUGE = 2 << 20, POOL = 6 };

static sigjmp_buf back;

static void caught(int signal)
{
    siglongjmp(back, signal);
}

static const char *text(int error)
{
    switch (error) {
    case 0: return "0";
    case EINVAL: return "EINVAL";
    case ENOMEM: return "ENOMEM";
    case ENODEV: return "ENODEV";
    case EFAULT: return "EFAULT";
    case ENOSPC: return "ENOSPC";
    default: return "another";
    }
}

static void result(const char *what, long returned)
{
    printf("%s: %s\n", what, returned == -1 ? text(errno) : "0");
}

static void set_pool(int pages)
{
    FILE *file = fopen("/proc/sys/vm/nr_hugepages", "w");

    fprintf(file, "%d\n", pages);
    fclose(file);
}

static long count(const char *field)
{
    FILE *file = fopen("/proc/meminfo", "r");
    char line[256];
    long value = -1;

    while (value < 0 && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, field, strlen(field)) == 0)
            value = atol(line + strlen(field) + 1);
    }
    fclose(file);
    return value;
}

static void say(const char *when)
{
    printf("%s: total %ld, free %ld, reserved %ld\n", when, count("HugePages_Total:"), count("HugePages_Free:"),
           count("HugePages_Rsvd:"));
}

// The record of the mapping at an address, in /proc/self/smaps, without what differs from run to run.
static void show(const char *what, volatile void *at)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[256];
    int is_its = 0;

    printf("%s:", what);
    while (fgets(line, sizeof line, file) != NULL) {
        unsigned long start, end;

        if (sscanf(line, "%lx-%lx ", &start, &end) == 2) {
            is_its = start <= (uintptr_t)at && (uintptr_t)at < end;
            if (is_its)
                printf(" %ld MiB%s", (end - start) >> 20, strstr(line, "anon_hugepage") ? " anon_hugepage" : "");
        } else if (is_its) {
            static const char *const fields[] = {"Rss:", "KernelPageSize:", "Shared_Hugetlb:", "Private_Hugetlb:", "AnonHugePages:"};

            for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
                if (strncmp(line, fields[i], strlen(fields[i])) == 0)
                    printf(" %s %ld", fields[i], atol(line + strlen(fields[i])));
            }
            if (strncmp(line, "VmFlags:", 8) == 0)
                printf(" %s%s", strstr(line, " ht") ? "ht " : "", strstr(line, " de") ? "de" : "");
        }
    }
    printf("\n");
    fclose(file);
}

static volatile char *map(int file, size_t bytes, int flags)
{
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
}

static int touch(volatile char *at)
{
    int signal = sigsetjmp(back, 1);

    if (signal == 0)
        *at = 1;
    return signal;
}

static const int PRIVATE = MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB;
static const int SHARED = MAP_SHARED | MAP_ANONYMOUS | MAP_HUGETLB;

static void private(void)
{
    volatile char *at = map(-1, 2 * HUGE - 1, PRIVATE);
    long before;

    say("mapped");
    printf("aligned: %d\n", (uintptr_t)at % HUGE == 0);
    before = faults();
    for (int page = 0; page < HUGE / PAGE_BYTES; page++)
        at[page * PAGE_BYTES] = (char)page;
    printf("faults: %ld\n", faults() - before);
    say("written");
    show("private", at);
    result("munmap of a page", munmap((char *)at, PAGE_BYTES));
    result("munmap of the end of one", munmap((char *)at + PAGE_BYTES, HUGE - PAGE_BYTES));
    result("mprotect of a page", mprotect((char *)at, PAGE_BYTES, PROT_READ));
    result("mprotect of one", mprotect((char *)at, HUGE, PROT_READ));
    result("mprotect back", mprotect((char *)at, HUGE, PROT_READ | PROT_WRITE));
    result("DONTNEED of a page", madvise((char *)at, PAGE_BYTES, MADV_DONTNEED));
    printf("content: %d\n", at[PAGE_BYTES]);
    result("DONTNEED from a page on", madvise((char *)at + PAGE_BYTES, HUGE, MADV_DONTNEED));
    result("FREE", madvise((char *)at, HUGE, MADV_FREE));
    result("COLD", madvise((char *)at, HUGE, MADV_COLD));
    result("HUGEPAGE", madvise((char *)at, HUGE, MADV_HUGEPAGE));
    result("WIPEONFORK", madvise((char *)at, HUGE, MADV_WIPEONFORK));
    result("DONTFORK of a page", madvise((char *)at, PAGE_BYTES, MADV_DONTFORK));
    result("mlock", mlock((char *)at, HUGE));
    result("mremap to more", mremap((char *)at, 2 * HUGE, 3 * HUGE, MREMAP_MAYMOVE) == MAP_FAILED ? -1 : 0);
    at = mremap((char *)at, 2 * HUGE, HUGE, 0);
    say("made smaller");
    printf("content: %d\n", at[7 * PAGE_BYTES]);
    result("DONTNEED", madvise((char *)at, HUGE, MADV_DONTNEED));
    say("discarded");
    printf("content: %d\n", at[7 * PAGE_BYTES]);
    result("munmap", munmap((char *)at, HUGE));
    say("unmapped");
}

static void limits(void)
{
    volatile char *all = map(-1, POOL * HUGE, PRIVATE), *more;

    say("all reserved");
    result("one more", map(-1, HUGE, PRIVATE) == MAP_FAILED ? -1 : 0);
    more = map(-1, HUGE, PRIVATE | MAP_NORESERVE);
    result("one without a reservation", more == MAP_FAILED ? -1 : 0);
    printf("signal: %d\n", touch(more) == SIGBUS);
    for (int page = 0; page < POOL; page++)
        printf("%d", touch(all + (size_t)page * HUGE));
    printf("\n");
    say("all used");
    set_pool(0);
    say("none wanted");
    munmap((char *)all, POOL * HUGE);
    say("unmapped");
    set_pool(POOL);
    say("wanted again");
    printf("signal: %d\n", touch(more));
    munmap((char *)more, HUGE);
    result("gigabyte pages", map(-1, HUGE, PRIVATE | (29 << MAP_HUGE_SHIFT)) == MAP_FAILED ? -1 : 0);
    result("fixed, not aligned",
           mmap((void *)0x10001000, HUGE, PROT_READ, PRIVATE | MAP_FIXED, -1, 0) == MAP_FAILED ? -1 : 0);
}

static void shared(void)
{
    volatile char *at = map(-1, 2 * HUGE, SHARED);

    say("shared mapped");
    at[0] = 1;
    say("shared written");
    show("shared", at);
    fflush(stdout);
    if (fork() == 0) {
        at[1] = 2;
        at[HUGE] = 3;
        show("in a child", at);
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
    printf("of the child: %d %d\n", at[1], at[HUGE]);
    say("shared with a child");
    munmap((char *)at, HUGE);
    say("a half unmapped");
    munmap((char *)at + HUGE, HUGE);
    say("shared unmapped");
}

static void forked(void)
{
    volatile char *at = map(-1, HUGE, PRIVATE);

    at[0] = 1;
    at[PAGE_BYTES] = 2;
    fflush(stdout);
    if (fork() == 0) {
        printf("the child reads: %d %d\n", at[0], at[PAGE_BYTES]);
        at[0] = 3;
        printf("the child writes: %d %d\n", at[0], at[PAGE_BYTES]);
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
    printf("the parent: %d %d\n", at[0], at[PAGE_BYTES]);
    at[0] = 4;
    printf("and writes: %d %d\n", at[0], at[PAGE_BYTES]);
    munmap((char *)at, HUGE);
    say("after the fork");
}

static void files(void)
{
    int file = memfd_create("pages", MFD_HUGETLB);
    volatile char *one, *other;
    struct statfs about;
    char byte = 9;

    result("memfd", file);
    fstatfs(file, &about);
    printf("kind %lx, %ld bytes\n", (unsigned long)about.f_type, (long)about.f_bsize);
    result("truncated to a page", ftruncate(file, PAGE_BYTES));
    result("truncated", ftruncate(file, 2 * HUGE));
    result("write", write(file, &byte, 1));
    one = map(file, 2 * HUGE, MAP_SHARED);
    say("a file mapped");
    one[0] = 5;
    one[HUGE + 1] = 6;
    other = map(file, 2 * HUGE, MAP_SHARED);
    printf("elsewhere: %d %d\n", other[0], other[HUGE + 1]);
    printf("read: %zd", pread(file, &byte, 1, 0));
    printf(" %d\n", byte);
    say("a file written");
    result("hole of a page", fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE_BYTES));
    printf("content: %d %d\n", one[0], one[HUGE + 1]);
    result("hole", fallocate(file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, HUGE));
    say("with a hole");
    printf("content: %d\n", other[0]);
    result("truncated again", ftruncate(file, HUGE));
    printf("signal: %d\n", touch(one + HUGE) == SIGBUS);
    munmap((char *)one, 2 * HUGE);
    munmap((char *)other, 2 * HUGE);
    say("a file unmapped");
    result("allocated", fallocate(file, 0, 0, 2 * HUGE));
    say("a file allocated");
    one = map(file, HUGE, MAP_PRIVATE);
    one[0] = 7;
    other = map(file, HUGE, MAP_SHARED);
    printf("private: %d, of the file: %d\n", one[0], other[0]);
    munmap((char *)one, HUGE);
    munmap((char *)other, HUGE);
    close(file);
    say("a file closed");
    result("memfd of gigabyte pages", memfd_create("pages", MFD_HUGETLB | 29U << 26));
}

int main(void)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    signal(SIGBUS, caught);
    result("without a pool", map(-1, HUGE, PRIVATE) == MAP_FAILED ? -1 : 0);
    set_pool(POOL);
    say("at first");
    private();
    limits();
    shared();
    forked();
    files();
    set_pool(0);
    say("at last");
    return 0;
}
