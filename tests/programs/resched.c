// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Unmapping many pages does not monopolise a CPU: on one CPU a thread that only reads
// the clock keeps running, whatever another thread unmaps.
//
// The longest time between two reads is compared with the duration of the operation. A busy host
// can keep the guest from running, so an operation may be tried again: if it never reschedules,
// every try shows it.

#include "common.h"

#include <setjmp.h>
#include <sys/wait.h>

// Newer than the headers.
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif

enum { PAGE = 4096, TRIES = 10 };

static const size_t SIZE = 4UL << 30, FILE_SIZE = 8UL << 20, WIDE = 16UL << 30;

// Shared with the thread that reads the clock, children included.
static struct {
    atomic_long looks, longest;
} *shared;

static long now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000L + time.tv_nsec;
}

static void *look(void *argument)
{
    long before = now();

    (void)argument;
    for (;;) {
        long at = now();

        if (at - before > atomic_load(&shared->longest))
            atomic_store(&shared->longest, at - before);
        before = at;
        atomic_fetch_add(&shared->looks, 1);
    }
    return NULL;
}

static char *map(size_t size, int flags, int file)
{
    char *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, flags, file, 0);

    EXPECT(memory != MAP_FAILED, "mmap");
    return memory;
}

// Many pages, in little memory: all are the zero page.
static char *many(void)
{
    char *memory = map(SIZE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);

    CHECK(madvise(memory, SIZE, MADV_POPULATE_READ) == 0);
    return memory;
}

static void await_look(void)
{
    long looks = atomic_load(&shared->looks);

    while (atomic_load(&shared->looks) == looks)
        sched_yield();
}

// Starts a measurement: the next read of the clock belongs to this operation.
static long begin(void)
{
    await_look();
    atomic_store(&shared->longest, 0);
    return now();
}

static long of_munmap(void)
{
    char *memory = many();
    long since = begin();

    CHECK(munmap(memory, SIZE) == 0);
    return now() - since;
}

static long of_mapping_over(void)
{
    char *memory = many();
    long since = begin();

    CHECK(mmap(memory, SIZE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1,
               0) == memory);
    since = now() - since;
    CHECK(munmap(memory, SIZE) == 0);
    return since;
}

static long of_discarding(void)
{
    char *memory = many();
    long since = begin();

    CHECK(madvise(memory, SIZE, MADV_DONTNEED) == 0);
    since = now() - since;
    CHECK(munmap(memory, SIZE) == 0);
    return since;
}

