// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Shared by uffd_missing and uffd_wp: memory that is registered with a userfaultfd,
// and a thread that reads its faults and resolves them one by one. Every task has
// its own.

#ifndef WORKLOADS_USERFAULT_H
#define WORKLOADS_USERFAULT_H

#include "operation.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

// As <linux/userfaultfd.h>, which not every C library comes with.
struct uffd_range { uint64_t start, len; };
struct uffd_api { uint64_t api, features, ioctls; };
struct uffd_register { struct uffd_range range; uint64_t mode, ioctls; };
struct uffd_copy { uint64_t dst, src, len, mode; int64_t copy; };
struct uffd_writeprotect { struct uffd_range range; uint64_t mode; };
struct uffd_message { uint8_t event, reserved[7]; uint64_t flags, address, more; };

#define UFFD_API_NUMBER 0xaaull
#define UFFD_FEATURE_WP 1ull
#define UFFD_IOCTL(direction, number, type) _IOC(direction, 0xaa, number, sizeof(type))
#define UFFD_SET_API UFFD_IOCTL(_IOC_READ | _IOC_WRITE, 0x3f, struct uffd_api)
#define UFFD_REGISTER UFFD_IOCTL(_IOC_READ | _IOC_WRITE, 0, struct uffd_register)
#define UFFD_COPY UFFD_IOCTL(_IOC_READ | _IOC_WRITE, 3, struct uffd_copy)
#define UFFD_WRITEPROTECT UFFD_IOCTL(_IOC_READ | _IOC_WRITE, 6, struct uffd_writeprotect)
#define UFFD_MODE_MISSING 1ull
#define UFFD_MODE_WP 2ull
#define UFFD_EVENT_FAULT 0x12
#define UFFD_FLAG_WP 2ull

// A task's memory, in cache lines that no other task writes.
typedef struct Faulting {
    _Alignas(LINE_PAIR) int fd;
    char *region;
    size_t bytes;
    size_t next;
    // Resolves the fault at a page.
    void (*resolve)(struct Faulting *self, const struct uffd_message *message);
    // A page that the handler copies.
    uint64_t *source;
} Faulting;

static void *userfault_handler(void *faulting)
{
    Faulting *self = faulting;
    struct uffd_message message;

    for (;;) {
        ssize_t got = read(self->fd, &message, sizeof message);

        if (got < 0 && errno == EINTR)
            continue;
        if (got != sizeof message || message.event != UFFD_EVENT_FAULT)
            die(common.program, "a message of another kind: %zd bytes, event %#x", got, message.event);
        self->resolve(self, &message);
    }
}

// Registers fresh memory, and starts the thread that resolves its faults.
static Faulting *userfault_begin(size_t bytes, uint64_t mode,
                                 void (*resolve)(Faulting *, const struct uffd_message *))
{
    Faulting *self = aligned_alloc(LINE_PAIR, sizeof *self);
    struct uffd_api api = {.api = UFFD_API_NUMBER, .features = mode == UFFD_MODE_WP ? UFFD_FEATURE_WP : 0};
    struct uffd_register request = {.mode = mode};
    pthread_t thread;
    int err;

    if (self == NULL)
        die(common.program, "no memory");
    self->fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
    if (self->fd < 0)
        die(common.program, "this system has no userfaultfd: %s", strerror(errno));
    if (ioctl(self->fd, UFFD_SET_API, &api) != 0)
        die(common.program, "cannot agree on features: %s", strerror(errno));
    self->region = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    self->source = mmap(NULL, page_size(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (self->region == MAP_FAILED || self->source == MAP_FAILED)
        die(common.program, "cannot map %zu bytes: %s", bytes, strerror(errno));
    self->bytes = bytes;
    self->next = bytes;
    self->resolve = resolve;
    request.range = (struct uffd_range){(uintptr_t)self->region, bytes};
    if (ioctl(self->fd, UFFD_REGISTER, &request) != 0)
        die(common.program, "cannot register memory: %s", strerror(errno));
    err = pthread_create(&thread, NULL, userfault_handler, self);
    if (err != 0)
        die(common.program, "cannot start a thread: %s", strerror(err));
    pthread_detach(thread);
    return self;
}

#endif
