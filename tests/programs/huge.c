// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What huge pages a program gets, and keeps, as it sees it itself. Linux 6.12 prints the same (huge.linux-6.12).

#include "common.h"
#include "usage.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

enum { PAGE_BYTES = 4096, HUGE = 2 << 20 };

static void say(const char *what, volatile char *at)
{
    printf("%s: AnonHugePages %ld kB, THPeligible %ld\n", what, field_of((char *)at, "AnonHugePages:"),
           field_of((char *)at, "THPeligible:"));
}

static void result(const char *what, int returned)
{
    // The libraries' texts differ.
    const char *error = errno == EINVAL ? "EINVAL" : errno == ENOMEM ? "ENOMEM" : strerror(errno);

    printf("%s: %s\n", what, returned == 0 ? "0" : error);
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

static void faulted(void)
{
    volatile char *at = map_aligned(HUGE);
    long before = faults();

    fill(at);
    printf("writing all of it: %ld fault\n", faults() - before);
    say("written", at);
    munmap((void *)at, HUGE);
    at = map_aligned(HUGE);
    before = faults();
    for (int page = 0; page < HUGE / PAGE_BYTES; page++)
        (void)at[page * PAGE_BYTES];
    printf("reading all of it: %ld fault\n", faults() - before);
    say("read", at);
    munmap((void *)at, HUGE);
    at = map_aligned(HUGE - PAGE_BYTES);
    at[0] = 1;
    say("a page too small", at);
    munmap((void *)at, HUGE - PAGE_BYTES);
}

static void split_and_collapsed(void)
{
    volatile char *at = map_aligned(2 * HUGE), *to;

    fill(at);
    result("mprotect of a page", mprotect((char *)at + HUGE - PAGE_BYTES, PAGE_BYTES, PROT_READ));
    say("then", at);
    printf("content: %d\n", is_full(at, 0));
    result("collapse of two mappings", madvise((char *)at, HUGE, MADV_COLLAPSE));
    result("mprotect back", mprotect((char *)at + HUGE - PAGE_BYTES, PAGE_BYTES, PROT_READ | PROT_WRITE));
    result("collapse", madvise((char *)at, HUGE, MADV_COLLAPSE));
    say("then", at);
    printf("content: %d\n", is_full(at, 0));
    result("collapse again", madvise((char *)at, HUGE, MADV_COLLAPSE));
    result("collapse of what was never used", madvise((char *)at + HUGE, HUGE, MADV_COLLAPSE));
    result("collapse of a part", madvise((char *)at + PAGE_BYTES, PAGE_BYTES, MADV_COLLAPSE));
    result("DONTNEED of a page", madvise((char *)at, PAGE_BYTES, MADV_DONTNEED));
    say("then", at);
    printf("content: %d, %d\n", at[0], is_full(at, 1));
    result("collapse", madvise((char *)at, HUGE, MADV_COLLAPSE));
    say("then", at);
    printf("content: %d, %d\n", at[0], is_full(at, 1));
    at[0] = 1;
    to = map_aligned(HUGE);
    printf("mremap: %d\n", mremap((char *)at, HUGE, HUGE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    say("moved", to);
    printf("content: %d\n", is_full(to, 0));
    result("mprotect of all", mprotect((char *)to, HUGE, PROT_READ));
    say("then", to);
    munmap((char *)to, HUGE);
    result("collapse of nothing", madvise((char *)to, HUGE, MADV_COLLAPSE));
}

static void forked(void)
{
    volatile char *at = map_aligned(HUGE);
    pid_t child;

    fill(at);
    fflush(stdout);
    child = fork();
    if (child == 0) {
        say("in a child", at);
        printf("content: %d\n", is_full(at, 0));
        at[PAGE_BYTES] = 99;
        printf("written: %d, %d, %d\n", at[0], at[PAGE_BYTES], is_full(at, 2));
        fflush(stdout);
        _exit(0);
    }
    waitpid(child, NULL, 0);
    say("after it", at);
    printf("content: %d\n", is_full(at, 0));
    fill(at);
    munmap((char *)at, HUGE);
}

static void advised(void)
{
    volatile char *at = map_aligned(HUGE);

    result("NOHUGEPAGE", madvise((char *)at, HUGE, MADV_NOHUGEPAGE));
    fill(at);
    say("then", at);
    result("collapse", madvise((char *)at, HUGE, MADV_COLLAPSE));
    result("HUGEPAGE", madvise((char *)at, HUGE, MADV_HUGEPAGE));
    say("then", at);
    munmap((char *)at, HUGE);
    printf("THP_DISABLE: %d", prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
    printf(", %d", prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0));
    printf(", %d", prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0));
    printf(", %d\n", prctl(PR_SET_THP_DISABLE, 1, 1, 0, 0));
    at = map_aligned(HUGE);
    fill(at);
    say("disabled", at);
    result("collapse", madvise((char *)at, HUGE, MADV_COLLAPSE));
    printf("enabled: %d\n", prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0));
    result("collapse", madvise((char *)at, HUGE, MADV_COLLAPSE));
    say("then", at);
    munmap((char *)at, HUGE);
}

static void setting(const char *value)
{
    static const char path[] = "/sys/kernel/mm/transparent_hugepage/enabled";
    char text[64] = "";
    int file = open(path, O_RDWR);
    ssize_t written = write(file, value, strlen(value));

    printf("%s: %zd", value, written);
    if (pread(file, text, sizeof text - 1, 0) > 0)
        printf(", %s", text);
    close(file);
}

static void set(void)
{
    volatile char *at, *wanted;

    setting("sometimes");
    setting("madvise");
    at = map_aligned(HUGE);
    wanted = map_aligned(HUGE);
    madvise((char *)wanted, HUGE, MADV_HUGEPAGE);
    fill(at);
    fill(wanted);
    say("not asked for", at);
    say("asked for", wanted);
    setting("never");
    say("asked for", wanted);
    result("collapse", madvise((char *)at, HUGE, MADV_COLLAPSE));
    say("then", at);
    setting("always");
}

int main(void)
{
    setting("always");
    faulted();
    split_and_collapsed();
    forked();
    advised();
    set();
    return 0;
}
