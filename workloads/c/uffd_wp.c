// SPDX-License-Identifier: MIT OR Apache-2.0
//
// uffd_wp: writes per second to pages that a handler in user mode has write-protected.
//
// Each task writes to the pages of a registered region one after the other. Each
// write waits for the task's second thread, which reads the message of the fault from
// a userfaultfd and ends the protection of the page (UFFDIO_WRITEPROTECT), which
// wakes the first one. When all pages are written they are protected again, by one
// call.
//
// Each page has a word that counts the rounds, so that a write that is lost, or not
// noticed, is.

#define _GNU_SOURCE
#include "userfault.h"

static size_t bytes = 2u << 20; // each task's region

static void option(int letter, const char *value)
{
    bytes = round_up(number_option(letter, value, true, 1, (size_t)1 << 40), page_size());
}

static void set_protection(Faulting *self, uint64_t start, uint64_t length, bool protects)
{
    struct uffd_writeprotect request = {.range = {start, length}, .mode = protects};

    if (ioctl(self->fd, UFFD_WRITEPROTECT, &request) != 0)
        die(common.program, "cannot change protection: %s", strerror(errno));
}

static void resolve(Faulting *self, const struct uffd_message *message)
{
    size_t page = page_size();

    if (!(message->flags & UFFD_FLAG_WP))
        die(common.program, "a fault of another kind: %#" PRIx64, message->flags);
    ++*self->source;
    set_protection(self, message->address & ~(uint64_t)(page - 1), page, false);
}

static void *prepare(size_t task)
{
    Faulting *self = userfault_begin(bytes, UFFD_MODE_WP, resolve);

    (void)task;
    for (size_t i = 0; i < bytes; i += page_size())
        *(volatile uint64_t *)(self->region + i) = 0;
    return self;
}

static void repeat(void *prepared, uint64_t times)
{
    Faulting *self = prepared;
    size_t page = page_size();

    for (; times > 0; times--, self->next += page) {
        volatile uint64_t *at;
        uint64_t resolved;

        if (self->next == self->bytes) {
            set_protection(self, (uintptr_t)self->region, self->bytes, true);
            self->next = 0;
        }
        at = (volatile uint64_t *)(self->region + self->next);
        resolved = *(volatile uint64_t *)self->source;
        *at += 1;
        if (*(volatile uint64_t *)self->source != resolved + 1)
            die(common.program, "a write was not noticed");
        if (*at != *(volatile uint64_t *)self->region)
            die(common.program, "a write was lost");
    }
}

int main(int argc, char **argv)
{
    static const Testcase testcase = {
        .title = "Writes to pages protected by a userfaultfd",
        .letters = "b:",
        .usage = "\t-b bytes\tSize of each task's region; K, M, G allowed (2M)\n",
        .option = option,
        .prepare = prepare,
        .repeat = repeat,
    };

    return measure(&testcase, argc, argv);
}
