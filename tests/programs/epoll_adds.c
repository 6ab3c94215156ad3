// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Threads add ready descriptors to one epoll instance and close them again, at the same time. Adding never
// fails, however the lists change meanwhile.

#include "common.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

// Many ready items make the search in the list long, so that threads meet there.
enum { THREADS = 8, ROUNDS = 3000, ITEMS = 900 };

static int epoll;

static int add(void)
{
    struct epoll_event event = {.events = EPOLLIN};
    int fd = eventfd(1, 0);

    CHECK(fd >= 0);
    CHECK(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0);
    return fd;
}

static void *add_and_close(void *argument)
{
    for (int round = 0; round < ROUNDS; round++)
        CHECK(close(add()) == 0);
    return argument;
}

int main(void)
{
    pthread_t threads[THREADS];

    epoll = epoll_create1(0);
    CHECK(epoll >= 0);
    for (int i = 0; i < ITEMS; i++)
        add();
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(add_and_close, NULL);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    puts("all added");
    return 0;
}
