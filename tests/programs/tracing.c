// SPDX-License-Identifier: MIT OR Apache-2.0
//
// ptrace as on Linux: stops, registers, memory, steps, signals. The output is the same on
// Linux.

#include "tracing.h"

static volatile long word = 0x1122334455667788;
static volatile int handled;
// Never mapped.
static char *volatile nowhere = (char *)8;

static void handle(int signal)
{
    handled = signal;
}

static void nothing(void)
{
}

static void exits_7(void)
{
    _exit(7);
}

static void stops(void)
{
    pid_t child = traced(exits_7);
    siginfo_t info = {0};

    SAY_PTRACE("info", PTRACE_GETSIGINFO, child, 0, &info);
    printf("signal %d code %d from itself %d\n", info.si_signo, info.si_code, info.si_pid == child);
    SAY_PTRACE("good option", PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD);
    SAY_PTRACE("bad option", PTRACE_SETOPTIONS, child, 0, 1 << 30);
    SAY_PTRACE("bad signal", PTRACE_CONT, child, 0, 65);
    SAY_PTRACE("bad request", 9999, child, 0, 0);
    SAY_PTRACE("no info there", PTRACE_GETSIGINFO, child, 0, 8);
    SAY_PTRACE("listen", PTRACE_LISTEN, child, 0, 0);
    SAY_PTRACE("interrupt", PTRACE_INTERRUPT, child, 0, 0);
    printf("nothing new: %d\n", waitpid(child, NULL, WNOHANG | __WALL));
    SAY_PTRACE("go on", PTRACE_CONT, child, 0, 0);
    say_wait("child", child);
    say_wait("again", child);

    // Waiting needs no option; waitid reports it as trapped.
    child = traced(exits_7);
    CHECK(PTRACE(PTRACE_CONT, child, 0, SIGSTOP) == 0);
    info = (siginfo_t){0};
    CHECK(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == 0);
    printf("code %d status %d\n", info.si_code, info.si_status);
    say_wait("whole process", child);
    SAY_PTRACE("info", PTRACE_GETSIGINFO, child, 0, &info);
    CHECK(PTRACE(PTRACE_CONT, child, 0, 0) == 0);
    say_wait("child", child);
}

static void makes_calls(void)
{
    syscall(SYS_getppid);
    syscall(SYS_close, -1);
    syscall(SYS_dup, 1000);
    syscall(SYS_exit_group, 3);
}

static void say_call(pid_t child, int status)
{
    struct user_regs_struct registers = registers_of(child);
    unsigned long message = 99;
    siginfo_t info;

    CHECK(PTRACE(PTRACE_GETEVENTMSG, child, 0, &message) == 0);
    CHECK(PTRACE(PTRACE_GETSIGINFO, child, 0, &info) == 0);
    long result = (long)registers.rax;
    printf("stop %#x call %ld message %lu code %#x ", status >> 8, registers.orig_rax, message,
           info.si_code);
    printf(result == (long)getpid() ? "result: the tracer\n" : "result %ld\n", result);
}

static void calls(void)
{
    for (int good = 0; good < 2; good++) {
        pid_t child = traced(makes_calls);
        int status;

        if (good)
            CHECK(PTRACE(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD) == 0);
        // Continues through the rest of the call that caused the first stop.
        while (WIFSTOPPED(status = after(child, PTRACE_SYSCALL, 0)))
            say_call(child, status);
        say_status("child", status);
    }

    // Replaces a call, cancels one, and changes a result.
    pid_t child = traced(makes_calls);
    long call = -1;
    int status, is_entry = 1;
    while (WIFSTOPPED(status = after(child, PTRACE_SYSCALL, 0))) {
        struct user_regs_struct registers = registers_of(child);
        if (is_entry)
            call = (long)registers.orig_rax;
        if (is_entry && call == SYS_getppid)
            registers.orig_rax = SYS_getpid;
        if (is_entry && call == SYS_close)
            registers.orig_rax = ~0ull;
        if (!is_entry && call == SYS_dup)
            registers.rax = 77;
        if (!is_entry && call == SYS_getppid)
            printf("another call: %d\n", (pid_t)registers.rax == child);
        if (!is_entry && call == SYS_close)
            printf("no call: %ld\n", registers.rax);
        if (is_entry && call == SYS_exit_group)
            registers.rdi = 42;
        CHECK(PTRACE(PTRACE_SETREGS, child, 0, &registers) == 0);
        is_entry = !is_entry;
    }
    say_status("child", status);

    // A signal at the entry of a call.
    child = traced(makes_calls);
    CHECK(PTRACE(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD) == 0);
    after(child, PTRACE_SYSCALL, 0);
    say_status("with a signal", after(child, PTRACE_CONT, SIGUSR1));
    siginfo_t info;
    CHECK(PTRACE(PTRACE_GETSIGINFO, child, 0, &info) == 0);
    printf("signal %d code %#x\n", info.si_signo, info.si_code);
    say_status("child", after(child, PTRACE_CONT, 0));
}

