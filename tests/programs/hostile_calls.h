// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Random system calls: the numbers that the kernel knows with arguments of
// about the right kinds, and other numbers. Threads and processes that
// calls create do the same.

#ifndef TESTS_HOSTILE_CALLS_H
#define TESTS_HOSTILE_CALLS_H

#include "hostile_values.h"

// One letter for each argument: a anything, b buffer, c clone's arguments,
// d descriptor, f flags, g signal, h handler, i small number, l length,
// m events, n path, o offset, p process, q ptrace's request, r strings,
// s small structure, t time, v vectors, w ptrace's address.
static const struct {
    short number, weight;
    const char *kinds;
} calls[] = {
    {SYS_mmap, 8, "blixdo"}, {SYS_munmap, 4, "bl"}, {SYS_mprotect, 4, "blf"},
    {SYS_madvise, 6, "bli"}, {SYS_brk, 2, "b"}, {SYS_futex, 8, "bitbti"},
    {SYS_rt_sigaction, 8, "ghb8"}, {SYS_rt_sigprocmask, 3, "isb8"},
    {SYS_rt_sigpending, 1, "b8"}, {SYS_rt_sigsuspend, 1, "s8"},
    {SYS_rt_sigtimedwait, 1, "sbt8"}, {SYS_pause, 1, ""},
    {SYS_sigaltstack, 3, "vb"}, {SYS_kill, 2, "pg"}, {SYS_tkill, 2, "pg"},
    {SYS_rt_sigqueueinfo, 2, "pgs"}, {SYS_rt_tgsigqueueinfo, 2, "ppgs"},
    {SYS_tgkill, 3, "ppg"}, {SYS_set_tid_address, 1, "b"},
    {SYS_get_robust_list, 1, "pbb"}, {SYS_set_robust_list, 2, "vi"},
    {SYS_gettid, 1, ""}, {SYS_arch_prctl, 1, "ab"}, {SYS_prctl, 2, "iaaaa"},
    {SYS_sched_yield, 2, ""}, {SYS_sched_getaffinity, 1, "plb"},
    {SYS_sched_setaffinity, 2, "pls"}, {SYS_getcpu, 1, "bb"},
    {SYS_nanosleep, 1, "tb"}, {SYS_clock_nanosleep, 1, "iitb"},
    {SYS_clock_gettime, 2, "ib"}, {SYS_clock_getres, 1, "ib"},
    {SYS_gettimeofday, 1, "bb"}, {SYS_time, 1, "b"}, {SYS_times, 1, "b"},
    {SYS_getpid, 1, ""}, {SYS_getppid, 1, ""}, {SYS_getpgid, 1, "p"},
    {SYS_getsid, 1, "p"}, {SYS_setpgid, 2, "pp"}, {SYS_setsid, 1, ""},
    {SYS_wait4, 4, "pbib"}, {SYS_waitid, 4, "ipbfb"},
    {SYS_sched_getscheduler, 1, "p"}, {SYS_sched_setscheduler, 1, "pis"},
    {SYS_sched_getparam, 1, "pb"}, {SYS_sched_setparam, 1, "ps"},
    {SYS_sched_rr_get_interval, 1, "pb"}, {SYS_getpriority, 1, "ip"},
    {SYS_setpriority, 1, "ipi"}, {SYS_getgroups, 1, "ib"},
    {SYS_setgroups, 1, "ib"}, {SYS_getresuid, 1, "bbb"},
    {SYS_setitimer, 3, "itb"}, {SYS_getitimer, 1, "ib"}, {SYS_alarm, 1, "i"},
    {SYS_timer_create, 3, "isb"}, {SYS_timer_settime, 4, "iitb"},
    {SYS_timer_gettime, 1, "ib"}, {SYS_timer_getoverrun, 1, "i"},
    {SYS_timer_delete, 2, "i"}, {SYS_uname, 1, "b"}, {SYS_sysinfo, 1, "b"},
    {SYS_prlimit64, 3, "pisb"}, {SYS_getrlimit, 1, "ib"},
    {SYS_setrlimit, 2, "iv"}, {SYS_getrusage, 1, "ib"},
    {SYS_mremap, 2, "bllfb"}, {SYS_mincore, 2, "blb"}, {SYS_rseq, 1, "blfa"},
    {SYS_membarrier, 2, "i"}, {462 /* mseal */, 1, "bl"},
    {434 /* pidfd_open */, 1, "p"}, {440 /* process_madvise */, 2, "dvii"},
    {SYS_mlock, 1, "bl"}, {SYS_mlock2, 1, "bli"}, {SYS_munlock, 1, "bl"},
    {SYS_mlockall, 1, "i"}, {SYS_munlockall, 1, ""}, {SYS_msync, 1, "blf"},
    {SYS_get_mempolicy, 2, "bbibi"}, {SYS_set_mempolicy, 2, "ibi"},
    {SYS_mbind, 2, "blibii"}, {SYS_migrate_pages, 1, "pibb"},
    {SYS_move_pages, 2, "pibbbi"}, {SYS_remap_file_pages, 2, "bl0if"},
    {SYS_memfd_create, 3, "nf"}, {SYS_ptrace, 6, "qpwb"},
    {SYS_process_vm_readv, 3, "pvivi0"}, {SYS_process_vm_writev, 2, "pvivi0"},
    {SYS_read, 8, "dbl"}, {SYS_write, 8, "dbl"}, {SYS_pread64, 3, "dbla"},
    {SYS_pwrite64, 3, "dbla"}, {SYS_readv, 4, "dvi"}, {SYS_writev, 4, "dvi"},
    {SYS_preadv, 2, "dviaa"}, {SYS_pwritev, 2, "dviaa"},
    {SYS_preadv2, 2, "dviaaf"}, {SYS_pwritev2, 2, "dviaaf"},
    {SYS_lseek, 4, "dai"}, {SYS_sendfile, 2, "ddbl"},
    {SYS_getrandom, 2, "blf"}, {SYS_open, 10, "nff"},
    {SYS_openat, 8, "dnff"}, {SYS_creat, 4, "nf"}, {SYS_close, 3, "d"},
    {SYS_close_range, 1, "ddf"}, {SYS_pipe, 4, "b"}, {SYS_pipe2, 3, "bf"},
    {SYS_stat, 2, "nb"}, {SYS_lstat, 2, "nb"}, {SYS_fstat, 2, "db"},
    {SYS_newfstatat, 2, "dnbf"}, {SYS_statx, 2, "dnffb"},
    {SYS_access, 1, "ni"}, {SYS_faccessat, 1, "dni"},
    {SYS_faccessat2, 1, "dnif"}, {SYS_readlink, 2, "nbl"},
    {SYS_readlinkat, 2, "dnbl"}, {SYS_statfs, 1, "nb"}, {SYS_fstatfs, 1, "db"},
    {SYS_getdents64, 4, "dbl"}, {SYS_getdents, 2, "dbl"},
    {SYS_getcwd, 2, "bl"}, {SYS_chdir, 3, "n"}, {SYS_fchdir, 2, "d"},
    {SYS_mkdir, 4, "nf"}, {SYS_mkdirat, 3, "dnf"}, {SYS_mknod, 2, "nfa"},
    {SYS_mknodat, 1, "dnfa"}, {SYS_rmdir, 3, "n"}, {SYS_unlink, 3, "n"},
    {SYS_unlinkat, 2, "dnf"}, {SYS_rename, 4, "nn"},
    {SYS_renameat, 2, "dndn"}, {SYS_renameat2, 3, "dndni"},
    {SYS_link, 3, "nn"}, {SYS_linkat, 2, "dndnf"}, {SYS_symlink, 4, "nn"},
    {SYS_symlinkat, 2, "ndn"}, {SYS_truncate, 3, "nl"},
    {SYS_ftruncate, 4, "dl"}, {SYS_fallocate, 3, "dill"},
    {SYS_chmod, 1, "nf"}, {SYS_fchmodat, 1, "dnf"}, {SYS_fchmod, 1, "df"},
    {SYS_chown, 1, "naa"}, {SYS_fchownat, 1, "dnaaf"}, {SYS_fchown, 1, "daa"},
    {SYS_utimensat, 2, "dntf"}, {SYS_utime, 1, "nt"}, {SYS_utimes, 1, "nt"},
    {SYS_umask, 1, "i"}, {SYS_dup, 4, "d"}, {SYS_dup2, 4, "dd"},
    {SYS_dup3, 2, "ddf"}, {SYS_fcntl, 6, "dia"}, {SYS_flock, 1, "di"},
    {SYS_ioctl, 2, "dab"}, {SYS_fsync, 1, "d"}, {SYS_fadvise64, 1, "dali"},
    {SYS_poll, 4, "mii"}, {SYS_ppoll, 3, "mits8"}, {SYS_select, 3, "issst"},
    {SYS_pselect6, 3, "isssts"}, {SYS_epoll_create1, 5, "f"},
    {SYS_epoll_ctl, 10, "didm"}, {SYS_epoll_wait, 3, "dbii"},
    {SYS_epoll_pwait, 2, "dbiis8"}, {SYS_eventfd2, 4, "if"},
    {SYS_copy_file_range, 1, "dbdblf"}, {SYS_splice, 1, "dbdblf"},
    {SYS_vmsplice, 2, "dvii"},
    {SYS_execve, 2, "nrr"}, {SYS_rt_sigreturn, 1, ""}, {SYS_clone, 4, "cbbbb"},
    {SYS_clone3, 3, "cl"}, {SYS_fork, 2, ""}, {SYS_vfork, 1, ""},
    {SYS_exit, 1, "i"}, {SYS_exit_group, 1, "i"},
};

