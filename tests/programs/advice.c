// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What Linux returns for advice on anonymous memory, for seals, for advice through a process's
// descriptor, and for membarrier: a transcript, the same on Linux 6.12.

#include "children.h"
#include "touch.h"
#include "transcript.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/uio.h>

#ifndef SYS_mseal
#define SYS_mseal 462
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_process_madvise
#define SYS_process_madvise 440
#endif
#define P_PIDFD_ 3

// Only this program maps memory there.
static char *const at = (char *)0x100000000000;
static char *const to = (char *)0x100040005000;

static void fill(long pages)
{
    for (long page = 0; page < pages; page++)
        at[page * PAGE] = (char)(page + 1);
}

static void answers(void)
{
    // Without advice that would break memory, and without guards, which Linux 6.12 does not have.
    static const int all[] = {-1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
                              17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 99, 104, 1000};

    map_at(at, 9);
    fill(9);
    SAY(munmap(at + 4 * PAGE, PAGE));
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        printf("advice %d\n", all[i]);
        SAY(madvise(at, 4 * PAGE, all[i]));
        SAY(madvise(at + 4 * PAGE, PAGE, all[i]));
        SAY(madvise(at, 9 * PAGE, all[i]));
        SAY(madvise(at + 4 * PAGE, 2 * PAGE, all[i]));
        SAY(madvise(at + 1, PAGE, all[i]));
        SAY(madvise(at, 0, all[i]));
        SAY(madvise(at, -1L, all[i]));
        SAY(madvise(at, -2 * PAGE, all[i]));
    }
    SAY(munmap(at, 9 * PAGE));
}

// Memory is not short, so no page is lazily freed.
static void letting_go(void)
{
    map_at(at, 8);
    fill(8);
    SAY(madvise(at, 6 * PAGE, MADV_FREE));
    say_present(at, 8);
    say_byte(at + 2 * PAGE);
    put_byte(at + 2 * PAGE, 77);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        say_byte(at + 2 * PAGE);
        say_byte(at + 3 * PAGE);
        put_byte(at + 3 * PAGE, 33);
        SAY(madvise(at, 8 * PAGE, MADV_FREE));
        say_byte(at + 3 * PAGE);
        fflush(stdout);
        _exit(0);
    }
    SAY(status_of(child));
    say_byte(at + 3 * PAGE);
    SAY(mprotect(at, 4 * PAGE, PROT_NONE));
    SAY(madvise(at, 8 * PAGE, MADV_FREE));
    SAY(mprotect(at, 4 * PAGE, PROT_READ));
    say_byte(at + 2 * PAGE);
    say_present(at, 8);
    SAY(munmap(at, 8 * PAGE));
}

static long mseal(char *where, unsigned long length, unsigned long flags)
{
    return syscall(SYS_mseal, where, length, flags);
}

static long where(void *result)
{
    return result == MAP_FAILED ? -1 : (char *)result - at;
}

static void say_pages(long pages)
{
    for (long page = 0; page < pages; page++)
        say_byte(at + page * PAGE);
}

static void sealing(void)
{
    const int prot = PROT_READ | PROT_WRITE;
    const int fixed = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    static const int takes[] = {4, 8, 9, 10, 11, 16, 18, 19, 20, 21, 24};

    map_at(at, 10);
    fill(10);
    SAY(mseal(at, PAGE, 1));
    SAY(mseal(at + 1, PAGE, 0));
    SAY(mseal(at, -1UL, 0));
    SAY(mseal(at, 0, 0));
    SAY(mseal(at, 11 * PAGE, 0));
    SAY(mprotect(at, PAGE, prot));
    SAY(mseal(at + 4 * PAGE, 2 * PAGE + 1, 0));
    SAY(mseal(at + 4 * PAGE, 3 * PAGE, 0));
    SAY(munmap(at + 4 * PAGE, PAGE));
    SAY(munmap(at, 5 * PAGE));
    SAY(munmap(at + 6 * PAGE, 2 * PAGE));
    SAY(where(mmap(at, 10 * PAGE, prot, fixed, -1, 0)));
    SAY(where(mremap(at + 4 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to)));
    SAY(where(mremap(at + 4 * PAGE, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to + 1)));
    SAY(where(mremap(at + 4 * PAGE, 3 * PAGE, PAGE, 0)));
    SAY(where(mremap(at, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, at + 5 * PAGE)));
    SAY(where(mremap(at + 3 * PAGE, 2 * PAGE, PAGE, 0)));
    SAY(mprotect(at + 4 * PAGE, PAGE, prot));
    SAY(mprotect(at + 2 * PAGE, 8 * PAGE, PROT_READ));
    say_pages(10);
    for (long page = 0; page < 10; page++)
        put_byte(at + page * PAGE, (char)(page + 11));
    // A sealed mapping may be discarded as long as it is writable.
    SAY(madvise(at + 4 * PAGE, PAGE, MADV_DONTNEED));
    say_byte(at + 4 * PAGE);
    SAY(mprotect(at + 7 * PAGE, PAGE, PROT_READ));
    SAY(mseal(at + 7 * PAGE, PAGE, 0));
    for (size_t i = 0; i < sizeof takes / sizeof *takes; i++) {
        printf("advice %d\n", takes[i]);
        SAY(madvise(at + 7 * PAGE, PAGE, takes[i]));
    }
    SAY(madvise(at + 6 * PAGE, 3 * PAGE, MADV_DONTNEED));
    say_pages(10);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        SAY(munmap(at + 4 * PAGE, PAGE));
        SAY(munmap(at + 8 * PAGE, PAGE));
        fflush(stdout);
        _exit(0);
    }
    SAY(status_of(child));
    SAY(munmap(at, 4 * PAGE));
}

