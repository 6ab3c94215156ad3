// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Which processes may trace which others, as on Linux: attaching and detaching, threads, and the ends of tracees and
// of tracers in every kind of stop. The output is the same on Linux.

#include "tracing.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>

static void handle(int signal)
{
    (void)signal;
}

static void runs(void)
{
    for (;;)
        syscall(SYS_getppid);
}

static void sleeps(void)
{
    for (;;)
        pause();
}

static pid_t child_that(void (*run)(void))
{
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        run();
        _exit(0);
    }
    return child;
}

static void exits_6(void)
{
    _exit(6);
}

static void *attach_to(void *process)
{
    long result = PTRACE(PTRACE_ATTACH, *(pid_t *)process, 0, 0);

    return (void *)(result == 0 ? 0l : (long)errno);
}

static void bad_targets(void)
{
    pid_t self = getpid();
    long value;

    SAY_PTRACE("oneself", PTRACE_ATTACH, self, 0, 0);
    SAY_PTRACE("seize oneself", PTRACE_SEIZE, self, 0, 0);
    void *result;
    CHECK(pthread_join(start(attach_to, &self), &result) == 0);
    printf("another thread: %s\n", strerror((int)(long)result));
    SAY_PTRACE("go on oneself", PTRACE_CONT, self, 0, 0);
    SAY_PTRACE("peek oneself", PTRACE_PEEKDATA, self, &value, &value);
    SAY_PTRACE("init", PTRACE_CONT, 1, 0, 0);
    SAY_PTRACE("init's memory", PTRACE_PEEKDATA, 1, &value, &value);
    SAY_PTRACE("nobody", PTRACE_ATTACH, 4194303, 0, 0);
    SAY_PTRACE("number 0", PTRACE_ATTACH, 0, 0, 0);
    SAY_PTRACE("less", PTRACE_ATTACH, -1, 0, 0);
    SAY_PTRACE("seize with an address", PTRACE_SEIZE, self, 1, 0);
    SAY_PTRACE("seize with anything", PTRACE_SEIZE, self, 0, 1l << 40);

    pid_t child = child_that(exits_6);
    siginfo_t info;
    CHECK(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == 0);
    SAY_PTRACE("dead", PTRACE_ATTACH, child, 0, 0);
    SAY_PTRACE("seize dead", PTRACE_SEIZE, child, 0, 0);
    SAY_PTRACE("not traced", PTRACE_CONT, child, 0, 0);
    say_wait("child", child);
    SAY_PTRACE("gone", PTRACE_ATTACH, child, 0, 0);

    child = child_that(sleeps);
    SAY_PTRACE("not ours", PTRACE_GETREGS, child, 0, &info);
    SAY_PTRACE("kill not ours", PTRACE_KILL, child, 0, 0);
    SAY_PTRACE("attach", PTRACE_ATTACH, child, 0, 0);
    SAY_PTRACE("twice", PTRACE_ATTACH, child, 0, 0);
    SAY_PTRACE("seize too", PTRACE_SEIZE, child, 0, 0);
    say_wait("stops", child);
    SAY_PTRACE("go on", PTRACE_CONT, child, 0, 0);
    SAY_PTRACE("it runs", PTRACE_GETREGS, child, 0, &info);
    SAY_PTRACE("detach what runs", PTRACE_DETACH, child, 0, 0);
    SAY_PTRACE("kill", PTRACE_KILL, child, 0, 0);
    say_wait("child", child);

    // Tracing twice by itself, and by a child's child.
    child = child_that(exits_6);
    say_wait("child", child);
    child = fork();
    if (child == 0) {
        if (PTRACE(PTRACE_TRACEME, 0, 0, 0) != 0)
            _exit(1);
        if (PTRACE(PTRACE_TRACEME, 0, 0, 0) != -1 || errno != EPERM)
            _exit(2);
        _exit(0);
    }
    say_wait("traced twice", child);
}