enum { CALLS = sizeof calls / sizeof *calls, MOST_FORKS = 8, MOST_DEPTH = 3 };

// Shared with the processes that share this process's memory.
static volatile int forks, depth;
static void hostile_thread(void) __attribute__((used, noreturn));
static char stacks[8][32 << 10] __attribute__((aligned(16)));

// Makes a call without the C library. A thread or process that starts on another stack
// (`apart`) runs hostile_thread().
static __attribute__((noinline)) long call(word number, const word a[6],
                                           word apart)
{
#if defined(__aarch64__)
    register word x8 __asm__("x8") = number, x9 __asm__("x9") = apart;
    register word result __asm__("x0") = a[0];
    register word x1 __asm__("x1") = a[1], x2 __asm__("x2") = a[2];
    register word x3 __asm__("x3") = a[3], x4 __asm__("x4") = a[4], x5 __asm__("x5") = a[5];

    __asm__ volatile("svc #0\n"
                     "cbnz x0, 1f\n"
                     "cbz x9, 1f\n"
                     "mov x9, sp\n"
                     "and sp, x9, #-16\n"
                     "bl hostile_thread\n"
                     "1:\n"
                     : "+r"(result), "+r"(x9)
                     : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "x30", "memory", "cc");
    return (long)result;
#else
    register word r10 __asm__("r10") = a[3];
    register word r8 __asm__("r8") = a[4];
    register word r9 __asm__("r9") = a[5];
    register word r12 __asm__("r12") = apart;
    long result;

    __asm__ volatile("syscall\n"
                     "test %%rax, %%rax\n"
                     "jnz 1f\n"
                     "test %%r12, %%r12\n"
                     "jz 1f\n"
                     "and $-16, %%rsp\n"
                     "call hostile_thread\n"
                     "1:\n"
                     : "=a"(result)
                     : "a"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10),
                       "r"(r8), "r"(r9), "r"(r12)
                     : "rcx", "r11", "memory");
    return result;
