// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Changes of mappings by one thread: which accesses are allowed before and after, the
// content of the pages, and the error codes.

#ifndef WORKLOADS_GUARD_MAPPINGS_H
#define WORKLOADS_GUARD_MAPPINGS_H

#include "pages.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

static void check_none_and_back(void)
{
    char *p = map_pages(2, RW);

    memset(p, 7, page); // the second page stays untouched
    protect(p, 2, PROT_NONE);
    EXPECT_FAULT(SEGV_ACCERR, READ, p);
    EXPECT_FAULT(SEGV_ACCERR, READ, p + page);
    protect(p, 2, RW);
    EXPECT(p[0] == 7 && p[page - 1] == 7, "contents lost");
    EXPECT(all_zero(p + page, page), "an untouched page is not zero");
    EXPECT_ALLOWED(WRITE, p);
    unmap(p, 2);
}

static void check_parts(void)
{
    char *p = map_pages(8, RW);

    memset(p, 7, 8 * page);
    for (size_t i = 0; i < 8; i += 2)
        protect(p + i * page, 1, PROT_READ);
    for (size_t i = 0; i < 8; i++) {
        if (i % 2 == 0)
            EXPECT_FAULT(SEGV_ACCERR, WRITE, p + i * page);
        else
            EXPECT_ALLOWED(WRITE, p + i * page);
    }
    protect(p, 8, RW);
    for (size_t i = 0; i < 8; i++)
        EXPECT_ALLOWED(WRITE, p + i * page);
    EXPECT(p[5 * page + 1] == 7, "contents lost");
    unmap(p, 8);
}

static void check_protect_hole(void)
{
    char *p = map_pages(3, RW);

    unmap(p + page, 1);
    EXPECT(mprotect(p, 3 * page, PROT_READ) == -1 && errno == ENOMEM,
           "no ENOMEM for a range with a hole");
    // The change applies up to the hole.
    EXPECT_FAULT(SEGV_ACCERR, WRITE, p);
    EXPECT_ALLOWED(WRITE, p + 2 * page);
    unmap(p, 3);
}

static void check_fixed_over(void)
{
    char *p = map_pages(3, RW);

    memset(p, 7, 3 * page);
    EXPECT(map_over(p + page, 1, RW) == p + page, "not where it must be");
    EXPECT(all_zero(p + page, page), "old contents in the new mapping");
    EXPECT(p[page - 1] == 7 && p[2 * page] == 7, "a neighbour lost its contents");
    EXPECT(map_over(p + page, 1, PROT_NONE) == p + page, "not where it must be");
    EXPECT_FAULT(SEGV_ACCERR, READ, p + page);
    EXPECT(mmap(p, page, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE,
                -1, 0) == MAP_FAILED && errno == EEXIST,
           "MAP_FIXED_NOREPLACE over a mapping: no EEXIST");
    EXPECT(p[0] == 7, "MAP_FIXED_NOREPLACE replaced");
    unmap(p, 3);
}

static void check_dontneed(void)
{
    char *p = map_pages(4, RW);

    memset(p, 7, 4 * page);
    EXPECT(madvise(p + page, 2 * page, MADV_DONTNEED) == 0, "%s", strerror(errno));
    EXPECT(all_zero(p + page, 2 * page), "old contents after MADV_DONTNEED");
    EXPECT(p[0] == 7 && p[3 * page] == 7, "a neighbour lost its contents");
    EXPECT_ALLOWED(WRITE, p + page);
    unmap(p, 4);
}

static long minor_faults(void)
{
    struct rusage usage = {0};

    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt;
}

