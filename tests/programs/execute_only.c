// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Execute-only memory, on a CPU with protection keys, and the rights that a program gives itself. The
// output is the same on Linux 6.12 with the same CPU.

#include "children.h"

#include <fcntl.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/uio.h>

enum { PAGE = 4096, RET = 0xc3 };

static sigjmp_buf back;
static siginfo_t got;
static unsigned rights_in_handler;

static int has_keys(void)
{
    unsigned a = 7, b, c = 0, d;

    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return (c >> 4) & 1;
}

static unsigned rights(void)
{
    unsigned a, d;

    __asm__ volatile("rdpkru" : "=a"(a), "=d"(d) : "c"(0));
    return a;
}

static void set_rights(unsigned rights)
{
    __asm__ volatile("wrpkru" ::"a"(rights), "c"(0), "d"(0) : "memory");
}

static void on_signal(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    got = *info;
    rights_in_handler = rights();
    siglongjmp(back, 1);
}

static void touch(const char *what, volatile char *at, char how)
{
    if (sigsetjmp(back, 1) != 0) {
        printf("%s: signal %d code %d key %d here %d, rights %#x\n", what, got.si_signo, got.si_code,
               got.si_code == SEGV_PKUERR ? (int)got.si_pkey : -1, got.si_addr == (void *)at,
               rights_in_handler);
        return;
    }
    if (how == 'r')
        (void)*at;
    else if (how == 'w')
        *at = (char)RET;
    else
        ((void (*)(void))(uintptr_t)at)();
    printf("%s: done\n", what);
}

static void say(const char *what, long result)
{
    printf("%s: %s\n", what, result < 0 ? strerror(errno) : "done");
}

static void line_of(char *at)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[256], start[32];
    int found = 0;

    CHECK(file != NULL);
    snprintf(start, sizeof start, "%lx-", (unsigned long)at);
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, start, strlen(start)) == 0) {
            found = 1;
            printf("%.5s ", strchr(line, ' ') + 1);
        } else if (found && strncmp(line, "ProtectionKey:", 14) == 0) {
            printf("%s", line);
            break;
        }
    fclose(file);
}

static char *fresh(int protection)
{
    char *at = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    CHECK(at != MAP_FAILED);
    at[0] = (char)RET;
    CHECK(mprotect(at, 3 * PAGE, protection) == 0);
    return at;
}

static void accesses(const char *name, int protection)
{
    char *at = fresh(protection), byte;
    unsigned char in_core[3];
    int ends[2];

    printf("%s\n", name);
    touch("load", at, 'r');
    touch("store", at, 'w');
    if (protection & PROT_EXEC)
        touch("call", at, 'x');
    touch("load of nothing", at + PAGE, 'r');

    struct iovec here = {&byte, 1}, there = {at, 1};
    say("process_vm_readv", process_vm_readv(getpid(), &here, 1, &there, 1, 0));
    CHECK(pipe(ends) == 0);
    say("write from it", write(ends[1], at, 1));
    say("write from nothing", write(ends[1], at + PAGE, 1));
    CHECK(write(ends[1], "x", 1) == 1);
    say("read into it", read(ends[0], at, 1));
    close(ends[0]);
    close(ends[1]);
    say("populate to read", madvise(at + 2 * PAGE, PAGE, 22));
    say("populate to write", madvise(at + 2 * PAGE, PAGE, 23));
    say("mlock", mlock(at, 3 * PAGE));
    CHECK(mincore(at, 3 * PAGE, in_core) == 0);
    printf("in core %d%d%d\n", in_core[0] & 1, in_core[1] & 1, in_core[2] & 1);
    int memory = open("/proc/self/mem", O_RDONLY);
    say("its memory", pread(memory, &byte, 1, (off_t)(uintptr_t)at));
    close(memory);
    line_of(at);

    char *other = mmap(NULL, PAGE, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    touch("mapped so", other, 'r');
    pid_t child = fork();
    if (child == 0) {
        touch("in a child", at, 'r');
        fflush(stdout);
        _exit(0);
    }
    CHECK(status_of(child) == 0);
    CHECK(mprotect(at, 3 * PAGE, PROT_READ | PROT_WRITE) == 0);
    touch("and back", at, 'r');
    CHECK(munmap(at, 3 * PAGE) == 0 && munmap(other, PAGE) == 0);
}

static void *of_thread(void *argument)
{
    // Linux 6.12 lets a thread start with its creator's rights.
    printf("thread: %#x\n", rights());
    touch("load in a thread", argument, 'r');
    return NULL;
}

static volatile unsigned seen;

static void look(int signal)
{
    (void)signal;
    seen = rights();
}

static void own_rights(void)
{
    char *at = fresh(PROT_EXEC);
    unsigned before = rights();

    printf("rights %#x\n", before);
    set_rights(before & ~0xcu);
    touch("load with the right", at, 'r');
    touch("load of nothing with the right", at + PAGE, 'r');
    touch("store with the right", at, 'w');
    signal(SIGUSR1, look);
    set_rights(before & ~0xcu);
    CHECK(kill(getpid(), SIGUSR1) == 0);
    printf("in a handler %#x, behind it %#x\n", seen, rights());
    CHECK(pthread_join(start(of_thread, at), NULL) == 0);
    set_rights(before);
    printf("done, rights %#x\n", rights());
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};

    setvbuf(stdout, NULL, _IOLBF, 0);
    if (!has_keys()) {
        printf("no protection keys\n");
        return 0;
    }
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    accesses("execute", PROT_EXEC);
    accesses("write", PROT_WRITE);
    accesses("execute and write", PROT_EXEC | PROT_WRITE);
    accesses("execute and read", PROT_EXEC | PROT_READ);
    own_rights();
    return 0;
}
