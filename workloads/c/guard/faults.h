// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Which accesses fault, and the contents of the signal: si_code is SEGV_ACCERR
// if there is a mapping that does not allow the access and SEGV_MAPERR if
// there is none, si_addr is the address of the access.

#ifndef WORKLOADS_GUARD_FAULTS_H
#define WORKLOADS_GUARD_FAULTS_H

#include "pages.h"


static void check_prot_none(void)
{
    char *p = map_pages(1, PROT_NONE);

    EXPECT_FAULT(SEGV_ACCERR, READ, p);
    EXPECT_FAULT(SEGV_ACCERR, WRITE, p + page - 1);
    unmap(p, 1);
}

static void check_guard_between(void)
{
    char *p = map_pages(3, RW);

    protect(p + page, 1, PROT_NONE);
    for (size_t i = 0; i < page; i++)
        p[i] = p[2 * page + i] = 7;
    EXPECT_FAULT(SEGV_ACCERR, WRITE, p + page);
    EXPECT_FAULT(SEGV_ACCERR, READ, p + page + 123);
    EXPECT_FAULT(SEGV_ACCERR, WRITE, p + 2 * page - 1);
    EXPECT_ALLOWED(READ, p + page - 1);
    EXPECT_ALLOWED(READ, p + 2 * page);
    unmap(p, 3);
}

static void check_null(void)
{
    EXPECT_FAULT(SEGV_MAPERR, READ, NULL);
    EXPECT_FAULT(SEGV_MAPERR, WRITE, (char *)8);
    EXPECT_FAULT(SEGV_MAPERR, EXECUTE, (char *)16);
}

static void check_unmapped(void)
{
    char *p = map_pages(3, RW);

    memset(p, 7, 3 * page);
    unmap(p + page, 1);
    EXPECT_FAULT(SEGV_MAPERR, READ, p + page);
    EXPECT_FAULT(SEGV_MAPERR, WRITE, p + 2 * page - 1);
    EXPECT(p[page - 1] == 7 && p[2 * page] == 7, "a neighbour lost its contents");
    unmap(p, 3);
    EXPECT_FAULT(SEGV_MAPERR, READ, p);
    EXPECT_FAULT(SEGV_MAPERR, READ, p + 2 * page);
}

static void check_read_only(void)
{
    char *p = map_pages(3, PROT_READ);

    // Never touched; read before; written before.
    EXPECT_FAULT(SEGV_ACCERR, WRITE, p);
    EXPECT(p[page] == 0, "a fresh page is not zero");
    EXPECT_FAULT(SEGV_ACCERR, WRITE, p + page);
    protect(p + 2 * page, 1, RW);
    p[2 * page] = 7;
    protect(p + 2 * page, 1, PROT_READ);
    EXPECT_FAULT(SEGV_ACCERR, WRITE, p + 2 * page);
    EXPECT(p[0] == 0 && p[page] == 0 && p[2 * page] == 7, "contents changed");
    unmap(p, 3);
}

static void check_not_executable(void)
{
    char *p = map_pages(2, RW);

    EXPECT_FAULT(SEGV_ACCERR, EXECUTE, p);
    p[page] = 7;
    EXPECT_FAULT(SEGV_ACCERR, EXECUTE, p + page);
    unmap(p, 2);
}

static void check_executable(void)
{
#if defined(__x86_64__)
    static const unsigned char ret[] = {0xc3};
#elif defined(__aarch64__)
    static const unsigned char ret[] = {0xc0, 0x03, 0x5f, 0xd6};
#else
    static const unsigned char ret[] = {0};
    SKIP("no machine code for this architecture");
#endif
    char *p = map_pages(1, RW);

    memcpy(p, ret, sizeof ret);
    __builtin___clear_cache(p, p + sizeof ret);
    EXPECT_FAULT(SEGV_ACCERR, EXECUTE, p);
    protect(p, 1, PROT_READ | PROT_EXEC);
    EXPECT_ALLOWED(EXECUTE, p);
    EXPECT_FAULT(SEGV_ACCERR, WRITE, p);
    protect(p, 1, PROT_READ);
    EXPECT_FAULT(SEGV_ACCERR, EXECUTE, p);
    unmap(p, 1);
}

static void check_program_image(void)
{
    static const char constant[64] = "constant";

    EXPECT_FAULT(SEGV_ACCERR, WRITE, (char *)(uintptr_t)check_program_image);
    EXPECT_FAULT(SEGV_ACCERR, WRITE, (char *)(uintptr_t)constant);
    EXPECT_FAULT(SEGV_ACCERR, EXECUTE, (char *)&rounds);
}

static void check_kernel_half(void)
{
#if defined(__x86_64__)
    EXPECT_FAULT(SEGV_MAPERR, READ, (char *)0xffff800000000000);
    EXPECT_FAULT(SEGV_MAPERR, WRITE, (char *)0xffffffff81000000);
    // A non-canonical address: a general protection fault, which has no address.
    EXPECT(access_faults(READ, (char *)0x8000000000000000), "no fault");
    EXPECT(catcher.code == SI_KERNEL, "si_code %d, not SI_KERNEL", catcher.code);
    EXPECT(catcher.address == NULL, "si_addr %p, not 0", catcher.address);
#elif defined(__aarch64__)
    char *p = map_pages(1, RW);
    char *tagged = (char *)((uintptr_t)p | (uintptr_t)0x5a << 56);

    EXPECT_FAULT(SEGV_MAPERR, READ, (char *)0xffff800000000000);
    EXPECT_FAULT(SEGV_MAPERR, WRITE, (char *)0xffffffff81000000);
    EXPECT_FAULT(SEGV_MAPERR, READ, (char *)0x0001000000000000);
    // The highest byte of an address is a tag, which the signal does not have.
    EXPECT_ALLOWED(WRITE, tagged);
    unmap(p, 1);
    EXPECT(access_faults(READ, tagged), "no fault");
    EXPECT(catcher.code == SEGV_MAPERR, "si_code %d", catcher.code);
    EXPECT(catcher.address == p, "si_addr %p, not %p", catcher.address, (void *)p);
#else
    SKIP("addresses of this architecture");
#endif
}

static void check_straddling(void)
{
#if defined(__x86_64__) || defined(__aarch64__)
    char *p = map_pages(2, RW);

    protect(p + page, 1, PROT_NONE);
    catcher.faults = 0;
    catcher.armed = true;
    if (sigsetjmp(catcher.back, 1) == 0) {
#if defined(__x86_64__)
        __asm__ volatile("movq $-1, (%0)" ::"r"(p + page - 4) : "memory");
#else
        __asm__ volatile("str %1, [%0]" ::"r"(p + page - 4), "r"((uint64_t)-1) : "memory");
#endif
        catcher.armed = false;
    }
    EXPECT(catcher.faults == 1, "no fault");
    EXPECT(catcher.address == p + page, "si_addr %p, not %p", catcher.address,
           (void *)(p + page));
    EXPECT(all_zero(p, page), "a part was written");
    unmap(p, 2);
#else
    SKIP("stores of this architecture");
#endif
}

#endif