#endif
}

static inline long plain(word number, word a, word b)
{
    return call(number, (word[6]){a, b}, 0);
}

// A count that is another each time.
static inline word ticks(void)
{
#if defined(__aarch64__)
    word count;

    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(count));
    return count;
#else
    return __builtin_ia32_rdtsc();
#endif
}

// Does nothing, or spoils what the kernel will restore.
static void handler(int signal, siginfo_t *info, void *context)
{
    word random = (word)info ^ (word)signal << 32 ^ plain(SYS_gettid, 0, 0) << 40
        ^ ticks();
    word *frame = context;

#if defined(__aarch64__)
    // Registers, and the records behind them.
    if (one_in(&random, 2))
        frame[next(&random) % 140] = anything(&random);
#else
    if (one_in(&random, 3))
        frame[next(&random) % 40] = anything(&random);
    if (one_in(&random, 4))
        ((word *)frame[28])[next(&random) % 80] = anything(&random);
#endif
}

#if defined(__aarch64__)
__asm__(".text\nhostile_restorer:\n\tmov x8, #139\n\tsvc #0\n");
#else
__asm__(".text\nhostile_restorer:\n\tmov $15, %eax\n\tsyscall\n");
#endif
extern char hostile_restorer[];

// Flags of clone: often those of a thread, or of a process that shares much.
static word clone_flags(word *random)
{
    static const word usual[] = {0x10f00, 0x10f00, 0x3d0f00, 0x100, 0x4100,
                                 0x4000, 0x8100, 0x400, 0x300, 0x800, 0};
    word all = usual[next(random) % (sizeof usual / sizeof *usual)];

    return one_in(random, 3) ? all ^ 1ul << next(random) % 34 : all;
}