static void sealed_heap(void)
{
    char *end = (char *)syscall(SYS_brk, 0);
    char *page = (char *)(((uintptr_t)end + 2 * PAGE - 1) & -PAGE);

    SAY(syscall(SYS_brk, page + 4 * PAGE) - (long)page);
    SAY(mseal(page, 4 * PAGE, 0));
    SAY(syscall(SYS_brk, page + 2 * PAGE) - (long)page);
    SAY(syscall(SYS_brk, page + 6 * PAGE) - (long)page);
    SAY(syscall(SYS_brk, page + 4 * PAGE) - (long)page);
    SAY(syscall(SYS_brk, page + 3 * PAGE) - (long)page);
}

static long advise(int process, struct iovec *pieces, unsigned long count, int what, int flags)
{
    return syscall(SYS_process_madvise, process, pieces, count, what, flags);
}

static void by_descriptor(void)
{
    char *const other = at + 32 * PAGE;
    struct iovec pieces[] = {{other, 2 * PAGE}, {other + 3 * PAGE, PAGE}};
    struct iovec hole[] = {{other, PAGE}, {other + 30 * PAGE, PAGE}};
    struct iovec wrong[] = {{other, -1UL}};
    struct iovec outside[] = {{(char *)(1UL << 62), PAGE}};
    int null = dup(1);

    map_at(other, 4);
    *other = 7;
    SAY(syscall(SYS_pidfd_open, getpid(), 1));
    SAY(syscall(SYS_pidfd_open, 0, 0));
    SAY(syscall(SYS_pidfd_open, -5, 0));
    SAY(syscall(SYS_pidfd_open, 4000000, 0));
    int self = (int)syscall(SYS_pidfd_open, getpid(), 0);
    CHECK(self >= 0);
    SAY(advise(self, pieces, 2, MADV_COLD, 0));
    SAY(advise(self, pieces, 2, MADV_PAGEOUT, 0));
    SAY(advise(self, pieces, 2, MADV_WILLNEED, 0));
    SAY(advise(self, pieces, 2, MADV_DONTNEED, 0));
    SAY(advise(self, pieces, 2, MADV_FREE, 0));
    SAY(advise(self, pieces, 2, 1000, 0));
    SAY(advise(self, pieces, 2, MADV_COLD, 1));
    SAY(advise(self, hole, 2, MADV_COLD, 0));
    SAY(advise(self, hole + 1, 1, MADV_COLD, 0));
    SAY(advise(self, pieces, 0, MADV_COLD, 0));
    SAY(advise(self, pieces, 0, MADV_DONTNEED, 0));
    SAY(advise(self, pieces, 2000, MADV_COLD, 0));
    SAY(advise(self, wrong, 1, MADV_COLD, 0));
    SAY(advise(self, outside, 1, MADV_COLD, 0));
    SAY(advise(self, (struct iovec *)8, 1, MADV_COLD, 0));
    SAY(advise(null, pieces, 2, MADV_COLD, 0));
    SAY(advise(-1, pieces, 2, MADV_COLD, 0));
    SAY(advise(-1, wrong, 1, MADV_COLD, 0));
    SAY(advise(1000, pieces, 0, MADV_COLD, 0));
    say_byte(other);
    char byte;
    SAY(read(self, &byte, 1));
    SAY(write(self, &byte, 1));
    SAY(close(self));

    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        pause();
        _exit(1);
    }
    int fd = (int)syscall(SYS_pidfd_open, child, 0);
    CHECK(fd >= 0);
    struct pollfd ended = {fd, POLLIN, 0};
    SAY(poll(&ended, 1, 0));
    SAY(advise(fd, pieces, 2, MADV_COLD, 0));
    SAY(kill(child, SIGKILL));
    SAY(poll(&ended, 1, -1));
    SAY(ended.revents);
    SAY(advise(fd, pieces, 2, MADV_COLD, 0));
    siginfo_t info = {0};
    SAY(waitid(P_PIDFD_, fd, &info, WEXITED));
    SAY(info.si_pid == child && info.si_status == SIGKILL);
    SAY(poll(&ended, 1, 0));
    SAY(waitid(P_PIDFD_, fd, &info, WEXITED));
    SAY(waitid(P_PIDFD_, null, &info, WEXITED));
    SAY(advise(fd, pieces, 2, MADV_COLD, 0));
    SAY(close(fd));
    SAY(munmap(other, 4 * PAGE));
}

