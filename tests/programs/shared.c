// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Memory shared between processes: anonymous and /dev/zero, across fork, with atomics, futexes, mprotect,
// mremap and advice. A transcript, the same on Linux.

#include "children.h"
#include "transcript.h"

#include <fcntl.h>

#define PAGE 4096L
// Only this program maps memory there.
static char *const at = (char *)0x100000000000;

enum { CHILDREN = 4, ROUNDS = 2000, PAGES = 16 };

static char *map(char *where, long pages, int flags, int fd)
{
    char *got = mmap(where, pages * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED | flags,
                     fd, 0);

    EXPECT(got == where, "mmap");
    return got;
}

static void say_present(const char *where, long pages)
{
    unsigned char there[64];

    CHECK(mincore((void *)where, pages * PAGE, there) == 0);
    printf("there: ");
    for (long page = 0; page < pages; page++)
        putchar('0' + (there[page] & 1));
    puts("");
}

// FUTEX_WAIT and FUTEX_WAKE, shared between processes.
static long sleep_on(_Atomic int *word, int value)
{
    return syscall(SYS_futex, word, 0, value, NULL, NULL, 0);
}

static long wake(_Atomic int *word, int count)
{
    return syscall(SYS_futex, word, 1, count, NULL, NULL, 0);
}

// A lock in shared memory.
static void lock(_Atomic int *word)
{
    int seen = 0;

    if (atomic_compare_exchange_strong(word, &seen, 1))
        return;
    while (atomic_exchange(word, 2) != 0)
        sleep_on(word, 2);
}

static void unlock(_Atomic int *word)
{
    if (atomic_exchange(word, 0) == 2)
        wake(word, 1);
}

static void counting(void)
{
    pid_t children[CHILDREN];
    _Atomic int *word = (_Atomic int *)map(at, PAGES, MAP_ANONYMOUS, -1);
    volatile long *sum = (long *)(at + 3 * PAGE);

    for (int i = 0; i < CHILDREN; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i] == 0) {
            for (long round = 0; round < ROUNDS; round++) {
                lock(word);
                *sum += 1;
                unlock(word);
                // First touches race, too: all must get one page.
                atomic_fetch_add((_Atomic int *)(at + (4 + round % 8) * PAGE), 1);
            }
            _exit(i);
        }
    }
    for (int i = 0; i < CHILDREN; i++)
        SAY(status_of(children[i]));
    long touched = 0;
    for (int i = 4; i < 12; i++)
        touched += *(int *)(at + i * PAGE);
    printf("%ld %ld\n", *sum, touched);
    say_present(at, PAGES);
    SAY(munmap(at, PAGES * PAGE));
}

// A parent and its child take turns by futexes at different addresses.
static void taking_turns(void)
{
    char *second = at + 64 * PAGE;

    map(at, 1, MAP_ANONYMOUS, -1);
    _Atomic int *word = (_Atomic int *)(at + 64);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(mremap(at, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, second) == second);
        word = (_Atomic int *)(second + 64);
    }
    for (int turn = child == 0 ? 1 : 0; turn < 400; turn += 2) {
        int seen;
        while ((seen = atomic_load(word)) != turn)
            sleep_on(word, seen);
        atomic_store(word, turn + 1);
        wake(word, 100);
    }
    if (child == 0)
        _exit(3);
    SAY(status_of(child));
    printf("%d\n", atomic_load(word));
    SAY(munmap(at, PAGE));
}

static void changing(void)
{
    int zero = open("/dev/zero", O_RDWR);

    map(at, 8, 0, zero);
    for (int page = 0; page < 8; page++)
        at[page * PAGE] = (char)(page + 1);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        // Changes of the child's own mappings.
        SAY(mprotect(at, 2 * PAGE, PROT_READ));
        SAY(munmap(at + 2 * PAGE, PAGE));
        SAY(madvise(at + 3 * PAGE, PAGE, MADV_DONTNEED));
        printf("%d %d\n", at[0], at[3 * PAGE]);
        // A change that all processes see.
        SAY(madvise(at + 4 * PAGE, PAGE, MADV_REMOVE));
        at[5 * PAGE] = 50;
        CHECK(mmap(at + 6 * PAGE, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                   0) == at + 6 * PAGE);
        printf("%d\n", at[6 * PAGE]);
        fflush(stdout);
        _exit(0);
    }
    SAY(status_of(child));
    for (int page = 0; page < 8; page++)
        printf("%d ", at[page * PAGE]);
    puts("");
    at[0] = 9;
    SAY(madvise(at, PAGE, MADV_DONTFORK));
    SAY(madvise(at + PAGE, PAGE, MADV_WIPEONFORK));
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        printf("%d\n", mincore(at, PAGE, (unsigned char *)at + PAGE));
        fflush(stdout);
        at[7 * PAGE] = 70;
        _exit(0);
    }
    SAY(status_of(child));
    printf("%d %d\n", at[0], at[7 * PAGE]);
    SAY((char *)mremap(at + 4 * PAGE, 4 * PAGE, 6 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED,
                       at + 32 * PAGE) - at);
    printf("%d %d\n", at[33 * PAGE], at[35 * PAGE]);
    SAY(mprotect(at, 4 * PAGE, PROT_NONE));
    SAY(mprotect(at, 4 * PAGE, PROT_READ | PROT_WRITE));
    printf("%d %d\n", at[0], at[3 * PAGE]);
    SAY(munmap(at, 64 * PAGE));
    close(zero);
}

// Errors of shared mappings without a file.
static void refusing(void)
{
#define MAP(prot, flags) \
    SAY(mmap(at, PAGE, prot, (flags) | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED ? -1 : 0)
    MAP(PROT_READ, MAP_SHARED_VALIDATE);
    MAP(PROT_READ, MAP_SHARED | MAP_GROWSDOWN);
    MAP(PROT_READ, 0);
    MAP(PROT_READ, MAP_SHARED | MAP_NORESERVE);
    MAP(PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE);
    SAY(munmap(at, PAGE));
    int zero = open("/dev/zero", O_RDONLY);
    SAY(mmap(at, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, zero, 0) == MAP_FAILED ? -1 : 0);
    CHECK(mmap(at, PAGE, PROT_READ, MAP_SHARED | MAP_FIXED, zero, 0) == at);
    printf("%d\n", at[0]);
    SAY(mprotect(at, PAGE, PROT_READ | PROT_WRITE));
    SAY(munmap(at, PAGE));
    close(zero);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    counting();
    taking_turns();
    changing();
    refusing();
    return 0;
}
