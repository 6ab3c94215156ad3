// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Single steps of a tracee on AArch64: over plain instructions, a system call that sleeps, and a load that faults. The
// tracer itself must not step, nor a third process.

#include "../common.h"

#include <elf.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/wait.h>

struct registers {
    uint64_t x[31], sp, pc, pstate;
};

static struct registers read_registers(pid_t child)
{
    struct registers now;
    struct iovec place = {&now, sizeof now};

    CHECK(ptrace(PTRACE_GETREGSET, child, (void *)NT_PRSTATUS, &place) == 0 && place.iov_len == sizeof now);
    return now;
}

// Sleeps for a millisecond (nanosleep), and touches a page.
static void steps(void *page, void *time)
{
    register uint64_t x8 __asm__("x8") = SYS_nanosleep;
    register void *x0 __asm__("x0") = time;
    register void *x1 __asm__("x1") = NULL;

    __asm__ volatile("brk #1\nnop\nnop\nsvc #0\nnop\nldr x9, [%3]\nnop\nstr x9, [%3]\nnop\nbrk #2\n"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(page)
                     : "x9", "memory");
}

static _Noreturn void tracee(void)
{
    static struct timespec time = {0, 1000000};
    char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(page != MAP_FAILED && ptrace(PTRACE_TRACEME, 0, 0, 0) == 0);
    steps(page, &time);
    _exit(7);
}

int main(void)
{
    pid_t other = fork(), child;
    volatile long turns = 0;
    int status;

    CHECK(other >= 0);
    if (other == 0)
        for (;;)
            turns++;
    child = fork();
    CHECK(child >= 0);
    if (child == 0)
        tracee();
    CHECK(waitpid(child, &status, 0) == child);
    printf("stopped by signal %d\n", WSTOPSIG(status));
    struct registers now = read_registers(child);
    uint64_t start = now.pc;
    struct iovec place = {&now, sizeof now};
    now.pc += 4;
    CHECK(ptrace(PTRACE_SETREGSET, child, (void *)NT_PRSTATUS, &place) == 0);
    for (int step = 0; step < 20; step++) {
        CHECK(ptrace(PTRACE_SINGLESTEP, child, 0, 0) == 0 && waitpid(child, &status, 0) == child);
        siginfo_t info;
        CHECK(ptrace(PTRACE_GETSIGINFO, child, 0, &info) == 0);
        uint64_t before = now.pc;
        now = read_registers(child);
        // After the step over a system call, Linux stops once more where it has stopped.
        if (now.pc == before && info.si_code == TRAP_TRACE)
            continue;
        printf("at %d: signal %d, code %d\n", (int)(now.pc - start) / 4, WSTOPSIG(status), info.si_code);
        if (info.si_code == TRAP_BRKPT)
            break;
        for (turns = 0; turns < 10000; turns++)
            ;
    }
    now.pc += 4;
    CHECK(ptrace(PTRACE_SETREGSET, child, (void *)NT_PRSTATUS, &place) == 0);
    CHECK(ptrace(PTRACE_SINGLESTEP, child, 0, 0) == 0 && waitpid(child, &status, 0) == child);
    // It is killed in the middle of steps.
    CHECK(kill(child, SIGKILL) == 0 && waitpid(child, &status, 0) == child);
    printf("killed by %d\n", WTERMSIG(status));
    sleep_ms(20);
    CHECK(waitpid(other, &status, WNOHANG) == 0);
    CHECK(kill(other, SIGKILL) == 0 && waitpid(other, &status, 0) == other);
    printf("the other: killed by %d\n", WTERMSIG(status));
    return 0;
}
