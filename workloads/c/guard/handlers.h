// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What a handler of SIGSEGV sees, may do and leaves behind: it repairs and
// returns, jumps out, faults itself, or runs on an alternate stack.

#ifndef WORKLOADS_GUARD_HANDLERS_H
#define WORKLOADS_GUARD_HANDLERS_H

#include "pages.h"

#include <pthread.h>

static char *repairable; // made writable by make_writable

static void make_writable(siginfo_t *info, ucontext_t *context)
{
    (void)info, (void)context;
    mprotect(repairable, page, RW);
#if defined(__x86_64__)
    __asm__ volatile("pcmpeqd %%xmm0, %%xmm0\n pcmpeqd %%xmm15, %%xmm15" ::: "xmm0",
                     "xmm15");
#elif defined(__aarch64__)
    __asm__ volatile("movi v0.16b, #255\n movi v31.16b, #255" ::: "v0", "v31");
#endif
}

static void check_repair(void)
{
    repairable = map_pages(1, PROT_READ);
    catcher.repair = make_writable;
    for (int i = 0; i < 100; i++) {
        catcher.faults = 0;
        ((volatile char *)repairable)[i] = (char)(i + 1);
        if (catcher.faults != 1)
            explain("%d faults on a write, not 1", catcher.faults);
        if (repairable[i] != i + 1)
            explain("the write did not land after the handler returned");
        protect(repairable, 1, PROT_READ);
    }
    catcher.repair = NULL;
    unmap(repairable, 1);
}

static void check_registers(void)
{
#if defined(__x86_64__)
    uint64_t wrong;

    repairable = map_pages(1, PROT_READ);
    catcher.repair = make_writable;
    // Fills registers, the carry flag and the red zone below the stack
    // pointer, faults, and counts the changes. It first moves the stack pointer
    // away from the red zone of the enclosing function.
#define SET(reg, n) "mov $-" #n ", %%" #reg "\n"
#define TEST(reg, n) "cmp $-" #n ", %%" #reg "\n je 1f\n inc %%rax\n 1:\n"
    __asm__ volatile(
        "lea -512(%%rsp), %%rsp\n"
        SET(rbx, 101) SET(rcx, 102) SET(rdx, 103) SET(rsi, 104) SET(r8, 105)
        SET(r9, 106) SET(r10, 107) SET(r11, 108) SET(r12, 109) SET(r13, 110)
        SET(r14, 111) SET(r15, 112)
        "movq %%rbx, %%xmm0\n movq %%r15, %%xmm15\n"
        "mov %%rbx, -8(%%rsp)\n mov %%r15, -128(%%rsp)\n"
        "stc\n"
        "movb $1, (%%rdi)\n" // faults
        "sbb %%rax, %%rax\n inc %%rax\n"
        TEST(rbx, 101) TEST(rcx, 102) TEST(rdx, 103) TEST(rsi, 104) TEST(r8, 105)
        TEST(r9, 106) TEST(r10, 107) TEST(r11, 108) TEST(r12, 109) TEST(r13, 110)
        TEST(r14, 111) TEST(r15, 112)
        "movq %%xmm0, %%rcx\n" TEST(rcx, 101)
        "movq %%xmm15, %%rcx\n" TEST(rcx, 112)
        "mov -8(%%rsp), %%rcx\n" TEST(rcx, 101)
        "mov -128(%%rsp), %%rcx\n" TEST(rcx, 112)
        "lea 512(%%rsp), %%rsp\n"
        : "=a"(wrong)
        : "D"(repairable)
        : "rbx", "rcx", "rdx", "rsi", "r8", "r9", "r10", "r11", "r12", "r13",
          "r14", "r15", "xmm0", "xmm15", "memory", "cc");
#undef SET
#undef TEST
#elif defined(__aarch64__)
    register char *wrong __asm__("x0");

    repairable = map_pages(1, PROT_READ);
    catcher.repair = make_writable;
    wrong = repairable;
    // Fills registers and flags, faults, and counts the changes.
#define SET(reg, n) "mov " #reg ", #-" #n "\n"
#define TEST(reg, n) "cmn " #reg ", #" #n "\n cinc x0, x0, ne\n"
    __asm__ volatile(
        SET(x1, 101) SET(x2, 102) SET(x3, 103) SET(x4, 104) SET(x5, 105)
        SET(x6, 106) SET(x7, 107) SET(x8, 108) SET(x9, 109) SET(x10, 110)
        SET(x11, 111) SET(x12, 112) SET(x13, 113) SET(x14, 114) SET(x15, 115)
        SET(x16, 116) SET(x17, 117) SET(x20, 120) SET(x21, 121) SET(x22, 122)
        SET(x23, 123) SET(x24, 124) SET(x25, 125) SET(x26, 126) SET(x27, 127)
        SET(x28, 128) SET(x30, 130)
        "fmov d0, x1\n fmov d31, x28\n"
        "mov w19, #1\n"
        "cmp xzr, xzr\n"
        "strb w19, [x0]\n" // faults
        "cset x0, ne\n"
        TEST(x1, 101) TEST(x2, 102) TEST(x3, 103) TEST(x4, 104) TEST(x5, 105)
        TEST(x6, 106) TEST(x7, 107) TEST(x8, 108) TEST(x9, 109) TEST(x10, 110)
        TEST(x11, 111) TEST(x12, 112) TEST(x13, 113) TEST(x14, 114) TEST(x15, 115)
        TEST(x16, 116) TEST(x17, 117) TEST(x20, 120) TEST(x21, 121) TEST(x22, 122)
        TEST(x23, 123) TEST(x24, 124) TEST(x25, 125) TEST(x26, 126) TEST(x27, 127)
        TEST(x28, 128) TEST(x30, 130)
        "fmov x1, d0\n" TEST(x1, 101)
        "fmov x1, d31\n" TEST(x1, 128)
        : "+r"(wrong)
        :
        : "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9", "x10", "x11", "x12",
          "x13", "x14", "x15", "x16", "x17", "x19", "x20", "x21", "x22", "x23", "x24",
          "x25", "x26", "x27", "x28", "x30", "v0", "v31", "memory", "cc");
#undef SET
#undef TEST
#else
    uint64_t wrong = 0;

    SKIP("registers of this architecture");
#endif
    catcher.repair = NULL;
    EXPECT((uintptr_t)wrong == 0, "%" PRIuPTR " registers changed", (uintptr_t)wrong);
    EXPECT(repairable[0] == 1, "the write did not land");
    unmap(repairable, 1);
}

