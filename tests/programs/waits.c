// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Pipes, poll, select, epoll and eventfd: a transcript, as on Linux.

#include "transcript.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/select.h>

static char page[65536];

static int ready(int fd, int events)
{
    struct pollfd wanted = {fd, events, 0};

    return poll(&wanted, 1, 0) < 0 ? -1 : wanted.revents;
}

static void pipes(void)
{
    int ends[2], there;

    SAY(syscall(SYS_pipe2, 8, 0));
    SAY(pipe2(ends, 0x100000));
    SAY(pipe(ends));
    printf("descriptors %d %d\n", ends[0], ends[1]);
    SAY(write(ends[0], "x", 1));
    SAY(read(ends[1], page, 1));
    SAY(lseek(ends[0], 0, SEEK_CUR));
    SAY(pread(ends[0], page, 1, 0));
    SAY(fcntl(ends[0], F_GETPIPE_SZ));
    SAY(fcntl(ends[0], F_SETPIPE_SZ, 5000));
    SAY(fcntl(ends[1], F_SETFL, O_NONBLOCK));
    SAY(fcntl(ends[0], F_SETFL, O_NONBLOCK));
    SAY(read(ends[0], page, 1));
    SAY(write(ends[1], page, 4096));
    SAY(ready(ends[1], POLLOUT));
    SAY(write(ends[1], page, 4096));
    SAY(write(ends[1], page, 1));
    SAY(ready(ends[1], POLLOUT));
    SAY(fcntl(ends[0], F_SETPIPE_SZ, 4096));
    SAY(ioctl(ends[0], FIONREAD, &there));
    printf("%d there\n", there);
    SAY(read(ends[0], page, 5000));
    SAY(fcntl(ends[0], F_SETPIPE_SZ, 4096));
    SAY(read(ends[0], page, 5000));
    SAY(write(ends[1], "abc", 3));
    SAY(ready(ends[0], POLLIN | POLLOUT));
    close(ends[1]);
    SAY(ready(ends[0], POLLIN));
    SAY(read(ends[0], page, 100));
    SAY(read(ends[0], page, 100));
    SAY(ready(ends[0], POLLIN));
    close(ends[0]);
    SAY(pipe(ends));
    close(ends[0]);
    signal(SIGPIPE, SIG_IGN);
    SAY(write(ends[1], "x", 1));
    SAY(ready(ends[1], POLLOUT));
    close(ends[1]);
}

static void polling(void)
{
    struct pollfd list[3] = {{-1, POLLIN, 77}, {99, POLLIN, 0}, {0, 0, 0}};
    struct timeval zero = {0, 0}, wrong = {-1, 0};
    int ends[2];
    fd_set reads, writes;

    EXPECT(pipe(ends) == 0, "pipe");
    SAY(poll(list, 2, 0));
    printf("%d %d\n", list[0].revents, list[1].revents);
    SAY(poll((struct pollfd *)8, 1, 0));
    SAY(poll(list, 1 << 24, 0));
    SAY(poll(NULL, 0, 1));
    FD_ZERO(&reads);
    FD_ZERO(&writes);
    FD_SET(ends[0], &reads);
    FD_SET(ends[1], &writes);
    SAY(select(ends[1] + 1, &reads, &writes, NULL, &zero));
    printf("%d %d\n", FD_ISSET(ends[0], &reads) != 0, FD_ISSET(ends[1], &writes) != 0);
    FD_SET(ends[0], &reads);
    EXPECT(write(ends[1], "x", 1) == 1, "write");
    SAY(select(ends[0] + 1, &reads, NULL, NULL, NULL));
    SAY(select(-1, NULL, NULL, NULL, NULL));
    SAY(select(1, NULL, NULL, NULL, &wrong));
    /* The set is checked only up to the size of the descriptor table, so enlarge the table. */
    dup2(ends[0], 90);
    close(90);
    FD_ZERO(&reads);
    FD_SET(90, &reads);
    SAY(select(91, &reads, NULL, NULL, &zero));
    close(ends[0]);
    close(ends[1]);
}

