// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Mappings of files that are truncated or have holes: SIGBUS with its address, the content
// after the file grows again, and the same beside other processes and threads. A transcript, the
// same on Linux.

#include "children.h"
#include "transcript.h"

#include <fcntl.h>
#include <setjmp.h>

#define PAGE 4096L
#define NAME "/dev/shm/faultless-truncated"
// Only this program maps memory there.
static char *const at = (char *)0x100000000000;
static char *const other = (char *)0x100100000000;

static sigjmp_buf back;
static _Thread_local int seen_signal, seen_code;
static _Thread_local char *seen_address;

static void handle(int signal, siginfo_t *info, void *context)
{
    (void)context;
    seen_signal = signal;
    seen_code = info->si_code;
    seen_address = info->si_addr;
    siglongjmp(back, 1);
}

// Prints the result of reading (or writing) a byte.
static void try(const char *what, char *where, int writes)
{
    if (sigsetjmp(back, 1) == 0) {
        volatile char *byte = where;
        if (writes)
            *byte = 'w';
        printf("%s: %d\n", what, *byte);
    } else {
        printf("%s: signal %d code %d at %#lx\n", what, seen_signal, seen_code,
               (unsigned long)(seen_address - where));
    }
}
#define TRY_READ(where) try("read " #where, where, 0)
#define TRY_WRITE(where) try("write " #where, where, 1)

static int file(long size)
{
    int fd = open(NAME, O_RDWR | O_CREAT | O_TRUNC, 0644);
    static char page[PAGE];

    CHECK(fd >= 0);
    for (long done = 0; done < size; done += PAGE) {
        memset(page, 'a' + (int)(done / PAGE), sizeof page);
        CHECK(write(fd, page, PAGE) == PAGE);
    }
    return fd;
}

static void map(char *where, long pages, int flags, int fd)
{
    CHECK(mmap(where, pages * PAGE, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0) == where);
}

static void truncating(void)
{
    int fd = file(8 * PAGE);

    map(at, 8, MAP_SHARED, fd);
    map(other, 8, MAP_PRIVATE, fd);
    TRY_READ(at + 5 * PAGE);
    TRY_WRITE(other + 6 * PAGE + 7);
    SAY(ftruncate(fd, 3 * PAGE + 100));
    TRY_READ(at + 3 * PAGE + 99);
    TRY_READ(at + 3 * PAGE + 100);
    TRY_READ(at + 4 * PAGE + 123);
    TRY_WRITE(at + 5 * PAGE + 1);
    // Private copies are zapped, too.
    TRY_READ(other + 6 * PAGE + 7);
    TRY_WRITE(other + 7 * PAGE);
    TRY_WRITE(other + 3 * PAGE + 100);
    SAY(pread(fd, at + 5 * PAGE, 1, 0));
    SAY(pread(fd, at + 3 * PAGE, 2 * PAGE, 0));
    SAY(pwrite(fd, at + 5 * PAGE, 1, 0));
    SAY(madvise(at + 5 * PAGE, PAGE, 22));
    SAY(madvise(other + 5 * PAGE, PAGE, 23));
    SAY(ftruncate(fd, 6 * PAGE));
    TRY_READ(at + 3 * PAGE + 99);
    TRY_READ(at + 3 * PAGE + 100);
    TRY_READ(at + 4 * PAGE);
    TRY_READ(other + 4 * PAGE);
    TRY_READ(at + 6 * PAGE);
    TRY_WRITE(at + 5 * PAGE);
    TRY_READ(other + 5 * PAGE);
    SAY(ftruncate(fd, 0));
    TRY_READ(at);
    TRY_READ(other + PAGE);
    SAY(pwrite(fd, "x", 1, 2 * PAGE + 1));
    TRY_READ(at + 2 * PAGE + 1);
    TRY_READ(at + 2 * PAGE);
    TRY_READ(at + PAGE);
    TRY_READ(at + 3 * PAGE);
    CHECK(close(open(NAME, O_WRONLY | O_TRUNC)) == 0);
    TRY_READ(at + PAGE);
    SAY(munmap(at, 8 * PAGE));
    TRY_READ(at + PAGE);
    SAY(munmap(other, 8 * PAGE));
    SAY(unlink(NAME));
    close(fd);
}