static void attaching(void)
{
    // A tracee that sleeps in a call continues it.
    pid_t child = child_that(sleeps);
    CHECK(PTRACE(PTRACE_ATTACH, child, 0, 0) == 0);
    say_wait("attached", child);
    say_status("signal", (kill(child, SIGWINCH), after(child, PTRACE_CONT, 0)));
    SAY_PTRACE("detach", PTRACE_DETACH, child, 0, SIGWINCH);
    SAY_PTRACE("no tracee", PTRACE_CONT, child, 0, 0);
    CHECK(kill(child, SIGTERM) == 0);
    say_wait("child", child);

    // Detached with a signal.
    child = child_that(runs);
    CHECK(PTRACE(PTRACE_ATTACH, child, 0, 0) == 0);
    say_wait("attached", child);
    SAY_PTRACE("detach", PTRACE_DETACH, child, 0, SIGUSR1);
    say_wait("child", child);

    // A tracee that is already stopped.
    child = child_that(runs);
    CHECK(kill(child, SIGSTOP) == 0);
    int status;
    CHECK(waitpid(child, &status, WUNTRACED) == child);
    say_status("stopped", status);
    SAY_PTRACE("seize", PTRACE_SEIZE, child, 0, PTRACE_O_EXITKILL);
    say_wait("seized", child);
    siginfo_t info;
    CHECK(PTRACE(PTRACE_GETSIGINFO, child, 0, &info) == 0);
    printf("signal %d code %#x\n", info.si_signo, info.si_code);
    // It returns to its previous state.
    SAY_PTRACE("detach", PTRACE_DETACH, child, 0, 0);
    CHECK(kill(child, SIGCONT) == 0);
    CHECK(waitpid(child, &status, WCONTINUED) == child);
    say_status("continued", status);
    end(child);

    // Seized: it continues until it is interrupted.
    child = child_that(runs);
    SAY_PTRACE("seize", PTRACE_SEIZE, child, 0, PTRACE_O_TRACESYSGOOD);
    SAY_PTRACE("it runs", PTRACE_CONT, child, 0, 0);
    SAY_PTRACE("interrupt", PTRACE_INTERRUPT, child, 0, 0);
    say_wait("interrupted", child);
    say_status("call", after(child, PTRACE_SYSCALL, 0));
    SAY_PTRACE("go on", PTRACE_CONT, child, 0, 0);
    CHECK(kill(child, SIGSTOP) == 0);
    say_wait("signal", child);
    say_status("all of it", after(child, PTRACE_CONT, SIGSTOP));
    SAY_PTRACE("go on alone", PTRACE_CONT, child, 0, 0);
    CHECK(kill(child, SIGSTOP) == 0);
    say_wait("signal", child);
    say_status("again", after(child, PTRACE_CONT, SIGSTOP));
    end(child);

    // In a wait, interrupted by a signal that the tracer drops.
    child = traced(sleeps);
    CHECK(PTRACE(PTRACE_CONT, child, 0, 0) == 0);
    sleep_ms(20);
    CHECK(kill(child, SIGALRM) == 0);
    say_wait("in a wait", child);
    struct user_regs_struct registers = registers_of(child);
    printf("call %ld result %ld\n", (long)registers.orig_rax, (long)registers.rax);
    // The tracer cancels the call.
    registers.orig_rax = ~0ull;
    CHECK(PTRACE(PTRACE_SETREGS, child, 0, &registers) == 0);
    CHECK(PTRACE(PTRACE_SETOPTIONS, child, 0, PTRACE_O_TRACESYSGOOD) == 0);
    say_status("next call", after(child, PTRACE_SYSCALL, 0));
    printf("call %ld\n", (long)registers_of(child).orig_rax);
    end(child);
}

static int ready[2];

static void *thread_exits(void *argument)
{
    pid_t id = (pid_t)syscall(SYS_gettid);

    (void)argument;
    CHECK(write(ready[1], &id, sizeof id) == sizeof id);
    for (;;)
        syscall(SYS_getppid);
    return NULL;
}

static volatile int may_exit;

static void *thread_waits(void *argument)
{
    pid_t id = (pid_t)syscall(SYS_gettid);

    (void)argument;
    CHECK(write(ready[1], &id, sizeof id) == sizeof id);
    while (!may_exit)
        ;
    syscall(SYS_exit, 33);
    return NULL;
}

static void has_a_thread(void)
{
    start(thread_waits, NULL);
    for (;;)
        pause();
}

static void has_a_busy_thread(void)
{
    start(thread_exits, NULL);
    for (;;)
        pause();
}

static pid_t next_ready(void)
{
    pid_t id;

    CHECK(read(ready[0], &id, sizeof id) == sizeof id);
    return id;
}