static int next(int epoll, uint64_t *data)
{
    struct epoll_event event = {0, {0}};
    int count = epoll_wait(epoll, &event, 1, 0);

    *data = event.data.u64;
    return count <= 0 ? count : (int)event.events;
}

static void watching(void)
{
    struct epoll_event event = {EPOLLIN, {.u64 = 0x123456789abcdef0}};
    int epoll = epoll_create1(EPOLL_CLOEXEC), other = epoll_create(1);
    int ends[2], count = eventfd(0, EFD_NONBLOCK);
    uint64_t data;

    EXPECT(pipe(ends) == 0, "pipe");
    SAY(epoll_create(0));
    SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, 99, &event));
    SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, epoll, &event));
    SAY(epoll_ctl(ends[0], EPOLL_CTL_ADD, epoll, &event));
    SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, open("/proc/self/maps", O_RDONLY), &event));
    SAY(epoll_ctl(epoll, EPOLL_CTL_MOD, ends[0], &event));
    SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event));
    SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &event));
    SAY(epoll_ctl(epoll, 9, ends[0], &event));
    SAY(epoll_wait(epoll, &event, 0, 0));
    SAY(next(epoll, &data));
    EXPECT(write(ends[1], "x", 1) == 1, "write");
    SAY(next(epoll, &data));
    printf("%llx\n", (unsigned long long)data);
    SAY(next(epoll, &data)); // level-triggered: again
    event.events = EPOLLIN | EPOLLET;
    SAY(epoll_ctl(epoll, EPOLL_CTL_MOD, ends[0], &event));
    SAY(next(epoll, &data));
    SAY(next(epoll, &data)); // edge-triggered: not again
    EXPECT(write(ends[1], "y", 1) == 1, "write");
    SAY(next(epoll, &data));
    SAY(next(epoll, &data));
    event.events = EPOLLIN | EPOLLONESHOT;
    SAY(epoll_ctl(epoll, EPOLL_CTL_MOD, ends[0], &event));
    SAY(next(epoll, &data));
    EXPECT(write(ends[1], "z", 1) == 1, "write");
    SAY(next(epoll, &data));
    SAY(epoll_ctl(epoll, EPOLL_CTL_MOD, ends[0], &event));
    SAY(next(epoll, &data));
    // An epoll that watches an epoll; cycles are refused.
    event.events = EPOLLIN;
    event.data.u64 = 2;
    SAY(epoll_ctl(other, EPOLL_CTL_ADD, epoll, &event));
    SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, other, &event));
    SAY(epoll_ctl(epoll, EPOLL_CTL_ADD, count, &event));
    SAY(next(other, &data));
    SAY(eventfd_write(count, 5));
    SAY(next(other, &data));
    SAY(next(epoll, &data));
    SAY(epoll_ctl(epoll, EPOLL_CTL_DEL, count, NULL));
    SAY(epoll_ctl(epoll, EPOLL_CTL_DEL, count, NULL));
    SAY(next(epoll, &data));
    // A descriptor that is closed for good is no longer watched.
    event.events = EPOLLIN;
    SAY(epoll_ctl(epoll, EPOLL_CTL_MOD, ends[0], &event));
    int copy = dup(ends[0]);
    close(ends[0]);
    SAY(next(epoll, &data));
    close(copy);
    SAY(next(epoll, &data));
    SAY(ready(epoll, POLLIN));
    close(ends[1]);
    close(other);
    close(epoll);
    close(count);
}

static void counters(void)
{
    uint64_t value;
    int fd = eventfd(3, EFD_NONBLOCK), one = eventfd(2, EFD_NONBLOCK | EFD_SEMAPHORE);

    SAY(eventfd(0, 0x10));
    SAY(read(fd, &value, 7));
    SAY(read(fd, &value, 8));
    printf("%d\n", (int)value);
    SAY(read(fd, &value, 8));
    SAY(ready(fd, POLLIN | POLLOUT));
    value = UINT64_MAX;
    SAY(write(fd, &value, 8));
    value = UINT64_MAX - 1;
    SAY(write(fd, &value, 8));
    SAY(ready(fd, POLLIN | POLLOUT));
    value = 1;
    SAY(write(fd, &value, 8));
    for (int i = 0; i < 3; i++) {
        SAY(read(one, &value, 8));
        printf("%d\n", (int)value);
    }
    close(fd);
    close(one);
}

