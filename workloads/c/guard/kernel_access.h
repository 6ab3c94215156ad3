// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Pointers passed to the kernel: a bad one causes EFAULT and no signal, and a valid
// one may point to an untouched page.

#ifndef WORKLOADS_GUARD_KERNEL_ACCESS_H
#define WORKLOADS_GUARD_KERNEL_ACCESS_H

#include "pages.h"

#include <fcntl.h>
#include <sys/syscall.h>

static long clock_to(void *at)
{
    return syscall(SYS_clock_gettime, CLOCK_MONOTONIC, at) == -1 ? errno : 0;
}

static long sleep_from(const void *at)
{
    return syscall(SYS_nanosleep, at, NULL) == -1 ? errno : 0;
}

static void check_kernel_writes(void)
{
    char *p = map_pages(4, RW);

    protect(p, 1, PROT_NONE);
    protect(p + page, 1, PROT_READ);
    unmap(p + 3 * page, 1);
    EXPECT(clock_to(p) == EFAULT, "PROT_NONE: no EFAULT");
    EXPECT(clock_to(p + page) == EFAULT, "read-only, untouched: no EFAULT");
    EXPECT(p[page] == 0, "a read-only page was written");
    EXPECT(clock_to(p + page) == EFAULT, "read-only, zero page: no EFAULT");
    EXPECT(clock_to(p + 3 * page) == EFAULT, "unmapped: no EFAULT");
    EXPECT(clock_to(p + 3 * page - 8) == EFAULT, "half unmapped: no EFAULT");
    EXPECT(clock_to((void *)16) == EFAULT, "address 16: no EFAULT");
    EXPECT(clock_to((void *)0xffff800000000000) == EFAULT, "kernel half: no EFAULT");
    EXPECT(clock_to((void *)(UINTPTR_MAX - 7)) == EFAULT, "last bytes: no EFAULT");
    EXPECT(clock_to(p + 2 * page) == 0, "a good pointer was refused");
    unmap(p, 4);
}

static void check_kernel_reads(void)
{
    char *p = map_pages(2, RW);

    protect(p, 1, PROT_NONE);
    EXPECT(sleep_from(p) == EFAULT, "PROT_NONE: no EFAULT");
    EXPECT(sleep_from(p + page) == 0, "a fresh page was refused");
    unmap(p + page, 1);
    EXPECT(sleep_from(p + page) == EFAULT, "unmapped: no EFAULT");
    EXPECT(sleep_from((void *)0xffff800000000000) == EFAULT, "kernel half: no EFAULT");
    unmap(p, 1);
}

static void check_write_from_bad(void)
{
    int ends[2];
    bool piped = pipe(ends) == 0;
    int to = piped ? ends[1] : STDOUT_FILENO;
    char *p = map_pages(2, PROT_NONE);

    EXPECT(write(to, p, 16) == -1 && errno == EFAULT, "PROT_NONE: no EFAULT");
    unmap(p + page, 1);
    EXPECT(write(to, p + page, 16) == -1 && errno == EFAULT, "unmapped: no EFAULT");
    if (piped) {
        close(ends[0]);
        close(ends[1]);
    }
    unmap(p, 1);
}

static void check_read_into_bad(void)
{
    int fd = open("/proc/self/maps", O_RDONLY);
    char *p = map_pages(3, RW);

    EXPECT(fd >= 0, "cannot open /proc/self/maps: %s", strerror(errno));
    protect(p, 1, PROT_READ);
    protect(p + page, 1, PROT_NONE);
    EXPECT(read(fd, p, 16) == -1 && errno == EFAULT, "read-only: no EFAULT");
    EXPECT(read(fd, p + page, 16) == -1 && errno == EFAULT, "PROT_NONE: no EFAULT");
    EXPECT(all_zero(p, page), "a read-only page was written");
    EXPECT(read(fd, p + 2 * page, 16) == 16, "a fresh page was refused");
    EXPECT(p[2 * page + 8] != 0, "nothing was read");
    close(fd);
    unmap(p, 3);
}

static void check_kernel_first_touch(void)
{
    struct timespec *time = (struct timespec *)map_pages(2, RW);
    volatile char *p = (volatile char *)time;

    // To an untouched page, and to one that is mapped to the zero page.
    EXPECT(clock_to(time) == 0, "%s", strerror(errno));
    EXPECT(time->tv_sec != 0 || time->tv_nsec != 0, "nothing was written");
    EXPECT(p[page] == 0, "a fresh page is not zero");
    EXPECT(clock_to((char *)time + page) == 0, "%s", strerror(errno));
    EXPECT(!all_zero(p + page, 16), "nothing was written");
    EXPECT(all_zero(p + page + 16, page - 16), "the rest is not zero");
    unmap((char *)time, 2);
}

#endif
