// SPDX-License-Identifier: MIT OR Apache-2.0
//
// vfork where the C library has only a fork of that name: musl on AArch64. The
// call is inline, because a function that has returned in the child would have
// lost its frame in the parent.

#ifndef WORKLOADS_VFORK_H
#define WORKLOADS_VFORK_H

#include <unistd.h>

#if defined(__aarch64__)
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>

static inline __attribute__((always_inline)) pid_t borrow_memory(void)
{
    // CLONE_VM and CLONE_VFORK, as <sched.h> has them for GNU programs only.
    register long result __asm__("x0") = 0x00000100 | 0x00004000 | SIGCHLD;
    register long stack __asm__("x1") = 0, parent __asm__("x2") = 0;
    register long storage __asm__("x3") = 0, child __asm__("x4") = 0;
    register long number __asm__("x8") = SYS_clone;

    __asm__ volatile("svc #0"
                     : "+r"(result)
                     : "r"(stack), "r"(parent), "r"(storage), "r"(child), "r"(number)
                     : "memory", "cc");
    if (result >= 0)
        return (pid_t)result;
    errno = (int)-result;
    return -1;
}

#define vfork borrow_memory
#endif

#endif
