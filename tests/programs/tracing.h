// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Shared by the programs that trace others: tracees, waiting for them, and printing their stops.

#ifndef TESTS_TRACING_H
#define TESTS_TRACING_H

#include "children.h"

#include <elf.h>
#include <sys/ptrace.h>
#include <sys/reg.h>
#include <sys/uio.h>
#include <sys/user.h>

// The raw call: the library's wrapper returns what was peeked.
#define PTRACE(request, id, address, data)                                     \
    syscall(SYS_ptrace, (long)(request), (long)(id), (long)(address), (long)(data))

#define SAY_PTRACE(what, request, id, address, data)                           \
    do {                                                                       \
        errno = 0;                                                             \
        long result = PTRACE(request, id, address, data);                      \
        if (result < 0)                                                        \
            printf("%s: %s\n", what, strerror(errno));                         \
        else                                                                   \
            printf("%s: %ld\n", what, result);                                 \
    } while (0)

static inline int wait_for(pid_t id)
{
    int status = -1;
    pid_t got;

    do
        got = waitpid(id, &status, __WALL);
    while (got == -1 && errno == EINTR);
    return got == id ? status : -1;
}

static inline void say_status(const char *what, int status)
{
    if (status == -1)
        printf("%s: %s\n", what, strerror(errno));
    else if (WIFEXITED(status))
        printf("%s: exited %d\n", what, WEXITSTATUS(status));
    else if (WIFSIGNALED(status))
        printf("%s: killed by %d\n", what, WTERMSIG(status));
    else if (WIFCONTINUED(status))
        printf("%s: goes on\n", what);
    else
        printf("%s: stopped %#x\n", what, status >> 8);
}

static inline void say_wait(const char *what, pid_t id)
{
    errno = 0;
    say_status(what, wait_for(id));
}

// Like raise(3), without its additional calls.
static inline void send_self(int signal)
{
    syscall(SYS_kill, syscall(SYS_getpid), signal);
}

// Makes a traced child, which stops before it runs.
static inline pid_t traced(void (*run)(void))
{
    pid_t child = fork();

    CHECK(child >= 0);
    if (child == 0) {
        CHECK(PTRACE(PTRACE_TRACEME, 0, 0, 0) == 0);
        send_self(SIGSTOP);
        run();
        _exit(0);
    }
    int status = wait_for(child);
    CHECK(WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP);
    return child;
}

static inline struct user_regs_struct registers_of(pid_t child)
{
    struct user_regs_struct registers;

    CHECK(PTRACE(PTRACE_GETREGS, child, 0, &registers) == 0);
    return registers;
}

// Continues it, and waits until it stops or ends.
static inline int after(pid_t child, int request, long signal)
{
    CHECK(PTRACE(request, child, 0, signal) == 0);
    return wait_for(child);
}

static inline void end(pid_t child)
{
    CHECK(kill(child, SIGKILL) == 0);
    int status;
    do
        status = wait_for(child);
    while (WIFSTOPPED(status));
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

#endif
