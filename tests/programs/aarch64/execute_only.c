// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Memory that may only be executed: what programs and the kernel may do with it, and what mappings become when their
// protection changes. Whether the CPU refuses loads there (FEAT_PAN3) decides what is printed.

#include "../common.h"

#include <fcntl.h>
#include <setjmp.h>
#include <sys/uio.h>
#include <sys/wait.h>

enum { PAGE = 4096, RET = 0xd65f03c0 };

static sigjmp_buf back;
static siginfo_t got;

static void on_signal(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    got = *info;
    siglongjmp(back, 1);
}

static bool touch(const char *what, volatile uint32_t *at, char how)
{
    if (sigsetjmp(back, 1) != 0) {
        printf("%s: signal %d code %d here %d\n", what, got.si_signo, got.si_code, got.si_addr == (void *)at);
        return false;
    }
    if (how == 'r')
        printf("%s: %#x\n", what, *at);
    else if (how == 'w')
        *at = RET, printf("%s: done\n", what);
    else if (how == 'a')
        printf("%s: %#x\n", what, __atomic_fetch_add(at, 0, __ATOMIC_RELAXED));
    else
        ((void (*)(void))at)(), printf("%s: done\n", what);
    return true;
}

#define SAY(call) (errno = 0, printf("%s: %ld, error %d\n", #call, (long)(call), errno))

static uint32_t *text(int flags)
{
    uint32_t *at = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);

    CHECK(at != MAP_FAILED);
    at[0] = at[PAGE / 4] = RET;
    __builtin___clear_cache((char *)at, (char *)at + 2 * PAGE);
    CHECK(mprotect(at, 2 * PAGE, PROT_EXEC) == 0);
    return at;
}

static void each(const char *name, int flags)
{
    uint32_t *at = text(flags);
    char copy[4] = {0};
    struct iovec here = {copy, 4}, there = {at, 4};
    unsigned char resident[2];
    int both[2], file, status;

    printf("# %s\n", name);
    touch("execute", at, 'x');
    touch("load", at, 'r');
    touch("store", at, 'w');
    touch("atomic", at, 'a');
    CHECK(pipe2(both, O_NONBLOCK) == 0);
    SAY(write(both[1], at, 4));
    SAY(read(both[0], at, 4));
    SAY(process_vm_readv(getpid(), &here, 1, &there, 1, 0));
    SAY(mincore(at, 2 * PAGE, resident));
    SAY(mlock(at, 2 * PAGE));
    SAY(munlock(at, 2 * PAGE));
    SAY(madvise(at, 2 * PAGE, 22));
    SAY(madvise(at, 2 * PAGE, 23));
    file = open("/proc/self/mem", O_RDONLY);
    SAY(pread(file, copy, 4, (off_t)(uintptr_t)at));
    close(file);
    if (fork() == 0) {
        touch("execute, child", at, 'x');
        touch("load, child", at, 'r');
        fflush(stdout);
        _exit(0);
    }
    wait(&status);
    SAY(mprotect(at, PAGE, PROT_READ | PROT_EXEC));
    touch("load, readable", at, 'r');
    touch("load, beside", at + PAGE / 4, 'r');
    SAY(mprotect(at, PAGE, PROT_EXEC));
    touch("load, again", at, 'r');
    SAY(mprotect(at, 2 * PAGE, PROT_READ | PROT_WRITE));
    touch("store, writable", at, 'w');
    SAY(munmap(at, 2 * PAGE));
    // Never touched, and populated at once.
    at = mmap(NULL, PAGE, PROT_EXEC, flags, -1, 0);
    touch("load, untouched", at, 'r');
    SAY(munmap(at, PAGE));
    at = mmap(NULL, PAGE, PROT_EXEC, flags | MAP_POPULATE, -1, 0);
    touch("load, populated", at, 'r');
    SAY(mlock(at, PAGE));
    SAY(munmap(at, PAGE));
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};

    setvbuf(stdout, NULL, _IOLBF, 0);
    sigaction(SIGSEGV, &action, NULL);
    sigaction(SIGBUS, &action, NULL);
    sigaction(SIGILL, &action, NULL);
    each("private", MAP_PRIVATE | MAP_ANONYMOUS);
    each("shared", MAP_SHARED | MAP_ANONYMOUS);
    return 0;
}