static void threads(void)
{
    CHECK(pipe(ready) == 0);
    // One thread exits, the others continue.
    pid_t child = child_that(has_a_thread);
    pid_t thread = next_ready();
    CHECK(PTRACE(PTRACE_ATTACH, thread, 0, 0) == 0);
    say_wait("thread", thread);
    SAY_PTRACE("may exit", PTRACE_POKEDATA, thread, &may_exit, 1);
    SAY_PTRACE("not the first", PTRACE_CONT, child, 0, 0);
    CHECK(PTRACE(PTRACE_CONT, thread, 0, 0) == 0);
    say_wait("thread", thread);
    say_wait("again", thread);
    end(child);

    // Both threads are killed together.
    child = child_that(has_a_busy_thread);
    thread = next_ready();
    CHECK(PTRACE(PTRACE_SEIZE, child, 0, 0) == 0);
    CHECK(PTRACE(PTRACE_SEIZE, thread, 0, 0) == 0);
    CHECK(PTRACE(PTRACE_INTERRUPT, thread, 0, 0) == 0);
    say_wait("thread", thread);
    CHECK(kill(child, SIGKILL) == 0);
    say_wait("thread", thread);
    say_wait("child", child);

    // The whole process stops: both threads report it.
    child = child_that(has_a_busy_thread);
    thread = next_ready();
    CHECK(PTRACE(PTRACE_SEIZE, child, 0, 0) == 0);
    CHECK(PTRACE(PTRACE_SEIZE, thread, 0, 0) == 0);
    CHECK(syscall(SYS_tgkill, child, thread, SIGSTOP) == 0);
    say_wait("thread", thread);
    CHECK(PTRACE(PTRACE_CONT, thread, 0, SIGSTOP) == 0);
    say_wait("thread", thread);
    say_wait("child", child);
    CHECK(kill(child, SIGKILL) == 0);
    say_wait("thread", thread);
    say_wait("child", child);
    close(ready[0]);
    close(ready[1]);
}

// A kind of stop, and how to bring a tracee there.
struct kind {
    const char *name;
    void (*bring)(pid_t child);
};

static void in_first(pid_t child)
{
    (void)child;
}

static void in_signal(pid_t child)
{
    CHECK(kill(child, SIGUSR1) == 0);
    CHECK(WSTOPSIG(after(child, PTRACE_CONT, 0)) == SIGUSR1);
}

static void in_call(pid_t child)
{
    CHECK(WSTOPSIG(after(child, PTRACE_SYSCALL, 0)) == SIGTRAP);
}

static void in_call_end(pid_t child)
{
    in_call(child);
    in_call(child);
}

static void in_step(pid_t child)
{
    CHECK(WSTOPSIG(after(child, PTRACE_SINGLESTEP, 0)) == SIGTRAP);
}

static void in_group(pid_t child)
{
    CHECK(WSTOPSIG(after(child, PTRACE_CONT, SIGSTOP)) == SIGSTOP);
}

static void running(pid_t child)
{
    CHECK(PTRACE(PTRACE_CONT, child, 0, 0) == 0);
}

static const struct kind kinds[] = {
    {"first", in_first}, {"signal", in_signal}, {"call", in_call}, {"call's end", in_call_end},
    {"step", in_step},   {"group", in_group},   {"running", running},
};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void killed_tracees(void)
{
    for (int i = 0; i < KINDS; i++) {
        pid_t child = traced(runs);
        kinds[i].bring(child);
        CHECK(kill(child, SIGKILL) == 0);
        say_wait(kinds[i].name, child);
        SAY_PTRACE("gone", PTRACE_CONT, child, 0, 0);
    }
    // Killed by another process while the tracer makes calls.
    for (int i = 0; i < KINDS; i++) {
        pid_t child = traced(runs);
        struct user_regs_struct registers;
        kinds[i].bring(child);
        pid_t killer = fork();
        if (killer == 0) {
            kill(child, SIGKILL);
            _exit(0);
        }
        long value;
        while (PTRACE(PTRACE_GETREGS, child, 0, &registers) == 0) {
            PTRACE(PTRACE_SETREGS, child, 0, &registers);
            PTRACE(PTRACE_PEEKDATA, child, &value, &value);
        }
        CHECK(errno == ESRCH);
        int status;
        CHECK(waitpid(killer, &status, 0) == killer && status == 0);
        say_wait(kinds[i].name, child);
    }
}

static int said[2];

// Writes to the pipe continuously.
static void lives(void)
{
    signal(SIGUSR1, handle);
    close(said[0]);
    for (;;)
        if (write(said[1], "x", 1) != 1)
            _exit(0);
}

// Whether the tracee continues after its tracer has been killed: 'x', or the pipe's end.
static void killed_tracers(void)
{
    for (int i = 0; i < KINDS; i++)
        for (int kills = 0; kills < 2; kills++) {
            int begun[2];
            CHECK(pipe(said) == 0 && pipe(begun) == 0);
            pid_t tracer = fork();
            if (tracer == 0) {
                pid_t child = traced(lives);
                if (kills)
                    CHECK(PTRACE(PTRACE_SETOPTIONS, child, 0, PTRACE_O_EXITKILL) == 0);
                kinds[i].bring(child);
                CHECK(write(begun[1], &child, sizeof child) == sizeof child);
                sleeps();
            }
            close(said[1]);
            pid_t child;
            CHECK(read(begun[0], &child, sizeof child) == sizeof child);
            // Discards the output from before the stop.
            int flags = fcntl(said[0], F_GETFL);
            char byte[4096];
            CHECK(fcntl(said[0], F_SETFL, flags | O_NONBLOCK) == 0);
            while (read(said[0], byte, sizeof byte) > 0)
                ;
            CHECK(fcntl(said[0], F_SETFL, flags) == 0);
            CHECK(kill(tracer, SIGKILL) == 0);
            int status = wait_for(tracer);
            CHECK(WIFSIGNALED(status));
            if (kinds[i].bring == in_group && !kills) {
                // It stays stopped, as it would without a tracer.
                struct pollfd place = {said[0], POLLIN, 0};
                printf("%s: %d\n", kinds[i].name, poll(&place, 1, 50));
                CHECK(kill(child, SIGCONT) == 0);
            }
            ssize_t got;
            if (kills) {
                while ((got = read(said[0], byte, sizeof byte)) > 0)
                    ;
                printf("%s: it dies, %zd\n", kinds[i].name, got);
            } else {
                got = read(said[0], byte, 1);
                printf("%s: it lives, %zd\n", kinds[i].name, got);
                kill(child, SIGKILL);
            }
            close(said[0]);
            close(begun[0]);
            close(begun[1]);
        }
}