static word argument(char kind, word number, word *random)
{
    word *at;

    if (one_in(random, 24))
        return anything(random);
    switch (kind) {
    case 'b':
        return one_in(random, 8) ? 0 : address(random);
    case 'c':
        if (number == SYS_clone)
            return clone_flags(random) | next(random) % 70;
        at = place(random, 88);
        for (int i = 0; i < 11; i++)
            at[i] = one_in(random, 20) ? anything(random) : 0;
        at[0] = clone_flags(random);
        at[4] = next(random) % 65;
        at[5] = (word)stacks[next(random) % 8];
        at[6] = sizeof stacks[0];
        return (word)at;
    case 'd':
        return descriptor(random);
    case 'f':
        return flags(random);
    case 'g':
        return one_in(random, 4) ? next(random) % 66 : 10 + next(random) % 20;
    case 'h':
        at = place(random, 32);
        at[0] = one_in(random, 8) ? address(random)
                                  : (word[]){0, 1, (word)handler,
                                             (word)handler}[next(random) % 4];
        at[1] = 4 | 0x04000000 | (next(random) & 0xd8000003);
        at[2] = one_in(random, 8) ? anything(random) : (word)hostile_restorer;
        at[3] = one_in(random, 2) ? 0 : next(random);
        return (word)at;
    case 'i':
        return next(random) % (one_in(random, 4) ? 600 : 16);
    case 'l':
        return length(random);
    case 'm':
        at = place(random, 64);
        for (int i = 0; i < 8; i++)
            at[i] = descriptor(random) | next(random) << 32;
        return (word)at;
    case 'n':
        return path(random);
    case 'o':
        return one_in(random, 4) ? anything(random) : next(random) % 24 * PAGE;
    case 'p':
        return process(random);
    case 'q': // the old requests, and those of SEIZE's kind
        return one_in(random, 2) ? next(random) % 34 : 0x4200 + next(random) % 20;
    case 'w': // a kind of registers, a size, a place in the other's memory
        return (word[]){1, 2, 0x202, 8, 16, anything(random), address(random),
                        address(random)}[next(random) % 8];
    case 'r':
        at = place(random, 64);
        for (int i = 0; i < 7; i++)
            at[i] = one_in(random, 20) ? anything(random)
                : one_in(random, 4)    ? 0
                                       : path(random);
        at[7] = 0;
        return (word)at;
    case 's':
        at = place(random, 128);
        for (int i = 0; i < 16; i++)
            at[i] = one_in(random, 2) ? next(random) % 64 : anything(random);
        return (word)at;
    case 't':
        return one_in(random, 10) ? 0 : time_span(random);
    case 'v':
        return vectors(random);
    case 'x': // mmap's flags: mostly what works, of anonymous memory or a file
        return (one_in(random, 3) ? 1 + next(random) % 2 : 0x22) |
            (one_in(random, 3) ? flags(random) : 0);
    case '0':
        return 0;
    case '8':
        return 8;
    default:
        return anything(random);
    }
}

// Whether a number means the supervisor, the leader, or all processes.
static bool is_guarded(word id)
{
    int number = (int)id;

    return number == -1 || number == supervisor || number == -supervisor ||
        number == leader || number == -leader;
}

// Keeps a call from ending the run itself, and from forking without limit.
static bool is_fair(word number, const word a[6])
{
    switch (number) {
    case SYS_kill:
    case SYS_tkill:
    case SYS_rt_sigqueueinfo:
    case SYS_prlimit64:
        return !is_guarded(a[0]);
    case SYS_tgkill:
    case SYS_rt_tgsigqueueinfo:
        return !is_guarded(a[0]) && !is_guarded(a[1]);
    case SYS_ptrace:
        return !is_guarded(a[1]);
    case SYS_process_vm_writev:
        return !is_guarded(a[0]);
    case SYS_fork:
    case SYS_vfork:
    case SYS_clone:
    case SYS_clone3:
        return forks++ < MOST_FORKS && depth < MOST_DEPTH;
    default:
        return true;
    }
}