static void sends_signals(void)
{
    signal(SIGUSR1, handle);
    signal(SIGUSR2, handle);
    handled = 0;
    send_self(SIGUSR1);
    if (handled != SIGUSR1)
        _exit(1);
    handled = 0;
    send_self(SIGUSR1);
    if (handled != 0)
        _exit(2);
    send_self(SIGUSR1);
    if (handled != SIGUSR2)
        _exit(3);
    // Ignored by the tracee, but reported to the tracer.
    send_self(SIGCHLD);
    send_self(SIGTERM);
    _exit(4);
}

static void signals(void)
{
    pid_t child = traced(sends_signals);

    say_status("handled", after(child, PTRACE_CONT, 0));
    say_status("dropped", after(child, PTRACE_CONT, SIGUSR1));
    say_status("changed", after(child, PTRACE_CONT, 0));
    say_status("ignored", after(child, PTRACE_CONT, SIGUSR2));
    say_status("deadly", after(child, PTRACE_CONT, SIGCHLD));
    say_status("child", after(child, PTRACE_CONT, SIGTERM));

    child = traced(sends_signals);
    say_status("first", after(child, PTRACE_CONT, 0));
    say_status("killed", after(child, PTRACE_CONT, SIGKILL));

    // A fault is reported to the tracer first, blocked or not.
    child = fork();
    if (child == 0) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        CHECK(PTRACE(PTRACE_TRACEME, 0, 0, 0) == 0);
        send_self(SIGSTOP);
        *nowhere = 1;
        _exit(5);
    }
    say_wait("blocked", child);
    say_status("fault", after(child, PTRACE_CONT, 0));
    siginfo_t info;
    CHECK(PTRACE(PTRACE_GETSIGINFO, child, 0, &info) == 0);
    printf("signal %d code %d address %p\n", info.si_signo, info.si_code, info.si_addr);
    say_status("fault again", after(child, PTRACE_CONT, 0));
    say_status("child", after(child, PTRACE_CONT, SIGSEGV));
}

// To be patched: returns 1.
__attribute__((noinline, noclone)) static int patched(void)
{
    int one;

    __asm__ volatile("movl $1, %0" : "=r"(one));
    return one;
}

static char *none, *readable, *shared;

static void sees_changes(void)
{
    if (word != 0x1234)
        _exit(1);
    if (patched() != 1)
        _exit(2);
    if (readable[0] != 'w' || readable[4095] != 'x' || readable[4096] != 'y')
        _exit(3);
    CHECK(mprotect(none, 4096, PROT_READ) == 0);
    if (none[0] != 'n' || none[8] != 'p')
        _exit(4);
    *readable = 1;
}