// Without a handler, in a child.
static void dying(void)
{
    int fd = file(PAGE);

    map(at, 2, MAP_SHARED, fd);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        signal(SIGBUS, SIG_DFL);
        at[PAGE] = 1;
        _exit(0);
    }
    SAY(status_of(child));
    // A blocked SIGBUS kills, too.
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        sigset_t set;
        sigfillset(&set);
        sigprocmask(SIG_BLOCK, &set, NULL);
        at[PAGE] = 1;
        _exit(0);
    }
    SAY(status_of(child));
    SAY(munmap(at, 2 * PAGE));
    SAY(unlink(NAME));
    close(fd);
}

enum { PAGES = 64, ROUNDS = 300 };

static _Atomic int is_over;

// Writes to pages that are truncated and come back.
static void *writing(void *argument)
{
    int fd = *(int *)argument;

    while (!atomic_load(&is_over)) {
        // Through the kernel: its own access to a truncated page raises no signal.
        for (long page = 0; page < PAGES; page += 3)
            (void)!pread(fd, at + page * PAGE + 8, 8, 0);
    }
    return NULL;
}

static void *reading(void *argument)
{
    int pipes[2];

    (void)argument;
    CHECK(pipe(pipes) == 0);
    while (!atomic_load(&is_over))
        for (long page = 0; page < PAGES; page += 2) {
            char bytes[16];
            ssize_t done = write(pipes[1], at + page * PAGE, 16);
            if (done < 0)
                CHECK(errno == EFAULT);
            else
                CHECK(read(pipes[0], bytes, sizeof bytes) == done);
        }
    return NULL;
}

// Another process and threads touch pages that are truncated again and again.
static void racing(void)
{
    int fd = file(PAGES * PAGE);
    char page[PAGE];

    map(at, PAGES, MAP_SHARED, fd);
    map(other, PAGES, MAP_PRIVATE, fd);
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    pthread_t threads[2] = {start(writing, &fd), start(reading, NULL)};
    if (child == 0) {
        for (int round = 0; round < ROUNDS; round++)
            for (long i = 0; i < PAGES; i += 5) {
                char byte;
                (void)!pwrite(fd, other + i * PAGE, 1, i * PAGE + 1);
                (void)!pread(fd, &byte, 1, i * PAGE + 1);
                (void)!pread(fd, other + i * PAGE, 1, i * PAGE);
            }
        atomic_store(&is_over, 1);
        pthread_join(threads[0], NULL);
        pthread_join(threads[1], NULL);
        _exit(7);
    }
    for (int round = 0; round < ROUNDS; round++) {
        CHECK(ftruncate(fd, round % PAGES * PAGE + round) == 0);
        CHECK(ftruncate(fd, PAGES * PAGE) == 0);
        // Truncated content does not come back.
        long first = round % PAGES * PAGE + round;
        if (first / PAGE + 1 < PAGES) {
            long behind = (first / PAGE + 1) * PAGE;
            CHECK(pread(fd, page, PAGE, behind) == PAGE);
            for (int i = 16; i < PAGE; i++)
                EXPECT(page[i] == 0, "round %d byte %d is %d", round, i, page[i]);
        }
        if (round % 10 == 0)
            CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, PAGE,
                            20 * PAGE) == 0);
    }
    atomic_store(&is_over, 1);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    SAY(status_of(child));
    SAY(munmap(at, PAGES * PAGE));
    SAY(munmap(other, PAGES * PAGE));
    SAY(unlink(NAME));
    close(fd);
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO};

    setvbuf(stdout, NULL, _IOLBF, 0);
    CHECK(sigaction(SIGBUS, &action, NULL) == 0);
    CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
    truncating();
    dying();
    racing();
    puts("over");
    return 0;
}
