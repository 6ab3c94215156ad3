// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The growth of stacks, and its limits.

#ifndef WORKLOADS_GUARD_STACKS_H
#define WORKLOADS_GUARD_STACKS_H

#include "handlers.h"

#include <sys/resource.h>
#include <sys/syscall.h>

// Uses about `depth` KiB of stack; the sum shows whether it kept its contents.
__attribute__((noinline)) static unsigned recurse(unsigned depth)
{
    volatile unsigned char frame[KIB];

    for (size_t i = 0; i < sizeof frame; i += 64)
        frame[i] = (unsigned char)depth;
    if (depth > 1 && recurse(depth - 1) != depth - 1)
        return 0;
    for (size_t i = 0; i < sizeof frame; i += 64)
        if (frame[i] != (unsigned char)depth)
            return 0;
    return depth;
}

// The next three checks reach deeper one after the other, into unused stack.

static void check_below_stack_pointer(void)
{
    char *p = (char *)__builtin_frame_address(0) - MIB;

    EXPECT_ALLOWED(WRITE, p);
    EXPECT_ALLOWED(READ, p + MIB / 2);
}

static void check_kernel_grows_stack(void)
{
    char *p = (char *)__builtin_frame_address(0) - MIB * 3 / 2;
    struct timespec *time = (struct timespec *)((uintptr_t)p & ~(uintptr_t)15);

    EXPECT(syscall(SYS_clock_gettime, CLOCK_MONOTONIC, time) == 0, "%s",
           strerror(errno));
}

static void check_deep_recursion(void)
{
    EXPECT(recurse(3 * 1024) == 3 * 1024, "the stack lost its contents");
}

static void check_stack_limit(void)
{
    struct rlimit limit;
    char *p = __builtin_frame_address(0);

    if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur > 64 * MIB)
        SKIP("the stack has no limit within 64 MiB");
    EXPECT_FAULT(SEGV_MAPERR, WRITE, p - limit.rlim_cur - MIB / 2);
}

static char *overflow_stack;
static const size_t overflow_size = 256 * 1024;

static void *overflow(void *unused)
{
    (void)unused;
    use_alternate_stack(alternate);
    catcher.faults = 0;
    catcher.armed = true;
    if (sigsetjmp(catcher.back, 1) == 0)
        recurse(1 << 20);
    use_alternate_stack(NULL);
    return catcher.address;
}

static void check_thread_stack_overflow(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    void *at;

    alternate = map_pages(alternate_size / page, RW);
    overflow_stack = map_pages(1 + overflow_size / page, RW);
    protect(overflow_stack, 1, PROT_NONE);
    catch_segv(SA_ONSTACK);
    pthread_attr_init(&attributes);
    pthread_attr_setstack(&attributes, overflow_stack + page, overflow_size);
    EXPECT(pthread_create(&thread, &attributes, overflow, NULL) == 0,
           "cannot start a thread");
    pthread_join(thread, &at);
    catch_segv(0);
    EXPECT((char *)at >= overflow_stack && (char *)at < overflow_stack + page,
           "si_addr %p is not in the guard page at %p", at, (void *)overflow_stack);
    unmap(alternate, alternate_size / page);
    unmap(overflow_stack, 1 + overflow_size / page);
}

static void check_grows_down(void)
{
    const size_t span = 4 * MIB / page; // pages; the guard gap is 1 MiB
    char *low = map_pages(span, PROT_NONE);
    char *top = low + (span - 4) * page;

    unmap(low, span);
    EXPECT(mmap(top, 4 * page, RW,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_GROWSDOWN, -1,
                0) == top, "%s", strerror(errno));
    EXPECT_ALLOWED(WRITE, top);
    EXPECT_ALLOWED(WRITE, top - page);
    EXPECT_ALLOWED(WRITE, top - 20 * page);
    EXPECT_ALLOWED(READ, top - 3 * page);
    // With a mapping below, growth stops 1 MiB (256 pages of 4 KiB) above it.
    EXPECT(map_over(low, 1, RW) == low, "%s", strerror(errno));
    EXPECT_ALLOWED(WRITE, low + 258 * page);
    EXPECT_FAULT(SEGV_MAPERR, WRITE, low + 200 * page);
    unmap(low, span);
}

#endif