static long fair_call(word number, word a, word b, word c, word d, word e)
{
    word all[6] = {a, b, c, d, e};

    return is_fair(number, all) ? call(number, all, 0) : -1;
}

// Traces another process, because single random calls have no effect: attaches or seizes it, waits
// for it, reads and changes it, and usually detaches.
static void trace(word *random)
{
    enum { CONT = 7, ATTACH = 16, DETACH = 17, SEIZE = 0x4206, INTERRUPT = 0x4207 };
    word other = process(random), seizes = next(random) % 2;
    word options = next(random) & (one_in(random, 8) ? 0x1000ff : 0x100001);

    if (fair_call(SYS_ptrace, seizes ? SEIZE : ATTACH, other, 0,
                  seizes ? options : 0, 0) != 0)
        return;
    if (seizes)
        fair_call(SYS_ptrace, INTERRUPT, other, 0, 0, 0);
    for (word n = next(random) % 24; n > 0; n--) {
        word request = argument('q', SYS_ptrace, random);
        word from = argument('w', SYS_ptrace, random);
        word to = one_in(random, 3) ? next(random) % 40
            : one_in(random, 2)     ? vectors(random)
                                    : (word)place(random, 512);

        if (one_in(random, 3)) // WNOHANG, __WALL
            fair_call(SYS_wait4, other, address(random), 0x40000001, 0, 0);
        else if (one_in(random, 4))
            fair_call(SYS_ptrace, CONT, other, 0, next(random) % 40, 0);
        else
            fair_call(SYS_ptrace, request, other, from, to, 0);
    }
    if (!one_in(random, 4))
        fair_call(SYS_ptrace, DETACH, other, 0, 0, 0);
}

// Gives advice for another process's memory, or our own.
static void advise(word *random)
{
    word other = one_in(random, 2) ? (word)plain(SYS_getpid, 0, 0) : process(random);
    long file = fair_call(434 /* pidfd_open */, other, 0, 0, 0, 0);

    if (file < 0)
        return;
    for (word n = next(random) % 4; n > 0; n--)
        fair_call(440 /* process_madvise */, (word)file, vectors(random),
                  next(random) % 9, next(random) % 27, 0);
    plain(SYS_close, (word)file, 0);
}

static void one_call(word *random)
{
    word chosen = 0, number, a[6], apart = 0;
    const char *kinds = "aaaaaa";

    if (one_in(random, 48)) {
        if (one_in(random, 2))
            trace(random);
        else
            advise(random);
        return;
    }
    if (one_in(random, 32)) {
        number = one_in(random, 4) ? anything(random) : next(random) % 470;
        for (int i = 0; i < 6; i++)
            a[i] = anything(random);
    } else {
        // A call with a greater weight is chosen more often.
        do
            chosen = next(random) % CALLS;
        while (next(random) % 10 >= (word)calls[chosen].weight);
        number = (word)calls[chosen].number;
        kinds = calls[chosen].kinds;
        for (int i = 0; i < 6; i++)
            a[i] = argument(*kinds ? *kinds++ : 'a', number, random);
    }
    // The kernel uses the lower half only.
    number = one_in(random, 64) ? number | next(random) << 32 : number;
    if (!is_fair(number & 0xffffffff, a))
        return;
    if ((number & 0xffffffff) == SYS_clone && !one_in(random, 8)) {
        a[1] = (word)stacks[next(random) % 8] + sizeof stacks[0];
        apart = 1;
    }
    if ((number & 0xffffffff) == SYS_clone3)
        apart = 1;
    if (call(number, a, apart) == 0 &&
        ((number & 0xffffffff) == SYS_fork || (number & 0xffffffff) == SYS_vfork ||
         (number & 0xffffffff) == SYS_clone)) {
        depth++;
        forks = 0;
        *random ^= plain(SYS_getpid, 0, 0) << 20;
    }
}

static void hostile_thread(void)
{
    word random = (word)plain(SYS_gettid, 0, 0) * 0x9e3779b97f4a7c15 | 1;

    for (;;)
        one_call(&random);
}

#endif