#if defined(__x86_64__)
static volatile greg_t seen_trap, seen_error, seen_cr2;

static void note_context(siginfo_t *info, ucontext_t *context)
{
    seen_trap = context->uc_mcontext.gregs[REG_TRAPNO];
    seen_error = context->uc_mcontext.gregs[REG_ERR];
    seen_cr2 = context->uc_mcontext.gregs[REG_CR2];
    make_writable(info, context);
}
#elif defined(__aarch64__)
enum { SYNDROME_MAGIC = 0x45535201 };

static volatile uint64_t seen_address, seen_syndrome;

static void note_context(siginfo_t *info, ucontext_t *context)
{
    // Records of a magic number and a length, and then what they are about.
    const char *record = (const char *)context->uc_mcontext.__reserved;
    uint32_t head[2];

    seen_address = context->uc_mcontext.fault_address;
    seen_syndrome = 0;
    for (memcpy(head, record, sizeof head); head[1] != 0; memcpy(head, record, sizeof head)) {
        if (head[0] == SYNDROME_MAGIC)
            memcpy((void *)&seen_syndrome, record + sizeof head, sizeof seen_syndrome);
        record += head[1];
    }
    make_writable(info, context);
}
#endif

static void check_context(void)
{
#if defined(__x86_64__)
    enum { WRITING = 2, FROM_USER = 4 };

    repairable = map_pages(1, PROT_NONE);
    catcher.repair = note_context;
    access_byte(WRITE, repairable + 5);
    EXPECT(seen_trap == 14, "trap %lld, not 14", (long long)seen_trap);
    EXPECT((seen_error & (WRITING | FROM_USER)) == (WRITING | FROM_USER),
           "error code %lld for a write", (long long)seen_error);
    EXPECT(seen_cr2 == (greg_t)(uintptr_t)(repairable + 5), "CR2 %llx",
           (unsigned long long)seen_cr2);
    protect(repairable, 1, PROT_NONE);
    access_byte(READ, repairable + 9);
    catcher.repair = NULL;
    EXPECT((seen_error & (WRITING | FROM_USER)) == FROM_USER,
           "error code %lld for a read", (long long)seen_error);
    EXPECT(seen_cr2 == (greg_t)(uintptr_t)(repairable + 9), "CR2 %llx",
           (unsigned long long)seen_cr2);
    unmap(repairable, 1);
#elif defined(__aarch64__)
    enum { DATA_ABORT = 0x24, CLASS_SHIFT = 26, WRITING = 1 << 6 };

    repairable = map_pages(1, PROT_NONE);
    catcher.repair = note_context;
    access_byte(WRITE, repairable + 5);
    EXPECT(seen_syndrome >> CLASS_SHIFT == DATA_ABORT && (seen_syndrome & WRITING) != 0,
           "syndrome %" PRIx64 " for a write", seen_syndrome);
    EXPECT(seen_address == (uintptr_t)repairable + 5, "address %" PRIx64, seen_address);
    protect(repairable, 1, PROT_NONE);
    access_byte(READ, repairable + 9);
    catcher.repair = NULL;
    EXPECT(seen_syndrome >> CLASS_SHIFT == DATA_ABORT && (seen_syndrome & WRITING) == 0,
           "syndrome %" PRIx64 " for a read", seen_syndrome);
    EXPECT(seen_address == (uintptr_t)repairable + 9, "address %" PRIx64, seen_address);
    unmap(repairable, 1);
#else
    SKIP("the context of this architecture");
#endif
}