static void check_populate(void)
{
    const size_t count = 64;
    char *p = mmap(NULL, count * page, RW,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    long before, after;

    EXPECT(p != MAP_FAILED, "%s", strerror(errno));
    before = minor_faults();
    for (size_t i = 0; i < count; i++)
        p[i * page] = 7;
    after = minor_faults();
    EXPECT(after - before < 8, "%ld faults on %zu populated pages",
           after - before, count);
    EXPECT(all_zero(p + 1, page - 1), "a populated page is not zero");
    unmap(p, count);
}

static void check_madvise_populate(void)
{
    char *p = map_pages(4, RW);

    if (madvise(p, page, MADV_POPULATE_WRITE) != 0 && errno == EINVAL)
        SKIP("this system has no MADV_POPULATE_WRITE");
    EXPECT(madvise(p, 2 * page, MADV_POPULATE_READ) == 0, "read: %s", strerror(errno));
    EXPECT(madvise(p, 4 * page, MADV_POPULATE_WRITE) == 0, "write: %s", strerror(errno));
    EXPECT(all_zero(p, 4 * page), "a populated page is not zero");
    EXPECT_ALLOWED(WRITE, p);
    protect(p, 1, PROT_READ);
    EXPECT(madvise(p, page, MADV_POPULATE_WRITE) == -1 && errno == EINVAL,
           "populate for writing, read-only: no EINVAL");
    unmap(p + page, 1);
    EXPECT(madvise(p, 4 * page, MADV_POPULATE_READ) == -1 && errno == ENOMEM,
           "populate over a hole: no ENOMEM");
    unmap(p, 4);
}

static void check_brk(void)
{
    uintptr_t old = (uintptr_t)syscall(SYS_brk, 0);
    char *p = (char *)round_up(old, page);
    uintptr_t grown = (uintptr_t)p + 2 * page;

    EXPECT((uintptr_t)syscall(SYS_brk, grown) == grown, "cannot grow");
    EXPECT(all_zero(p, 2 * page), "fresh memory is not zero");
    memset(p, 7, 2 * page);
    EXPECT_FAULT(SEGV_MAPERR, READ, p + 2 * page);
    syscall(SYS_brk, (uintptr_t)p + page);
    EXPECT_FAULT(SEGV_MAPERR, READ, p + page);
    EXPECT(p[0] == 7, "contents lost");
    EXPECT((uintptr_t)syscall(SYS_brk, grown) == grown, "cannot grow again");
    EXPECT(all_zero(p + page, page), "old contents after growing again");
    syscall(SYS_brk, old);
}

// The raw system calls: musl's functions round and check some of their
// arguments first.
static int error_of(long number, uintptr_t a, uintptr_t b, uintptr_t c, uintptr_t d)
{
    return syscall(number, a, b, c, d, -1, 0) == -1 ? errno : 0;
}

static void check_errors(void)
{
    const uintptr_t anonymous = MAP_PRIVATE | MAP_ANONYMOUS;
    uintptr_t p = (uintptr_t)map_pages(2, RW);

    unmap((char *)p + page, 1);
#define EXPECT_ERROR(want, number, a, b, c, d)                                 \
    do {                                                                       \
        int got = error_of(number, a, b, c, d);                                \
        EXPECT(got == (want), "%s: %s, not %s", #number "(" #a ", " #b ")",    \
               strerror(got), strerror(want));                                 \
    } while (0)
    EXPECT_ERROR(EINVAL, SYS_mmap, 0, 0, RW, anonymous);
    EXPECT_ERROR(EINVAL, SYS_mmap, 0, page, RW, MAP_ANONYMOUS);
    EXPECT_ERROR(EINVAL, SYS_mmap, p + 1, page, RW, anonymous | MAP_FIXED);
    EXPECT_ERROR(EBADF, SYS_mmap, 0, page, RW, MAP_PRIVATE);
    EXPECT_ERROR(ENOMEM, SYS_mmap, 0, (uintptr_t)1 << 62, RW, anonymous);
    EXPECT_ERROR(ENOMEM, SYS_mmap, 0, UINTPTR_MAX, RW, anonymous);
    EXPECT_ERROR(ENOMEM, SYS_mmap, (uintptr_t)1 << 62, page, RW, anonymous | MAP_FIXED);
    EXPECT_ERROR(EINVAL, SYS_munmap, p + 1, page, 0, 0);
    EXPECT_ERROR(EINVAL, SYS_munmap, p, 0, 0, 0);
    // Not above bit 55: on AArch64 a byte there is a tag, and munmap ignores it.
    EXPECT_ERROR(EINVAL, SYS_munmap, (uintptr_t)1 << 54, page, 0, 0);
    EXPECT_ERROR(0, SYS_munmap, p + page, page, 0, 0);
    EXPECT_ERROR(EINVAL, SYS_mprotect, p + 1, page, PROT_READ, 0);
    EXPECT_ERROR(EINVAL, SYS_mprotect, p, page, 0x40, 0);
    EXPECT_ERROR(ENOMEM, SYS_mprotect, p + page, page, PROT_READ, 0);
    EXPECT_ERROR(ENOMEM, SYS_mprotect, p, UINTPTR_MAX - page, PROT_READ, 0);
    EXPECT_ERROR(0, SYS_mprotect, p, 0, PROT_READ, 0);
    EXPECT_ERROR(EINVAL, SYS_madvise, p + 1, page, MADV_DONTNEED, 0);
    EXPECT_ERROR(EINVAL, SYS_madvise, p, page, 0x7777, 0);
    EXPECT_ERROR(ENOMEM, SYS_madvise, p, 2 * page, MADV_DONTNEED, 0);
    EXPECT_ERROR(0, SYS_madvise, p, 0, MADV_DONTNEED, 0);
#undef EXPECT_ERROR
    unmap((char *)p, 1);
}

// Reads /proc/self/maps, and returns the number of bytes.
static size_t read_maps(char *text, size_t size)
{
    int fd = open("/proc/self/maps", O_RDONLY);
    size_t length = 0;
    ssize_t n;

    if (fd < 0)
        return 0;
    while ((n = read(fd, text + length, size - 1 - length)) > 0)
        length += (size_t)n;
    close(fd);
    text[length] = '\0';
    return length;
}

static void check_maps(void)
{
    static char text[64 * 1024];
    char line[128];
    char *p = map_pages(3, RW);

    protect(p + page, 1, PROT_NONE);
    snprintf(line, sizeof line, "%lx-%lx ---p 00000000 00:00 0",
             (unsigned long)(uintptr_t)(p + page),
             (unsigned long)(uintptr_t)(p + 2 * page));
    EXPECT(read_maps(text, sizeof text) > 0, "cannot read it: %s", strerror(errno));
    EXPECT(strstr(text, line) != NULL, "no line \"%s\"", line);
    EXPECT(strstr(text, "[stack]") != NULL, "no [stack]");
    unmap(p, 3);
}

#endif
