// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Processes as on Linux: fork, wait, groups, and the
// signals between them. Runs on Linux too, and prints the same there.

#include "children.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>

// Never mapped.
static char *volatile nowhere = (char *)8;

static void exit_statuses(void)
{
    for (int code = 0; code < 256; code += 51) {
        pid_t child = fork();
        if (child == 0)
            _exit(code);
        int status = status_of(child);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == code);
    }
    CHECK(waitpid(-1, NULL, 0) == -1 && errno == ECHILD);
    CHECK(waitpid(getpid(), NULL, 0) == -1 && errno == ECHILD);
    CHECK(syscall(SYS_wait4, -1, NULL, 0x100, NULL) == -1 && errno == EINVAL);
}

static void deaths_by_signal(void)
{
    static const int signals[] = {SIGKILL, SIGTERM, SIGSEGV, SIGUSR1};
    for (unsigned i = 0; i < 4; i++) {
        pid_t child = fork();
        if (child == 0) {
            if (signals[i] == SIGSEGV)
                *(volatile char *)nowhere = 1;
            for (;;)
                pause();
        }
        if (signals[i] != SIGSEGV)
            CHECK(kill(child, signals[i]) == 0);
        int status = status_of(child);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == signals[i]);
        CHECK(kill(child, 0) == -1 && errno == ESRCH);
    }
}

static void memory_is_a_copy(void)
{
    enum { pages = 64, size = pages * 4096 };
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    memset(memory, 'p', size / 2);
    pid_t child = fork();
    if (child == 0) {
        for (int at = 0; at < size; at += 4096) {
            if (memory[at] != (at < size / 2 ? 'p' : 0))
                _exit(1);
            memory[at] = 'c';
        }
        pid_t grandchild = fork();
        if (grandchild == 0) {
            for (int at = 0; at < size; at += 4096)
                if (memory[at] != 'c')
                    _exit(1);
            memset(memory, 'g', size);
            _exit(0);
        }
        if (status_of(grandchild) != 0)
            _exit(2);
        for (int at = 0; at < size; at += 4096)
            if (memory[at] != 'c')
                _exit(3);
        _exit(0);
    }
    for (int at = 0; at < size; at += 8192)
        memory[at] = 'q';
    CHECK(status_of(child) == 0);
    for (int at = 0; at < size; at += 4096)
        CHECK(memory[at] == (at % 8192 == 0 ? 'q' : at < size / 2 ? 'p' : 0));
    CHECK(munmap(memory, size) == 0);
}

static volatile sig_atomic_t children_ended;
static volatile pid_t last_child;
static volatile int last_code, last_status;

static void on_child(int signal, siginfo_t *info, void *context)
{
    (void)signal, (void)context;
    children_ended++;
    last_child = info->si_pid;
    last_code = info->si_code;
    last_status = info->si_status;
}

static void the_parent_is_told(void)
{
    struct sigaction action = {.sa_sigaction = on_child, .sa_flags = SA_SIGINFO | SA_RESTART};
    CHECK(sigaction(SIGCHLD, &action, NULL) == 0);
    pid_t child = fork();
    if (child == 0)
        _exit(7);
    siginfo_t info = {0};
    CHECK(waitid(P_PID, child, &info, WEXITED | WNOWAIT) == 0);
    CHECK(info.si_pid == child && info.si_status == 7 && info.si_code == CLD_EXITED);
    CHECK(waitpid(child, NULL, WNOHANG) == child);
    CHECK(children_ended == 1 && last_child == child);
    CHECK(last_code == CLD_EXITED && last_status == 7);
    child = fork();
    if (child == 0)
        for (;;)
            pause();
    CHECK(waitpid(child, NULL, WNOHANG) == 0);
    kill(child, SIGKILL);
    CHECK(WTERMSIG(status_of(child)) == SIGKILL);
    CHECK(children_ended == 2 && last_code == CLD_KILLED && last_status == SIGKILL);
    signal(SIGCHLD, SIG_IGN);
    child = fork();
    if (child == 0)
        _exit(0);
    CHECK(waitpid(child, NULL, 0) == -1 && errno == ECHILD);
    signal(SIGCHLD, SIG_DFL);
}