static volatile int blocked_inside;

static void note_mask(siginfo_t *info, ucontext_t *context)
{
    sigset_t mask;

    sigprocmask(SIG_BLOCK, NULL, &mask);
    blocked_inside = sigismember(&mask, SIGSEGV);
    make_writable(info, context);
}

static void check_mask(void)
{
    sigset_t mask;

    repairable = map_pages(1, PROT_READ);
    catcher.repair = note_mask;
    access_byte(WRITE, repairable);
    EXPECT(blocked_inside == 1, "SIGSEGV is not blocked in its handler");
    catch_segv(SA_NODEFER);
    protect(repairable, 1, PROT_READ);
    access_byte(WRITE, repairable);
    catcher.repair = NULL;
    catch_segv(0);
    EXPECT(blocked_inside == 0, "SIGSEGV is blocked in spite of SA_NODEFER");
    // After handlers that were left by a jump, and one that returned.
    EXPECT_FAULT(SEGV_MAPERR, READ, NULL);
    sigprocmask(SIG_BLOCK, NULL, &mask);
    EXPECT(sigismember(&mask, SIGSEGV) == 0, "SIGSEGV stayed blocked");
    unmap(repairable, 1);
}

static void check_many_jumps(void)
{
    char *p = map_pages(1, PROT_NONE);

    for (int i = 0; i < 1000; i++)
        EXPECT_FAULT(SEGV_ACCERR, i % 2 ? READ : WRITE, p + i);
    unmap(p, 1);
}

static char *inner; // read-only when the handler of the outer fault writes to it

static void repair_nested(siginfo_t *info, ucontext_t *context)
{
    if ((char *)info->si_addr == inner) {
        mprotect(inner, page, RW);
        return;
    }
    *(volatile char *)inner = 8; // faults: this handler again, inside itself
    make_writable(info, context);
}

static void check_nested(void)
{
    repairable = map_pages(1, PROT_READ);
    inner = map_pages(1, PROT_READ);
    catch_segv(SA_NODEFER);
    catcher.repair = repair_nested;
    catcher.faults = 0;
    *(volatile char *)repairable = 7;
    catcher.repair = NULL;
    catch_segv(0);
    EXPECT(catcher.faults == 2, "%d faults, not 2", catcher.faults);
    EXPECT(repairable[0] == 7 && inner[0] == 8, "a write did not land");
    unmap(repairable, 1);
    unmap(inner, 1);
}

static char *alternate;
static const size_t alternate_size = 64 * 1024;
static volatile bool on_alternate;
static volatile int disable_error;

// Sets this thread's alternate stack, or disables it.
static void use_alternate_stack(char *stack)
{
    stack_t s = {.ss_sp = stack, .ss_size = alternate_size,
                 .ss_flags = stack == NULL ? SS_DISABLE : 0};

    if (sigaltstack(&s, NULL) != 0)
        die("guard", "sigaltstack: %s", strerror(errno));
}

static void note_stack(siginfo_t *info, ucontext_t *context)
{
    stack_t off = {.ss_flags = SS_DISABLE};
    char *here = __builtin_frame_address(0);

    on_alternate = here >= alternate && here < alternate + alternate_size;
    disable_error = sigaltstack(&off, NULL) == 0 ? 0 : errno;
    make_writable(info, context);
}

static void check_alternate_stack(void)
{
    alternate = map_pages(alternate_size / page, RW);
    repairable = map_pages(1, PROT_READ);
    use_alternate_stack(alternate);
    catch_segv(SA_ONSTACK);
    catcher.repair = note_stack;
    access_byte(WRITE, repairable);
    catcher.repair = NULL;
    EXPECT(on_alternate, "the handler ran on the normal stack");
    EXPECT(disable_error == EPERM, "a stack in use could be taken away");
    // After a jump out of the handler the stack must be free again.
    EXPECT_FAULT(SEGV_MAPERR, READ, NULL);
    EXPECT_FAULT(SEGV_MAPERR, READ, NULL);
    use_alternate_stack(NULL);
    catch_segv(0);
    unmap(alternate, alternate_size / page);
    unmap(repairable, 1);
}

static void *fault_here(void *at)
{
    return faults_with(SEGV_ACCERR, WRITE, at) ? at : NULL;
}

static void check_faulting_thread(void)
{
    char *p = map_pages(2, PROT_NONE);
    pthread_t thread;
    void *result;

    EXPECT(pthread_create(&thread, NULL, fault_here, p + page) == 0,
           "cannot start a thread");
    EXPECT_FAULT(SEGV_ACCERR, READ, p);
    pthread_join(thread, &result);
    EXPECT(result != NULL, "no fault in the second thread");
    EXPECT(catcher.address == p, "the first thread got the second's signal");
    unmap(p, 2);
}

#endif