static long membarrier(int command, unsigned flags)
{
    return syscall(SYS_membarrier, command, flags, 0);
}

// Two threads, each of which stores to its own flag and reads the other's: at least one of them
// sees the other's store, though only the second one has a barrier.
static atomic_int here, there, ready;
static bool sees[2];

static void *look_without_a_barrier(void *rounds)
{
    for (long round = 1; round <= (long)rounds; round++) {
        while (atomic_load_explicit(&ready, memory_order_acquire) != round)
            ;
        atomic_store_explicit(&here, 1, memory_order_relaxed);
        atomic_signal_fence(memory_order_seq_cst);
        sees[0] = atomic_load_explicit(&there, memory_order_relaxed);
        atomic_store_explicit(&ready, -round, memory_order_release);
    }
    return NULL;
}

static void barriers(void)
{
    enum { ROUNDS = 300 };
    // Without restartable sequences.
    const long known = 0x27f;

    SAY(membarrier(0, 0) & known);
    SAY(membarrier(0, 1));
    SAY(membarrier(512, 0));
    SAY(membarrier(1, 0));
    SAY(membarrier(2, 0));
    SAY(membarrier(8, 0));
    SAY(membarrier(32, 0));
    SAY(membarrier(3, 0));
    SAY(membarrier(1024, 0));
    SAY(membarrier(-1, 0));
    SAY(membarrier(8, 1));
    SAY(membarrier(4, 0));
    SAY(membarrier(512, 0));
    SAY(membarrier(16, 0));
    SAY(membarrier(512, 0));
    SAY(membarrier(8, 0));
    SAY(membarrier(32, 0));
    SAY(membarrier(64, 0));
    SAY(membarrier(512, 0));
    SAY(membarrier(32, 0));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        SAY(membarrier(512, 0));
        SAY(membarrier(8, 0));
        fflush(stdout);
        _exit(0);
    }
    SAY(status_of(child));

    pthread_t other = start(look_without_a_barrier, (void *)(long)ROUNDS);
    int both_blind = 0;
    for (long round = 1; round <= ROUNDS; round++) {
        here = there = 0;
        atomic_store_explicit(&ready, (int)round, memory_order_release);
        atomic_store_explicit(&there, 1, memory_order_relaxed);
        CHECK(membarrier(round % 3 == 0 ? 1 : round % 3 == 1 ? 8 : 32, 0) == 0);
        sees[1] = atomic_load_explicit(&here, memory_order_relaxed);
        while (atomic_load_explicit(&ready, memory_order_acquire) != -round)
            sched_yield();
        both_blind += !sees[0] && !sees[1];
    }
    CHECK(pthread_join(other, NULL) == 0);
    SAY(both_blind);
}

// Registers only for SYNC_CORE.
static void one_registration(void)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        SAY(membarrier(64, 0));
        SAY(membarrier(512, 0));
        SAY(membarrier(8, 0));
        SAY(membarrier(32, 0));
        fflush(stdout);
        _exit(0);
    }
    SAY(status_of(child));
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    // No huge pages, as on a kernel without them.
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    catch_traps();
    answers();
    letting_go();
    one_registration();
    barriers();
    by_descriptor();
    sealed_heap();
    sealing();
    return 0;
}