// The tracer is not the parent: which of the two is told of an event.
static void two_that_wait(void)
{
    int begun[2], go_on[2];
    char byte;

    CHECK(pipe(begun) == 0 && pipe(go_on) == 0);
    pid_t child = child_that(runs);
    pid_t tracer = fork();
    if (tracer == 0) {
        CHECK(PTRACE(PTRACE_ATTACH, child, 0, 0) == 0);
        int status;
        CHECK(waitpid(child, &status, 0) == child && WIFSTOPPED(status));
        CHECK(PTRACE(PTRACE_CONT, child, 0, 0) == 0);
        CHECK(write(begun[1], "b", 1) == 1);
        siginfo_t info;
        CHECK(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == 0);
        CHECK(write(begun[1], "e", 1) == 1);
        CHECK(read(go_on[0], &byte, 1) == 1);
        // Without output: the parent is told of it now and prints itself.
        CHECK(waitpid(child, &status, 0) == child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        CHECK(waitpid(child, &status, 0) == -1 && errno == ECHILD);
        _exit(0);
    }
    CHECK(read(begun[0], &byte, 1) == 1);
    SAY_PTRACE("another's", PTRACE_ATTACH, child, 0, 0);
    SAY_PTRACE("another's", PTRACE_KILL, child, 0, 0);
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(read(begun[0], &byte, 1) == 1);
    printf("the tracer comes first: %d\n", waitpid(child, NULL, WNOHANG));
    CHECK(write(go_on[1], "g", 1) == 1);
    say_wait("parent", child);
    say_wait("tracer", tracer);

    // A child traces its parent.
    tracer = fork();
    if (tracer == 0) {
        pid_t parent = getppid();
        CHECK(PTRACE(PTRACE_ATTACH, parent, 0, 0) == 0);
        int status;
        CHECK(waitpid(parent, &status, 0) == parent && WIFSTOPPED(status));
        long call;
        CHECK(PTRACE(PTRACE_PEEKUSER, parent, 8 * RIP, &call) == 0);
        CHECK(PTRACE(PTRACE_DETACH, parent, 0, 0) == 0);
        _exit(8);
    }
    say_wait("child that traces", tracer);
    for (int i = 0; i < 2; i++) {
        close(begun[i]);
        close(go_on[i]);
    }
}

static void told_by_signals(void)
{
    sigset_t set;
    siginfo_t info;
    struct timespec limit = {60, 0};

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    CHECK(sigprocmask(SIG_BLOCK, &set, NULL) == 0);
    pid_t child = traced(exits_6);
    CHECK(sigtimedwait(&set, &info, &limit) == SIGCHLD);
    printf("code %d\n", info.si_code);
    CHECK(PTRACE(PTRACE_CONT, child, 0, 0) == 0);
    CHECK(sigtimedwait(&set, &info, &limit) == SIGCHLD);
    printf("code %d\n", info.si_code);
    say_wait("child", child);
    CHECK(sigprocmask(SIG_UNBLOCK, &set, NULL) == 0);
}

static void no_new_privileges(void)
{
    printf("privileges %d", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    printf(" %d", prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
    printf(" %d", prctl(PR_SET_NO_NEW_PRIVS, 1, 1, 0, 0));
    printf(" %d", prctl(PR_GET_NO_NEW_PRIVS, 1, 0, 0, 0));
    printf(" %d", prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    pid_t child = fork();
    if (child == 0)
        _exit(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    printf(" %d", WEXITSTATUS(wait_for(child)));
    printf(" %d\n", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    bad_targets();
    attaching();
    threads();
    killed_tracees();
    killed_tracers();
    two_that_wait();
    told_by_signals();
    CHECK(waitpid(-1, NULL, __WALL) == -1 && errno == ECHILD);
    no_new_privileges();
    printf("done\n");
    return 0;
}
