// SPDX-License-Identifier: MIT OR Apache-2.0
//
// The framework of guard.c: catching SIGSEGV, and reporting checks.
//
// A check is a function that returns early, with an explanation, at the first
// violation (EXPECT). Each thread has a catcher, which determines
// the effect of its next SIGSEGV: jump back to where the access was tried
// (`back`), or repair the cause and return, so that the access is tried again
// (`repair`). An unexpected fault ends the program.

#ifndef WORKLOADS_GUARD_CHECK_H
#define WORKLOADS_GUARD_CHECK_H

#include "../common.h"

#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>

typedef struct {
    const char *name;
    void (*run)(void);
} Check;

typedef void Repair(siginfo_t *info, ucontext_t *context);

static _Thread_local struct {
    sigjmp_buf back;
    volatile bool armed;      // jump to `back` at the next fault
    Repair *volatile repair;  // or call this, and return
    volatile int faults;      // since this was last set to 0
    volatile int code;        // si_code and si_addr of the last of them
    void *volatile address;
} catcher;

// ------------------------------------------------------------- reporting

static char explanation[256];  // of the running check; empty: no violation
static bool skipped;

__attribute__((format(printf, 1, 2))) static void explain(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(explanation, sizeof explanation, format, args);
    va_end(args);
}

// Returns from the check with an explanation unless the condition holds.
#define EXPECT(condition, ...)                                                 \
    do {                                                                       \
        if (!(condition)) {                                                    \
            explain(__VA_ARGS__);                                              \
            return;                                                            \
        }                                                                      \
    } while (0)

// Returns from the check as passed, with a reason: this system lacks what it needs.
#define SKIP(...)                                                              \
    do {                                                                       \
        skipped = true;                                                        \
        explain(__VA_ARGS__);                                                  \
        return;                                                                \
    } while (0)

// -------------------------------------------------------------- catching

static void on_segv(int signal_number, siginfo_t *info, void *context)
{
    catcher.faults++;
    catcher.code = info->si_code;
    catcher.address = info->si_addr;
    if (catcher.repair != NULL) {
        catcher.repair(info, context);
        return;
    }
    if (catcher.armed) {
        catcher.armed = false;
        siglongjmp(catcher.back, 1);
    }
    // Returns into the fault without a handler: the program dies of the
    // signal, which its parent sees.
    printf("not ok - unexpected fault: si_code %d at %p\n", info->si_code,
           info->si_addr);
    fflush(stdout);
    signal(signal_number, SIG_DFL);
}

// Installs the handler, with these flags in addition to SA_SIGINFO.
static void catch_segv(int flags)
{
    struct sigaction action = {.sa_sigaction = on_segv,
                               .sa_flags = SA_SIGINFO | flags};

    sigemptyset(&action.sa_mask);
    if (sigaction(SIGSEGV, &action, NULL) != 0)
        die("guard", "sigaction: %s", strerror(errno));
}

typedef enum { READ, WRITE, EXECUTE } Access;

static void access_byte(Access access, volatile void *at)
{
    switch (access) {
    case READ: (void)*(volatile char *)at; break;
    case WRITE: *(volatile char *)at = 1; break;
    case EXECUTE: ((void (*)(void))(uintptr_t)at)(); break;
    }
}

// True if the access raises SIGSEGV; `catcher` then describes it.
static bool access_faults(Access access, volatile void *at)
{
    catcher.faults = 0;
    catcher.armed = true;
    if (sigsetjmp(catcher.back, 1) != 0)
        return true;
    access_byte(access, at);
    catcher.armed = false;
    return false;
}

static const char *access_name(Access access)
{
    return access == READ ? "read" : access == WRITE ? "write" : "execution";
}

// Explains, and returns false, unless the access raises SIGSEGV with this
// si_code and its own address as si_addr.
static bool faults_with(int code, Access access, volatile void *at)
{
    if (!access_faults(access, at))
        explain("%s of %p did not fault", access_name(access), (void *)at);
    else if (catcher.code != code)
        explain("%s of %p: si_code %d, not %d", access_name(access), (void *)at,
                catcher.code, code);
    else if (catcher.address != (void *)at)
        explain("%s of %p: si_addr %p", access_name(access), (void *)at,
                catcher.address);
    else
        return true;
    return false;
}

static bool allowed(Access access, volatile void *at)
{
    if (!access_faults(access, at))
        return true;
    explain("%s of %p faulted with si_code %d", access_name(access), (void *)at,
            catcher.code);
    return false;
}

#define EXPECT_FAULT(code, access, at)                                         \
    do {                                                                       \
        if (!faults_with(code, access, at))                                    \
            return;                                                            \
    } while (0)

#define EXPECT_ALLOWED(access, at)                                             \
    do {                                                                       \
        if (!allowed(access, at))                                              \
            return;                                                            \
    } while (0)

// -------------------------------------------------------------- running

// True if the check passed.
static bool run_check(const Check *check)
{
    bool ok;

    explanation[0] = '\0';
    skipped = false;
    check->run();
    // A check that was left early may have left its handler behind.
    catcher.repair = NULL;
    catch_segv(0);
    ok = skipped || explanation[0] == '\0';
    if (!ok)
        printf("not ok - %s: %s\n", check->name, explanation);
    else if (skipped)
        printf("ok - %s # skip: %s\n", check->name, explanation);
    else
        printf("ok - %s\n", check->name);
    fflush(stdout);
    return ok;
}

#endif
