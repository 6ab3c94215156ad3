// SPDX-License-Identifier: MIT OR Apache-2.0
//
// A signal with a frame that does not fit on the stack becomes SIGSEGV. Its handler
// can run on the alternate stack. The argument names the obstacle:
//
//   alternate  none: the handler runs there. Ends with 0
//   same       SIGSEGV also uses the same bad stack. Dies of SIGSEGV
//   segv       the first signal is SIGSEGV itself. Dies of SIGSEGV
//   blocked    SIGSEGV is blocked. Dies of SIGSEGV
//   small      the alternate stack is too small. Dies of SIGSEGV

#include "common.h"

static char stack[64 << 10];
static volatile int usr1_ran;

static void on_usr1(int number)
{
    (void)number;
    usr1_ran = 1;
}

static void on_segv(int number, siginfo_t *info, void *context)
{
    sigset_t now;
    char here;

    (void)context;
    sigprocmask(SIG_BLOCK, NULL, &now);
    EXPECT(number == SIGSEGV && !usr1_ran, "which handler ran?");
    EXPECT(&here > stack && &here < stack + sizeof stack, "on which stack?");
    EXPECT(info->si_code == SI_KERNEL, "si_code %d", info->si_code);
    EXPECT(info->si_addr == NULL, "si_addr %p", info->si_addr);
    EXPECT(sigismember(&now, SIGSEGV) && !sigismember(&now, SIGUSR1) &&
               !sigismember(&now, SIGUSR2), "the mask of the lost handler");
    _exit(0);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "alternate";
    bool same = strcmp(how, "same") == 0, segv = strcmp(how, "segv") == 0;
    struct sigaction action = {.sa_flags = SA_SIGINFO | (same ? 0 : SA_ONSTACK)};
    stack_t alternate = {.ss_sp = stack, .ss_size = sizeof stack};
    char *bad = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    long process = getpid(), thread = syscall(SYS_gettid), result;
    int number = segv ? SIGSEGV : SIGUSR1;

    if (strcmp(how, "small") == 0)
        alternate.ss_sp = bad, alternate.ss_size = MINSIGSTKSZ > 4096 ? MINSIGSTKSZ : 4096;
    EXPECT(sigaltstack(&alternate, NULL) == 0, "sigaltstack");
    action.sa_sigaction = on_segv;
    if (segv)
        action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, NULL);
    action.sa_flags = 0;
    action.sa_handler = on_usr1;
    sigaddset(&action.sa_mask, SIGUSR2);
    sigaction(SIGUSR1, &action, NULL);
    if (strcmp(how, "blocked") == 0) {
        sigset_t set;

        sigemptyset(&set);
        sigaddset(&set, SIGSEGV);
        sigprocmask(SIG_BLOCK, &set, NULL);
    }
    // tgkill with an invalid stack pointer.
#if defined(__aarch64__)
    register long x8 __asm__("x8") = SYS_tgkill, x0 __asm__("x0") = process;
    register long x1 __asm__("x1") = thread, x2 __asm__("x2") = number;

    __asm__ volatile("mov x19, sp\n\t"
                     "mov sp, %4\n\t"
                     "svc #0\n\t"
                     "mov sp, x19"
                     : "+r"(x0)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(bad + 4096)
                     : "x19", "memory");
    result = x0;
#else
    __asm__ volatile("mov %%rsp, %%rbx\n\t"
                     "mov %5, %%rsp\n\t"
                     "syscall\n\t"
                     "mov %%rbx, %%rsp"
                     : "=a"(result)
                     : "a"(SYS_tgkill), "D"(process), "S"(thread),
                       "d"((long)number), "r"(bad + 4096)
                     : "rbx", "rcx", "r11", "memory");
#endif
    EXPECT(false, "went on after the signal: %ld", result);
}
