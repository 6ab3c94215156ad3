// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Pages for the checks. These functions end the program if a call fails that no
// check tests.

#ifndef WORKLOADS_GUARD_PAGES_H
#define WORKLOADS_GUARD_PAGES_H

#include "check.h"

#include <sys/mman.h>

#define RW (PROT_READ | PROT_WRITE)
#define KIB ((size_t)1024)
#define MIB (1024 * KIB)

static size_t page;         // bytes in a page
static size_t rounds = 200; // of each race

// Maps fresh private pages.
static char *map_pages(size_t count, int protection)
{
    char *p = mmap(NULL, count * page, protection, MAP_PRIVATE | MAP_ANONYMOUS,
                   -1, 0);

    if (p == MAP_FAILED)
        die("guard", "cannot map %zu pages: %s", count, strerror(errno));
    return p;
}

// Maps fresh private pages at this address, over existing mappings.
static char *map_over(char *at, size_t count, int protection)
{
    return mmap(at, count * page, protection,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

static void protect(char *at, size_t count, int protection)
{
    if (mprotect(at, count * page, protection) != 0)
        die("guard", "mprotect: %s", strerror(errno));
}

static void unmap(char *at, size_t count)
{
    if (munmap(at, count * page) != 0)
        die("guard", "munmap: %s", strerror(errno));
}

static bool all_zero(const volatile char *p, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (p[i] != 0)
            return false;
    return true;
}

#endif