static void memory(void)
{
    none = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    readable = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    shared = mmap(NULL, 4096, PROT_READ, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(none != MAP_FAILED && readable != MAP_FAILED && shared != MAP_FAILED);
    none[0] = 'n';
    CHECK(mprotect(none, 4096, PROT_NONE) == 0);

    pid_t child = traced(sees_changes);
    long seen = 0;
    SAY_PTRACE("peek", PTRACE_PEEKDATA, child, &word, &seen);
    printf("%#lx\n", seen);
    SAY_PTRACE("peek to nowhere", PTRACE_PEEKDATA, child, &word, 8);
    SAY_PTRACE("peek nothing", PTRACE_PEEKTEXT, child, 8, &seen);
    SAY_PTRACE("peek above", PTRACE_PEEKTEXT, child, -8, &seen);
    SAY_PTRACE("peek at the end", PTRACE_PEEKTEXT, child, -4, &seen);
    SAY_PTRACE("poke nothing", PTRACE_POKETEXT, child, 8, 1);
    SAY_PTRACE("poke", PTRACE_POKEDATA, child, &word, 0x1234);
    printf("own %#lx\n", word);
    SAY_PTRACE("peek none", PTRACE_PEEKDATA, child, none, &seen);
    printf("%#lx\n", seen);
    SAY_PTRACE("poke none", PTRACE_POKEDATA, child, none + 8, 'p');
    SAY_PTRACE("peek untouched", PTRACE_PEEKDATA, child, readable, &seen);
    printf("%#lx\n", seen);
    SAY_PTRACE("poke readable", PTRACE_POKEDATA, child, readable, 'w');
    SAY_PTRACE("poke across", PTRACE_POKEDATA, child, readable + 4095, 'x' | 'y' << 8);
    SAY_PTRACE("peek across", PTRACE_PEEKDATA, child, readable + 4095, &seen);
    printf("%#lx\n", seen);
    SAY_PTRACE("peek shared", PTRACE_PEEKDATA, child, shared, &seen);
    SAY_PTRACE("poke shared", PTRACE_POKEDATA, child, shared, 1);
    // A breakpoint in text that the program may not write.
    long text = 0;
    CHECK(PTRACE(PTRACE_PEEKTEXT, child, patched, &text) == 0);
    SAY_PTRACE("break", PTRACE_POKETEXT, child, patched, (text & ~0xffl) | 0xcc);
    say_status("there", after(child, PTRACE_CONT, 0));
    struct user_regs_struct registers = registers_of(child);
    printf("behind it: %d, ours runs: %d\n", registers.rip == (unsigned long)patched + 1, patched());
    siginfo_t info;
    CHECK(PTRACE(PTRACE_GETSIGINFO, child, 0, &info) == 0);
    printf("code %#x\n", info.si_code);
    registers.rip--;
    CHECK(PTRACE(PTRACE_SETREGS, child, 0, &registers) == 0);
    SAY_PTRACE("mend", PTRACE_POKETEXT, child, patched, text);
    // The text is still not writable for the program.
    say_status("fault", after(child, PTRACE_CONT, 0));
    say_status("child", after(child, PTRACE_CONT, SIGSEGV));
    munmap(none, 4096);
    munmap(readable, 8192);
    munmap(shared, 4096);
}

static void registers(void)
{
    pid_t child = traced(nothing);
    struct user_regs_struct all = registers_of(child), other;
    struct iovec place = {&other, sizeof other};
    long value = 0;

    printf("segments %#lx %#lx %#lx %#lx\n", all.cs, all.ss, all.ds, all.es);
    printf("call %ld result %ld\n", all.orig_rax, all.rax);
    SAY_PTRACE("set", PTRACE_GETREGSET, child, NT_PRSTATUS, &place);
    printf("%zu bytes, the same %d\n", place.iov_len, memcmp(&all, &other, sizeof all) == 0);
    place = (struct iovec){&other, 16};
    SAY_PTRACE("part", PTRACE_GETREGSET, child, NT_PRSTATUS, &place);
    printf("%zu bytes\n", place.iov_len);
    place = (struct iovec){&other, 4096};
    SAY_PTRACE("more", PTRACE_GETREGSET, child, NT_PRSTATUS, &place);
    printf("%zu bytes\n", place.iov_len);
    place = (struct iovec){&other, 12};
    SAY_PTRACE("odd", PTRACE_GETREGSET, child, NT_PRSTATUS, &place);
    place = (struct iovec){&other, sizeof other};
    SAY_PTRACE("unknown set", PTRACE_GETREGSET, child, 77, &place);
    SAY_PTRACE("no place", PTRACE_GETREGSET, child, NT_PRSTATUS, 8);
    SAY_PTRACE("nowhere", PTRACE_GETREGS, child, 0, 8);
    SAY_PTRACE("user", PTRACE_PEEKUSER, child, 8 * RIP, &value);
    printf("the same %d\n", (unsigned long)value == all.rip);
    SAY_PTRACE("user odd", PTRACE_PEEKUSER, child, 3, &value);
    SAY_PTRACE("user beyond", PTRACE_PEEKUSER, child, 928, &value);
    SAY_PTRACE("user last", PTRACE_PEEKUSER, child, 920, &value);
    SAY_PTRACE("user below", PTRACE_PEEKUSER, child, -8, &value);
    SAY_PTRACE("poke odd", PTRACE_POKEUSER, child, 3, 0);
    SAY_PTRACE("poke base", PTRACE_POKEUSER, child, 8 * FS_BASE, -4096l);
    SAY_PTRACE("poke code segment", PTRACE_POKEUSER, child, 8 * CS, 0);
    SAY_PTRACE("poke data segment", PTRACE_POKEUSER, child, 8 * DS, 0x10);
    SAY_PTRACE("poke flags", PTRACE_POKEUSER, child, 8 * EFLAGS, -1);
    CHECK(PTRACE(PTRACE_PEEKUSER, child, 8 * EFLAGS, &value) == 0);
    // All flags that a program may set, except for one that differs between CPUs.
    printf("flags %#lx\n", value & ~0x104000l);
    SAY_PTRACE("all", PTRACE_SETREGS, child, 0, &all);
    // An instruction pointer that is not canonical.
    SAY_PTRACE("poke nowhere", PTRACE_POKEUSER, child, 8 * RIP, 0x8000000000001234);
    CHECK(PTRACE(PTRACE_PEEKUSER, child, 8 * RIP, &value) == 0);
    printf("%#lx\n", value);
    say_status("fault", after(child, PTRACE_CONT, 0));
    say_status("child", after(child, PTRACE_CONT, SIGSEGV));
}

__attribute__((noinline, noclone)) static void steps(void)
{
    __asm__ volatile("1: nop; nop; mov $39, %%eax; syscall; nop; nop; ud2" ::: "rax", "rcx", "r11");
}

static void goes_steps(void)
{
    signal(SIGUSR1, handle);
    steps();
}

static void stepping(void)
{
    pid_t child = traced(goes_steps);
    struct user_regs_struct registers;
    unsigned long last;
    int status, into_handler = 0;

    // Steps to the first instruction.
    CHECK(PTRACE(PTRACE_PEEKTEXT, child, steps, &last) == 0);
    do {
        CHECK(WIFSTOPPED(after(child, PTRACE_SINGLESTEP, 0)));
        registers = registers_of(child);
    } while (registers.rip < (unsigned long)steps || registers.rip > (unsigned long)steps + 8);
    last = registers.rip;
    for (int step = 0; step < 12; step++) {
        int signal = 0;
        if (step == 5) {
            // A step into a handler stops at the handler's start.
            signal = SIGUSR1;
            into_handler = 1;
        }
        status = after(child, PTRACE_SINGLESTEP, signal);
        if (!WIFSTOPPED(status))
            break;
        registers = registers_of(child);
        siginfo_t info = {0};
        CHECK(PTRACE(PTRACE_GETSIGINFO, child, 0, &info) == 0);
        if (into_handler) {
            printf("stop %#x code %#x in the handler %d\n", status >> 8, info.si_code,
                   registers.rip == (unsigned long)handle);
            break;
        }
        printf("stop %#x code %#x moved %lld flag %d\n", status >> 8, info.si_code,
               (long long)(registers.rip - last), (registers.eflags & 0x100) != 0);
        last = registers.rip;
    }
    // The handler returns to code without the trap flag.
    say_status("after", after(child, PTRACE_CONT, 0));
    say_status("child", after(child, PTRACE_CONT, SIGILL));
}

static void forks(void)
{
    pid_t child = (pid_t)syscall(SYS_fork);
    int status;

    if (child == 0)
        _exit(3);
    CHECK(waitpid(child, &status, 0) == child);
    _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 98);
}

