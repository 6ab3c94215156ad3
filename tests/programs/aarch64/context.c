// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What a signal handler on AArch64 is told of a fault: signal, code, address, and in the context the fault address
// and the syndrome; and that it can change registers, vector registers among them.

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "../common.h"

#ifdef __GLIBC__
#include <asm/sigcontext.h>
#endif

static char *page; // two pages, the second without access

static struct _aarch64_ctx *record(ucontext_t *context, uint32_t magic)
{
    char *at = (char *)context->uc_mcontext.__reserved;

    for (;;) {
        struct _aarch64_ctx *head = (struct _aarch64_ctx *)at;
        if (head->magic == magic)
            return head;
        if (head->magic == 0)
            return NULL;
        at += head->size;
    }
}

static uint64_t resume_at; // where the handler resumes; 0: after the instruction

static const char *place(uint64_t address)
{
    static char text[40];

    if (page && address >= (uintptr_t)page && address < (uintptr_t)page + 8192)
        snprintf(text, sizeof text, "page + %#lx", (unsigned long)(address - (uintptr_t)page));
    else if (address > 0x400000 && address < 0x800000)
        snprintf(text, sizeof text, "code");
    else
        snprintf(text, sizeof text, "%#lx", (unsigned long)address);
    return text;
}

static void handler(int number, siginfo_t *info, void *at)
{
    ucontext_t *context = at;
    struct esr_context *syndrome = (struct esr_context *)record(context, ESR_MAGIC);
    struct fpsimd_context *vectors = (struct fpsimd_context *)record(context, FPSIMD_MAGIC);

    printf("  signal %d code %d at %s", number, info->si_code, place((uintptr_t)info->si_addr));
    printf(", fault address %s", place(context->uc_mcontext.fault_address));
    if (syndrome)
        printf(", syndrome %#lx", (unsigned long)syndrome->esr);
    printf(", vectors %s, aligned %d\n", vectors ? "there" : "missing", (int)((uintptr_t)at % 16));
    if (vectors)
        memcpy(&vectors->vregs[31], (uint64_t[2]){0x1234, 0}, 16);
    context->uc_mcontext.pc = resume_at ? resume_at : context->uc_mcontext.pc + 4;
}

#define TRY(name, ...)                       \
    do {                                     \
        printf("%s\n", name);                \
        fflush(stdout);                      \
        __asm__ volatile(__VA_ARGS__);       \
    } while (0)

static void jumps(const char *name, uint64_t to)
{
    printf("%s\n", name);
    fflush(stdout);
    __asm__ volatile("adr x9, 1f\nstr x9, [%1]\nbr %0\n1:" : : "r"(to), "r"(&resume_at) : "x9", "memory");
    resume_at = 0;
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGTRAP, SIGFPE};
    uint64_t low = 0;
    double value;

    for (unsigned i = 0; i < sizeof signals / sizeof *signals; i++)
        CHECK(sigaction(signals[i], &action, NULL) == 0);
    page = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(page != MAP_FAILED && mprotect(page + 4096, 4096, PROT_NONE) == 0);

    TRY("load at 0", "mov x9, #0\nldr x9, [x9]" : : : "x9");
    TRY("store of nothing", "mov x9, #64\nstr x9, [x9]" : : : "x9", "memory");
    TRY("store to a page to read", "str x9, [%0, #8]" : : "r"(page) : "memory");
    TRY("load without access", "ldr x9, [%0, #24]" : : "r"(page + 4096) : "x9");
    TRY("store without access", "str x9, [%0, #24]" : : "r"(page + 4096) : "memory");
    TRY("atomic store to a page to read", ".arch_extension lse\nldadd x9, x9, [%0]" : : "r"(page) : "x9", "memory");
    TRY("load of a kernel address", "ldr x9, [%0]" : : "r"(0xffff800000000000) : "x9");
    TRY("store to a kernel address", "str x9, [%0]" : : "r"(0xffffffff80000000) : "memory");
    TRY("load between the halves", "ldr x9, [%0]" : : "r"(0x0010000000000000) : "x9");
    TRY("load with a tag", "ldr x9, [%0]" : : "r"((uintptr_t)(page + 4096) | 0x5aull << 56) : "x9");
    TRY("load across the end", "ldr x9, [%0]" : : "r"(page + 4092) : "x9");
    TRY("exclusive load, unaligned", "ldaxr x9, [%0]" : : "r"(page + 1) : "x9");
    TRY("breakpoint", "brk #7");
    TRY("undefined", "udf #1");
    TRY("a register of the kernel", "mrs x9, ttbr0_el1" : : : "x9");
    TRY("masked interrupts", "msr daifset, #2");
    TRY("cache maintenance of nothing", "mov x9, #4096\ndc cvac, x9" : : : "x9", "memory");
    TRY("zeroing of a page to read", "dc zva, %0" : : "r"(page) : "memory");
    __asm__ volatile("fmov %d0, d31" : "=w"(value));
    memcpy(&low, &value, sizeof low);
    printf("register 31: %#lx\n", (unsigned long)low);
    jumps("jump to nothing", 0x40);
    jumps("jump without access", (uintptr_t)page + 4096);
    jumps("jump to data", (uintptr_t)page);
    jumps("jump to an unaligned address", (uintptr_t)page + 2);
    jumps("jump to the kernel", 0xffff800000000000);
    // The stack pointer has to be aligned when it is used.
    TRY("unaligned stack", "mov x9, sp\nadd x10, x9, #8\nmov sp, x10\nldr x11, [sp]\nmov sp, x9" : : : "x9", "x10", "x11");
    return 0;
}
