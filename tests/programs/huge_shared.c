// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Huge pages of shared memory, as a program sees them itself: which mappings have them, and what each operation leaves of them.
// Linux 6.12 prints the same (huge_shared.linux-6.12).

#include "common.h"
#include "usage.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { PAGE_BYTES = 4096, HUGE = 2 << 20 };

static void set(const char *value)
{
    int file = open("/sys/kernel/mm/transparent_hugepage/shmem_enabled", O_WRONLY);

    printf("shmem_enabled %s: %s\n", value, write(file, value, strlen(value)) > 0 ? "set" : "refused");
    close(file);
}

static void say(const char *what, volatile char *at)
{
    printf("%s: Rss %ld, ShmemPmdMapped %ld, THPeligible %ld\n", what, field_of(at, "Rss:"),
           field_of(at, "ShmemPmdMapped:"), field_of(at, "THPeligible:"));
}

static void fill(volatile char *at)
{
    for (int page = 0; page < HUGE / PAGE_BYTES; page++)
        at[page * PAGE_BYTES] = (char)(page + 1);
}

static int is_full(volatile char *at, int from)
{
    for (int page = from; page < HUGE / PAGE_BYTES; page++) {
        if (at[page * PAGE_BYTES] != (char)(page + 1))
            return 0;
    }
    return 1;
}

static volatile char *map(int file, size_t bytes, int flags)
{
    return mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, file, 0);
}

static void anonymous(void)
{
    volatile char *at = map(-1, 2 * HUGE, MAP_SHARED | MAP_ANONYMOUS);
    long before;

    printf("aligned: %d\n", (uintptr_t)at % HUGE == 0);
    before = faults();
    fill(at);
    printf("writing all of it: %ld fault\n", faults() - before);
    say("written", at);
    before = faults();
    for (int page = 0; page < HUGE / PAGE_BYTES; page++)
        (void)at[HUGE + page * PAGE_BYTES];
    fill(at + HUGE);
    printf("reading and writing all of it: %ld fault\n", faults() - before);
    say("read and written", at);
    fflush(stdout);
    if (fork() == 0) {
        printf("child: %d\n", is_full(at, 0));
        say("child", at);
        at[0] = 42;
        fflush(stdout);
        _exit(0);
    }
    wait(NULL);
    printf("after the child: %d\n", at[0]);
    printf("mprotect of all: %d\n", mprotect((char *)at, 2 * HUGE, PROT_READ));
    say("protected", at);
    printf("mprotect back: %d\n", mprotect((char *)at, 2 * HUGE, PROT_READ | PROT_WRITE));
    at[1] = 1;
    say("written again", at);
    printf("DONTNEED: %d\n", madvise((char *)at, HUGE, MADV_DONTNEED));
    say("discarded", at);
    printf("content: %d\n", is_full(at, 1));
    say("read again", at);
    printf("munmap of a page: %d\n", munmap((char *)at + HUGE, PAGE_BYTES));
    say("the first", at);
    printf("content: %d\n", is_full(at + HUGE, 1));
    munmap((char *)at, 2 * HUGE);
}

static void file(void)
{
    int memory = memfd_create("memory", 0);
    volatile char *one, *other, *private;

    ftruncate(memory, 2 * HUGE);
    one = map(memory, 2 * HUGE, MAP_SHARED);
    other = map(memory, 2 * HUGE, MAP_SHARED);
    private = map(memory, 2 * HUGE, MAP_PRIVATE);
    fill(one);
    fill(one + HUGE);
    printf("seen elsewhere: %d %d\n", is_full(other, 0), is_full(private, 0));
    private[3 * PAGE_BYTES] = 99;
    // Here the other pages stay mapped; Linux takes them all out.
    printf("copied: ShmemPmdMapped %ld\n", field_of(private, "ShmemPmdMapped:"));
    printf("own: %d, of the file: %d\n", private[3 * PAGE_BYTES], one[3 * PAGE_BYTES]);
    printf("hole: %d\n", fallocate(memory, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE_BYTES, PAGE_BYTES));
    printf("content: %d %d %d\n", one[PAGE_BYTES], other[PAGE_BYTES], is_full(other, 2));
    printf("truncated: %d\n", ftruncate(memory, HUGE));
    printf("content: %d\n", is_full(one, 2));
    munmap((char *)one, 2 * HUGE);
    munmap((char *)other, 2 * HUGE);
    munmap((char *)private, 2 * HUGE);
    close(memory);
}

static void advised(void)
{
    volatile char *at = map(-1, 2 * HUGE, MAP_SHARED | MAP_ANONYMOUS);

    at[0] = 1;
    say("not advised", at);
    printf("HUGEPAGE: %d\n", madvise((char *)at, 2 * HUGE, MADV_HUGEPAGE));
    at[HUGE] = 1;
    say("advised", at);
    munmap((char *)at, 2 * HUGE);
}

int main(void)
{
    set("sometimes");
    set("always");
    anonymous();
    file();
    set("advise");
    advised();
    set("never");
    advised();
    return 0;
}
