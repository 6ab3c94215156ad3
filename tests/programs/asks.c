// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Queries that C libraries and shells make before they start, and that may fail: whether a descriptor
// is a connection, whether there is a name service, what the program may do. Runs on Linux too, and
// prints the same there; rights that are granted there and not here are left out.

#include "common.h"

#include <fcntl.h>
#include <sys/socket.h>

static int number(long result)
{
    return result == -1 ? errno : 0;
}

static void sockets(void)
{
    struct sockaddr address;
    socklen_t length = sizeof address;
    int file = open("/dev/null", O_RDONLY), path = open("/", O_PATH), pair[2], pipes[2];
    char byte = 0;

    CHECK(file >= 0 && path >= 0 && pipe(pipes) == 0);
    const int descriptors[] = {file, path, pipes[1], -1, 12345};
    for (size_t i = 0; i < sizeof descriptors / sizeof *descriptors; i++) {
        int fd = descriptors[i];
        printf("descriptor %zu: %d", i, number(getpeername(fd, &address, &length)));
        printf(" %d", number(getsockname(fd, &address, &length)));
        printf(" %d", number(listen(fd, 1)));
        printf(" %d", number(accept(fd, NULL, NULL)));
        printf(" %d", number(shutdown(fd, SHUT_RDWR)));
        printf(" %d", number(send(fd, &byte, 1, 0)));
        printf(" %d\n", number(recv(fd, &byte, 1, 0)));
    }
    printf("families: %d", number(socket(46, SOCK_STREAM, 0)));
    printf(" %d", number(socket(-1, SOCK_STREAM, 0)));
    printf(" %d", number(socket(AF_UNIX, 11, 0)));
    printf(" %d", number(socket(AF_UNIX, SOCK_STREAM | 0x100, 0)));
    printf(" %d\n", number(socketpair(46, SOCK_STREAM, 0, pair)));
}

enum { VERSION_3 = 0x20080522 };

static void capabilities(void)
{
    struct {
        uint32_t version;
        int pid;
    } header = {.version = VERSION_3};
    struct {
        uint32_t effective, permitted, inheritable;
    } data[2] = {{0}};

    printf("asked: %d", number(syscall(SYS_capget, &header, data)));
    CHECK((data[0].effective & ~data[0].permitted) == 0 && (data[1].permitted >> 9) == 0);
    printf(" given: %d", number(syscall(SYS_capset, &header, data)));
    header.pid = getpid();
    printf(" by number: %d", number(syscall(SYS_capget, &header, data)));
    header.pid = -1;
    printf(" nobody: %d", number(syscall(SYS_capget, &header, data)));
    printf(" %d", number(syscall(SYS_capset, &header, data)));
    header.pid = 1 << 22;
    printf(" %d", number(syscall(SYS_capget, &header, data)));
    header.pid = 0;
    printf(" nowhere: %d", number(syscall(SYS_capget, &header, (void *)8)));
    printf(" %d", number(syscall(SYS_capget, (void *)8, data)));
    data[0].effective = 1;
    data[0].permitted = 0;
    printf(" more: %d", number(syscall(SYS_capset, &header, data)));
    header.version = 1;
    printf(" version: %d", number(syscall(SYS_capget, &header, data)));
    CHECK(header.version == VERSION_3);
    header.version = 1;
    printf(" %d", number(syscall(SYS_capget, &header, NULL)));
    CHECK(header.version == VERSION_3);
    header.version = 1;
    printf(" %d\n", number(syscall(SYS_capset, &header, data)));
}

int main(void)
{
    sockets();
    capabilities();
    return 0;
}