static void groups_and_sessions(void)
{
    pid_t first = fork();
    if (first == 0) {
        for (;;)
            pause();
    }
    CHECK(getpgid(first) == getpgrp());
    CHECK(setpgid(first, first) == 0 && getpgid(first) == first);
    pid_t second = fork();
    if (second == 0) {
        for (;;)
            pause();
    }
    CHECK(setpgid(second, first) == 0 && getpgid(second) == first);
    CHECK(setpgid(second, 1 << 20) == -1 && errno == EPERM);
    CHECK(setpgid(1 << 20, 0) == -1 && errno == ESRCH);
    CHECK(kill(-first, SIGTERM) == 0);
    int status;
    pid_t ended = waitpid(-first, &status, 0);
    CHECK((ended == first || ended == second) && WTERMSIG(status) == SIGTERM);
    CHECK(waitpid(-first, &status, 0) == first + second - ended);
    CHECK(kill(-first, 0) == -1 && errno == ESRCH);
    pid_t child = fork();
    if (child == 0) {
        if (setsid() != getpid() || getsid(0) != getpid() || getpgrp() != getpid())
            _exit(1);
        _exit(setsid() == -1 && errno == EPERM ? 0 : 2);
    }
    CHECK(status_of(child) == 0);
}

static void stops(void)
{
    struct sigaction action = {.sa_sigaction = on_child, .sa_flags = SA_SIGINFO | SA_RESTART};
    CHECK(sigaction(SIGCHLD, &action, NULL) == 0);
    children_ended = 0;
    pid_t child = fork();
    if (child == 0) {
        // One thread computes and one sleeps; both stop.
        pthread_t thread;
        pthread_create(&thread, NULL, sleep_for_ever, NULL);
        spin_for_ever(NULL);
    }
    // In a group of its own, with its parent outside: SIGTSTP stops only that group.
    CHECK(setpgid(child, child) == 0);
    int status;
    CHECK(kill(child, SIGTSTP) == 0);
    CHECK(waitpid(child, &status, WUNTRACED) == child);
    CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGTSTP);
    CHECK(last_code == CLD_STOPPED && last_child == child);
    CHECK(waitpid(child, &status, WUNTRACED | WNOHANG) == 0);
    CHECK(kill(child, SIGUSR1) == 0);
    CHECK(waitpid(child, &status, WNOHANG) == 0);
    CHECK(kill(child, SIGCONT) == 0);
    // SIGUSR1 was pending while it was stopped, and ends it now.
    CHECK(waitpid(child, &status, 0) == child && WTERMSIG(status) == SIGUSR1);
    child = fork();
    if (child == 0)
        for (;;)
            pause();
    CHECK(kill(child, SIGSTOP) == 0);
    siginfo_t info = {0};
    CHECK(waitid(P_PID, child, &info, WSTOPPED | WNOWAIT) == 0);
    CHECK(info.si_code == CLD_STOPPED && info.si_status == SIGSTOP);
    CHECK(waitid(P_PID, child, &info, WSTOPPED) == 0);
    CHECK(kill(child, SIGCONT) == 0);
    CHECK(waitpid(child, &status, WCONTINUED) == child && WIFCONTINUED(status));
    CHECK(kill(child, SIGSTOP) == 0);
    CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, &status, WCONTINUED) == child && WTERMSIG(status) == SIGKILL);
    signal(SIGCHLD, SIG_DFL);
}

static int ends[2];

static void tell(int signal)
{
    char byte = signal == SIGHUP ? 'H' : 'C';
    CHECK(write(ends[1], &byte, 1) == 1);
}

static volatile sig_atomic_t continued;

static void is_continued(int signal)
{
    (void)signal;
    continued = 1;
}