static long of_moving(void)
{
    char *memory = many(), *all = map(SIZE + PAGE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
    // At another offset in its tables than before: moving whole tables takes no time.
    char *to = all + ((all - memory) % (512 * PAGE) == 0 ? PAGE : 0);
    long since = begin();

    CHECK(mremap(memory, SIZE, SIZE, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    since = now() - since;
    CHECK(munmap(all, SIZE + PAGE) == 0);
    return since;
}

static atomic_bool begun, is_over;
static __thread sigjmp_buf *recovery;

static void recover(int signal)
{
    (void)signal;
    siglongjmp(*recovery, 1);
}

static void *touch(void *address)
{
    sigjmp_buf here;

    recovery = &here;
    while (!atomic_load(&begun))
        sched_yield();
    while (!atomic_load(&is_over)) {
        if (sigsetjmp(here, 1) == 0) {
            *(volatile char *)address = 1;
            EXPECT(false, "nothing is mapped there");
        }
    }
    return NULL;
}

// Touches the page before a move's target meanwhile: if the target was a stack, the fault
// would have to grow it, so the fault must find out.
static long of_moving_beside_faults(void)
{
    const size_t gap = 64 * PAGE, size = WIDE - gap;
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *memory = map(WIDE, flags, -1), *to = map(WIDE, flags, -1);
    struct sigaction action = {.sa_handler = recover};
    pthread_t other = start(touch, to + gap / 2);
    long since;

    // Each page has a table of its own, so most of the time passes before the move is published.
    for (size_t at = 0; at < size; at += 512 * PAGE)
        *(volatile char *)(memory + at);
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    CHECK(munmap(to, WIDE) == 0);
    to += gap;
    atomic_store(&is_over, false);
    atomic_store(&begun, true);
    since = begin();
    CHECK(mremap(memory, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
    since = now() - since;
    atomic_store(&is_over, true);
    pthread_join(other, NULL);
    atomic_store(&begun, false);
    CHECK(munmap(to, size) == 0 && munmap(memory + size, gap) == 0);
    return since;
}

// A file's pages, mapped many times, because the file must fit into memory.
enum { TIMES = 128 };

static char *many_of(int file)
{
    char *memory = map(TIMES * FILE_SIZE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);

    CHECK(ftruncate(file, FILE_SIZE) == 0);
    for (char *at = memory; at < memory + TIMES * FILE_SIZE; at += FILE_SIZE)
        CHECK(mmap(at, FILE_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == at);
    CHECK(madvise(memory, TIMES * FILE_SIZE, MADV_POPULATE_WRITE) == 0);
    return memory;
}

static long of_truncating(void)
{
    int file = memfd_create("pages", 0);
    char *memory = many_of(file);
    long since = begin();

    CHECK(ftruncate(file, 0) == 0);
    since = now() - since;
    CHECK(munmap(memory, TIMES * FILE_SIZE) == 0);
    close(file);
    return since;
}

static void *unmap(void *memory)
{
    atomic_store(&begun, true);
    CHECK(munmap(memory, TIMES * FILE_SIZE) == 0);
    return NULL;
}

// Truncates while an unmap has yielded in the middle: the truncation waits for the unmap.
static long of_truncating_beside(void)
{
    int file = memfd_create("pages", 0);
    char *memory = many_of(file);
    pthread_t other;
    long since = begin();

    atomic_store(&begun, false);
    other = start(unmap, memory);
    while (!atomic_load(&begun))
        sched_yield();
    CHECK(ftruncate(file, 0) == 0);
    since = now() - since;
    pthread_join(other, NULL);
    close(file);
    return since;
}

// Populating droppable memory can go on for ever, until the process is killed.
static long of_populating(void)
{
    enum { DROPPABLE = 8 };
    long since;
    pid_t child;
    int status;

    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        mmap(NULL, WIDE, PROT_READ | PROT_WRITE, DROPPABLE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        _exit(1);
    }
    since = begin();
    sleep_ms(500);
    CHECK(kill(child, SIGKILL) == 0);
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    since = now() - since;
    EXPECT(since < 10000000000, "%ld us until it was gone", since / 1000);
    return since;
}

static long of_exit(void)
{
    long *since = (long *)map(PAGE, MAP_SHARED | MAP_ANONYMOUS, -1);
    pid_t child = fork();
    int status;
    long took;

    CHECK(child >= 0);
    if (child == 0) {
        for (int i = 0; i < 4; i++)
            many();
        *since = begin();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    took = now() - *since;
    CHECK(munmap(since, PAGE) == 0);
    return took;
}

int main(void)
{
    static const struct {
        const char *name;
        long (*take)(void);
    } all[] = {
        {"munmap", of_munmap},
        {"MAP_FIXED", of_mapping_over},
        {"MADV_DONTNEED", of_discarding},
        {"mremap", of_moving},
        {"mremap beside faults", of_moving_beside_faults},
        {"ftruncate", of_truncating},
        {"ftruncate beside munmap", of_truncating_beside},
        {"exit", of_exit},
        {"MAP_POPULATE", of_populating},
    };

    shared = (void *)map(PAGE, MAP_SHARED | MAP_ANONYMOUS, -1);
    restrict_to(0, 1);
    start(look, NULL);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        long took, longest;
        int tries = 0;

        do {
            took = all[i].take();
            await_look();
            longest = atomic_load(&shared->longest);
            fprintf(stderr, "%s: %ld us, longest %ld us\n", all[i].name, took / 1000,
                    longest / 1000);
        } while (longest * 3 > took && ++tries < TRIES);
        EXPECT(tries < TRIES, "%s: no other thread ran for %ld of %ld us", all[i].name, longest / 1000,
               took / 1000);
        printf("%s lets others run\n", all[i].name);
    }
    return 0;
}