// Threads that wait for each other in every way there is.
static int there[2], back[2], queue, bell;

static void *echo(void *argument)
{
    char byte;

    (void)argument;
    while (read(there[0], &byte, 1) == 1)
        EXPECT(write(back[1], &byte, 1) == 1, "echo");
    return NULL;
}

static void *ring(void *argument)
{
    for (int i = 0; i < 200; i++) {
        eventfd_write(bell, 1);
        if (i % 16 == 0)
            sleep_ms(1);
    }
    return argument;
}

static void together(void)
{
    struct epoll_event event = {EPOLLIN | EPOLLET, {0}};
    struct pollfd wanted;
    uint64_t sum = 0, value;
    pthread_t thread;
    char byte = 0;

    EXPECT(pipe(there) == 0 && pipe(back) == 0, "pipe");
    thread = start(echo, NULL);
    for (int i = 0; i < 500; i++) {
        EXPECT(write(there[1], "e", 1) == 1, "write");
        if (i % 2) {
            wanted = (struct pollfd){back[0], POLLIN, 0};
            EXPECT(poll(&wanted, 1, -1) == 1, "poll");
        }
        EXPECT(read(back[0], &byte, 1) == 1 && byte == 'e', "read");
    }
    close(there[1]);
    pthread_join(thread, NULL);
    queue = epoll_create1(0);
    bell = eventfd(0, EFD_NONBLOCK);
    EXPECT(epoll_ctl(queue, EPOLL_CTL_ADD, bell, &event) == 0, "add");
    thread = start(ring, NULL);
    while (sum < 200) {
        EXPECT(epoll_wait(queue, &event, 1, 20000) == 1, "lost: %d", (int)sum);
        while (read(bell, &value, 8) == 8)
            sum += value;
    }
    pthread_join(thread, NULL);
    printf("together: %d\n", (int)sum);
}

// Pushes much data through a pipe, in pieces that do not match its pages.
static void *pour(void *argument)
{
    size_t sent = 0;

    (void)argument;
    while (sent < 3000000) {
        size_t size = 1 + sent % 9999;
        for (size_t i = 0; i < size; i++)
            page[i] = (char)((sent + i) * 7 >> 3);
        EXPECT(write(there[1], page, size) == (ssize_t)size, "pour");
        sent += size;
    }
    close(there[1]);
    return NULL;
}

static void much(void)
{
    static char piece[7777];
    size_t got = 0;
    ssize_t size;

    EXPECT(pipe(there) == 0, "pipe");
    pthread_t thread = start(pour, NULL);
    while ((size = read(there[0], piece, sizeof piece)) > 0) {
        for (ssize_t i = 0; i < size; i++)
            EXPECT(piece[i] == (char)((got + i) * 7 >> 3), "byte %zu", got + i);
        got += size;
    }
    pthread_join(thread, NULL);
    printf("much: %zu\n", got);
}

// Concurrent reads of one description of /proc all get its content.
static void *read_together(void *fd)
{
    char text[40];

    for (int i = 0; i < 2000; i++)
        EXPECT(pread(*(int *)fd, text, sizeof text, 20 * (i % 2)) == sizeof text, "empty");
    return NULL;
}

static void described(void)
{
    int fd = open("/proc/self/maps", O_RDONLY);
    pthread_t threads[3];

    for (int i = 0; i < 3; i++)
        threads[i] = start(read_together, &fd);
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    close(fd);
}

int main(void)
{
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    pipes();
    polling();
    watching();
    counters();
    together();
    much();
    described();
    fflush(stdout);
    return 0;
}