// A continued process runs its handler before anything else.
static void handlers_of_who_goes_on(void)
{
    pid_t child = fork();
    if (child == 0) {
        signal(SIGCONT, is_continued);
        for (int i = 0; i < 200; i++) {
            continued = 0;
            raise(SIGSTOP);
            if (!continued)
                _exit(1);
        }
        _exit(0);
    }
    int status;
    while (waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status))
        CHECK(kill(child, SIGCONT) == 0);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// A stopped group without a process left to continue it gets SIGHUP and SIGCONT, and continues.
static void orphaned_groups(void)
{
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        // In a session of its own, so an orphaned group: only SIGSTOP would stop it.
        setsid();
        CHECK(raise(SIGTSTP) == 0 && raise(SIGTTIN) == 0);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            setpgid(0, 0);
            signal(SIGHUP, tell);
            signal(SIGCONT, tell);
            raise(SIGTSTP);
            _exit(0);
        }
        int status;
        CHECK(waitpid(grandchild, &status, WUNTRACED) == grandchild && WIFSTOPPED(status));
        _exit(5);
    }
    int status;
    CHECK(waitpid(child, &status, WUNTRACED) == child);
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 5);
    close(ends[1]);
    struct pollfd end = {ends[0], POLLIN, 0};
    char told[3] = "";
    for (int i = 0; i < 2; i++)
        CHECK(poll(&end, 1, 20000) == 1 && read(ends[0], told + i, 1) == 1);
    CHECK(strcmp(told, "HC") == 0 || strcmp(told, "CH") == 0);
    CHECK(read(ends[0], told, 1) == 0);
    close(ends[0]);
}

static void a_process_with_threads_forks(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, sleep_for_ever, NULL) == 0);
    for (int i = 0; i < 20; i++) {
        pid_t child = fork();
        if (child == 0) {
            // The child has one thread, with the process's number.
            _exit(syscall(SYS_gettid) == getpid() ? 0 : 1);
        }
        CHECK(status_of(child) == 0);
    }
}

static void what_was_used(void)
{
    struct rusage before, after, children;
    getrusage(RUSAGE_CHILDREN, &before);
    pid_t child = fork();
    if (child == 0) {
        enum { size = 1000 * 4096 };
        struct rusage first, second;
        getrusage(RUSAGE_SELF, &first);
        char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        madvise(memory, size, MADV_NOHUGEPAGE);
        for (int at = 0; at < size; at += 4096)
            memory[at] = 1;
        getrusage(RUSAGE_SELF, &second);
        // First calls of library functions also fault, in numbers that differ between systems.
        long faults = second.ru_minflt - first.ru_minflt;
        _exit(faults >= 1000 && faults < 1050 && second.ru_majflt == 0 ? 0 : 1);
    }
    int status;
    CHECK(wait4(child, &status, 0, &children) == child && status == 0);
    CHECK(children.ru_minflt >= 1000 && children.ru_minflt < 1200);
    getrusage(RUSAGE_CHILDREN, &after);
    CHECK(after.ru_minflt - before.ru_minflt == children.ru_minflt);
}

static void many_at_once(void)
{
    pid_t children[50];
    for (int i = 0; i < 50; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i] == 0)
            _exit(i);
    }
    int sum = 0;
    for (int i = 0; i < 50; i++) {
        int status;
        CHECK(waitpid(-1, &status, 0) > 0 && WIFEXITED(status));
        sum += WEXITSTATUS(status);
    }
    CHECK(sum == 49 * 50 / 2);
    CHECK(waitpid(-1, NULL, WNOHANG) == -1 && errno == ECHILD);
}

int main(void)
{
    exit_statuses();
    deaths_by_signal();
    memory_is_a_copy();
    the_parent_is_told();
    groups_and_sessions();
    stops();
    handlers_of_who_goes_on();
    orphaned_groups();
    what_was_used();
    many_at_once();
    a_process_with_threads_forks();
    puts("processes: all as on Linux");
    return 0;
}