// The child of a stepped process is not stepped.
static void a_step_that_forks(void)
{
    pid_t child = traced(forks);
    int status;

    do
        status = after(child, PTRACE_SINGLESTEP, 0);
    while (WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
    if (WIFSTOPPED(status))
        status = after(child, PTRACE_CONT, 0);
    say_status("it has forked", status);
}

static void executes(void)
{
    char *arguments[] = {"test", "9", NULL};

    execve("/proc/self/exe", arguments, (char *[]){NULL});
    _exit(100);
}

static void programs(void)
{
    pid_t child = traced(executes);
    siginfo_t info;

    say_status("program", after(child, PTRACE_CONT, 0));
    CHECK(PTRACE(PTRACE_GETSIGINFO, child, 0, &info) == 0);
    printf("signal %d code %d from itself %d\n", info.si_signo, info.si_code, info.si_pid == child);
    say_status("child", after(child, PTRACE_CONT, 0));

    // The call's exit is reported before the signal.
    child = traced(executes);
    CHECK(PTRACE(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD) == 0);
    int status;
    do
        status = after(child, PTRACE_SYSCALL, 0);
    while (registers_of(child).orig_rax != SYS_execve);
    say_status("begins", status);
    say_status("ends", after(child, PTRACE_SYSCALL, 0));
    printf("call %ld result %ld\n", registers_of(child).orig_rax, registers_of(child).rax);
    say_status("signal", after(child, PTRACE_SYSCALL, 0));
    say_status("child", after(child, PTRACE_CONT, 0));
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return atoi(argv[1]);
    setvbuf(stdout, NULL, _IOLBF, 0);
    stops();
    calls();
    signals();
    memory();
    registers();
    stepping();
    a_step_that_forks();
    programs();
    CHECK(waitpid(-1, NULL, __WALL) == -1 && errno == ECHILD);
    printf("done\n");
    return 0;
}
