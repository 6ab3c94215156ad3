// SPDX-License-Identifier: MIT OR Apache-2.0
//
// `vmsplice`: user memory into a pipe, and a pipe into user memory. A transcript, the same on Linux.

#include "children.h"
#include "transcript.h"

#include <fcntl.h>
#include <sys/uio.h>

#define PAGE 4096L

enum { NO_WAIT = 2, GIFT = 8, ROOM = 16 };

static char from[2 * ROOM * PAGE] __attribute__((aligned(4096)));
static char to[2 * ROOM * PAGE] __attribute__((aligned(4096)));
static int pipes[2];
static volatile int signals;

static void count(int number)
{
    (void)number;
    signals++;
}

static long splice_(int fd, void *at, long length, unsigned flags)
{
    struct iovec piece = {at, length};

    return syscall(SYS_vmsplice, fd, &piece, 1L, flags);
}

static void both_ways(void)
{
    struct iovec in[] = {{from, 10}, {from + 100, 0}, {from + 200, 20}};
    struct iovec out[] = {{to, 5}, {to + 100, 15}, {to + 200, 100}};

    SAY(syscall(SYS_vmsplice, pipes[1], in, 3L, 0));
    SAY(syscall(SYS_vmsplice, pipes[0], out, 3L, 0));
    CHECK(memcmp(to, from, 5) == 0 && memcmp(to + 100, from + 5, 5) == 0);
    CHECK(memcmp(to + 105, from + 200, 10) == 0 && memcmp(to + 200, from + 210, 10) == 0);
    SAY(splice_(pipes[1], from, PAGE, GIFT));
    SAY(read(pipes[0], to, 100));
    CHECK(memcmp(to, from, 100) == 0);
    SAY(splice_(pipes[0], to, PAGE, 0));
    CHECK(memcmp(to, from + 100, PAGE - 100) == 0);
}

static void limits(void)
{
    SAY(splice_(pipes[0], to, 1, NO_WAIT));
    // As much as fits, without a wait for more room.
    SAY(splice_(pipes[1], from, 2 * ROOM * PAGE, 0));
    SAY(splice_(pipes[1], from, 1, NO_WAIT));
    SAY(splice_(pipes[0], to, 3 * PAGE, NO_WAIT));
    SAY(splice_(pipes[1], from, 2 * PAGE, NO_WAIT));
    SAY(splice_(pipes[1], from, 2 * PAGE, NO_WAIT));
    SAY(splice_(pipes[1], from, 1, NO_WAIT));
    SAY(splice_(pipes[0], to, 2 * ROOM * PAGE, 0));
    CHECK(memcmp(to, from + 3 * PAGE, (ROOM - 3) * PAGE) == 0);
    CHECK(memcmp(to + (ROOM - 3) * PAGE, from, 2 * PAGE) == 0);
    CHECK(memcmp(to + (ROOM - 1) * PAGE, from, PAGE) == 0);
}

static void waits(void)
{
    pid_t child;

    fflush(stdout);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        sleep_ms(20);
        SAY(splice_(pipes[1], from, ROOM * PAGE, 0));
        SAY(splice_(pipes[1], from, PAGE, 0));
        fflush(stdout);
        _exit(0);
    }
    long got = splice_(pipes[0], to, ROOM * PAGE, 0);
    CHECK(got > 0);
    for (long all = got; all < (ROOM + 1) * PAGE; all += got) {
        got = splice_(pipes[0], to, ROOM * PAGE, 0);
        CHECK(got > 0);
    }
    SAY(status_of(child));
}

static void errors(void)
{
    struct iovec bad[] = {{from, PAGE}, {(void *)8, PAGE}};
    int null = open("/dev/null", O_RDWR), path = open("/", O_PATH), file = memfd_create("test", 0);

    SAY(splice_(pipes[1], from, 1, 16));
    SAY(splice_(null, from, 1, 0));
    SAY(splice_(null, from, 0, 0));
    SAY(splice_(file, from, 1, 0));
    SAY(splice_(path, from, 1, 0));
    SAY(splice_(-1, from, 1, 0));
    SAY(splice_(pipes[1], (void *)8, 1, 0));
    SAY(splice_(pipes[1], (void *)-4096L, 1, 0));
    SAY(splice_(pipes[1], from, -1, 0));
    SAY(syscall(SYS_vmsplice, pipes[1], bad, 2L, 0));
    SAY(splice_(pipes[0], to, PAGE, 0));
    SAY(syscall(SYS_vmsplice, pipes[1], bad, 1025L, 0));
    SAY(syscall(SYS_vmsplice, pipes[1], (void *)8, 1L, 0));
    SAY(syscall(SYS_vmsplice, pipes[1], NULL, 0L, 0));
    SAY(splice_(pipes[1], from, 5, 0));
    CHECK(close(pipes[1]) == 0);
    SAY(splice_(pipes[0], to, PAGE, 0));
    SAY(splice_(pipes[0], to, PAGE, 0));
    CHECK(pipe(pipes) == 0 && close(pipes[0]) == 0);
    SAY(splice_(pipes[1], from, PAGE, 0));
    printf("signals %d\n", signals);
}

int main(void)
{
    for (size_t i = 0; i < sizeof from; i++)
        from[i] = (char)(i * 7 + i / PAGE);
    CHECK(signal(SIGPIPE, count) != SIG_ERR && pipe(pipes) == 0);
    both_ways();
    limits();
    waits();
    errors();
    return 0;
}
