// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Shared by the programs that use userfaultfd: its numbers, as <linux/userfaultfd.h>, which not every
// C library comes with, and a thread that handles faults.

#ifndef TESTS_USERFAULT_H
#define TESTS_USERFAULT_H

#include "touch.h"
#include "transcript.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>

struct range { uint64_t start, len; };
struct api { uint64_t api, features, ioctls; };
struct registration { struct range range; uint64_t mode, ioctls; };
struct copy { uint64_t dst, src, len, mode; int64_t done; };
struct fill { struct range range; uint64_t mode; int64_t done; };
struct protect { struct range range; uint64_t mode; };
struct message { uint8_t event, reserved[7]; uint64_t words[3]; };

#define NUMBER(direction, number, type) _IOC(direction, 0xaa, number, sizeof(type))
#define BOTH (_IOC_READ | _IOC_WRITE)
#define UFFD_API_ NUMBER(BOTH, 0x3f, struct api)
#define UFFD_REGISTER_ NUMBER(BOTH, 0, struct registration)
#define UFFD_UNREGISTER_ NUMBER(_IOC_READ, 1, struct range)
#define UFFD_WAKE_ NUMBER(_IOC_READ, 2, struct range)
#define UFFD_COPY_ NUMBER(BOTH, 3, struct copy)
#define UFFD_ZEROPAGE_ NUMBER(BOTH, 4, struct fill)
#define UFFD_MOVE_ NUMBER(BOTH, 5, struct copy)
#define UFFD_WRITEPROTECT_ NUMBER(BOTH, 6, struct protect)
#define UFFD_CONTINUE_ NUMBER(BOTH, 7, struct fill)
#define UFFD_POISON_ NUMBER(BOTH, 8, struct fill)
#define UFFD_NEW_ _IO(0xaa, 0)

enum { MISSING = 1, WP = 2, MINOR = 4 };
enum {
    HAS_WP = 1 << 0, EVENT_FORK = 1 << 1, EVENT_REMAP = 1 << 2, EVENT_REMOVE = 1 << 3,
    EVENT_UNMAP = 1 << 6, SIGBUS_ = 1 << 7, THREAD_ID = 1 << 8, MINOR_SHMEM = 1 << 10,
    EXACT = 1 << 11, WP_SHMEM = 1 << 12, WP_UNPOPULATED = 1 << 13, HAS_POISON = 1 << 14,
    WP_ASYNC = 1 << 15, HAS_MOVE = 1 << 16,
};

// Only these programs map memory there.
static char *const at = (char *)0x100000000000;
static char *const to = (char *)0x100040000000;
static char source[2 * 4096] __attribute__((aligned(4096)));

static inline int open_fd(int flags)
{
    return (int)syscall(SYS_userfaultfd, flags);
}

static inline long agree(int fd, uint64_t features)
{
    struct api api = {.api = 0xaa, .features = features};

    return ioctl(fd, UFFD_API_, &api);
}

// A userfaultfd with these features.
static inline int begin(uint64_t features)
{
    int fd = open_fd(O_CLOEXEC);

    CHECK(fd >= 0 && agree(fd, features) == 0);
    return fd;
}

static inline long register_at(int fd, char *where, long pages, uint64_t mode)
{
    struct registration request = {{(uintptr_t)where, pages * PAGE}, mode, 0};

    return ioctl(fd, UFFD_REGISTER_, &request);
}

static inline long unregister(int fd, char *where, long pages)
{
    struct range range = {(uintptr_t)where, pages * PAGE};

    return ioctl(fd, UFFD_UNREGISTER_, &range);
}

static inline long wake(int fd, char *where, long pages)
{
    struct range range = {(uintptr_t)where, pages * PAGE};

    return ioctl(fd, UFFD_WAKE_, &range);
}

static int64_t done;

static inline long copy(int fd, char *where, void *from, long bytes, uint64_t mode)
{
    struct copy request = {(uintptr_t)where, (uintptr_t)from, bytes, mode, 77};
    long result = ioctl(fd, UFFD_COPY_, &request);

    done = request.done;
    return result;
}

static inline long move(int fd, char *where, char *from, long bytes, uint64_t mode)
{
    struct copy request = {(uintptr_t)where, (uintptr_t)from, bytes, mode, 77};
    long result = ioctl(fd, UFFD_MOVE_, &request);

    done = request.done;
    return result;
}

static inline long fill(int fd, unsigned long number, char *where, long bytes, uint64_t mode)
{
    struct fill request = {{(uintptr_t)where, bytes}, mode, 77};
    long result = ioctl(fd, number, &request);

    done = request.done;
    return result;
}

static inline long protect(int fd, char *where, long bytes, uint64_t mode)
{
    struct protect request = {{(uintptr_t)where, bytes}, mode};

    return ioctl(fd, UFFD_WRITEPROTECT_, &request);
}

// A thread that reads one message after the other, prints it, and calls `act`, until the descriptor is closed or
// `act` returns false.
typedef struct {
    int fd;
    bool (*act)(int fd, const struct message *message);
    pthread_t thread;
} Handler;

static inline const char *place_of(uint64_t address, char *text)
{
    if (address >= (uintptr_t)to)
        sprintf(text, "to+%#lx", (long)(address - (uintptr_t)to));
    else
        sprintf(text, "at+%#lx", (long)(address - (uintptr_t)at));
    return text;
}

static inline void say_message(const struct message *message)
{
    char a[32], b[32];
    const uint64_t *words = message->words;

    switch (message->event) {
    case 0x12:
        printf("fault at %s flags %lu thread %s\n", place_of(words[1], a), (long)words[0],
               words[2] != 0 ? "known" : "unknown");
        break;
    case 0x13: printf("fork\n"); break;
    case 0x14:
        printf("remap %s %s %#lx\n", place_of(words[0], a), place_of(words[1], b), (long)words[2]);
        break;
    case 0x15: printf("remove %s %s\n", place_of(words[0], a), place_of(words[1], b)); break;
    case 0x16: printf("unmap %s %s\n", place_of(words[0], a), place_of(words[1], b)); break;
    default: printf("event %#x\n", message->event);
    }
    fflush(stdout);
}

static void *handle(void *handler)
{
    Handler *self = handler;
    struct message message;

    for (;;) {
        ssize_t got = read(self->fd, &message, sizeof message);

        if (got < 0 && errno == EINTR)
            continue;
        EXPECT(got == sizeof message, "a message of %zd bytes", got);
        say_message(&message);
        if (!self->act(self->fd, &message))
            return NULL;
    }
}

static inline Handler *handle_by(int fd, bool (*act)(int, const struct message *))
{
    Handler *self = malloc(sizeof *self);

    CHECK(self != NULL);
    *self = (Handler){.fd = fd, .act = act};
    self->thread = start(handle, self);
    return self;
}

static inline char *page_of(const struct message *message)
{
    return (char *)(message->words[1] & ~(PAGE - 1));
}

// What pagemap says of a page: `p`resent, `s`wapped, write-`w`protected.
static inline void say_page(char *where)
{
    uint64_t word = 0;
    int fd = open("/proc/self/pagemap", O_RDONLY);

    CHECK(pread(fd, &word, 8, (uintptr_t)where / PAGE * 8) == 8);
    close(fd);
    printf("page %c%c%c\n", word >> 63 & 1 ? 'p' : '-', word >> 62 & 1 ? 's' : '-',
           word >> 57 & 1 ? 'w' : '-');
}

#endif
