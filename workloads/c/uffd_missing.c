// SPDX-License-Identifier: MIT OR Apache-2.0
//
// uffd_missing: pages per second that a handler in user mode brings.
//
// Each task touches the pages of a registered region one after the other. Each
// access waits for the task's second thread, which reads the message of the fault
// from a userfaultfd and copies a page into place (UFFDIO_COPY), which wakes the
// first one. When all pages are there they are given back (MADV_DONTNEED).
//
// The handler writes a word into each page that only this page has, and the access
// checks it.

#define _GNU_SOURCE
#include "userfault.h"

static size_t bytes = 2u << 20; // each task's region

static void option(int letter, const char *value)
{
    bytes = round_up(number_option(letter, value, true, 1, (size_t)1 << 40), page_size());
}

static void resolve(Faulting *self, const struct uffd_message *message)
{
    size_t page = page_size();
    struct uffd_copy copy = {
        .dst = message->address & ~(uint64_t)(page - 1),
        .src = (uintptr_t)self->source,
        .len = page,
    };

    *self->source = copy.dst;
    if (ioctl(self->fd, UFFD_COPY, &copy) != 0)
        die(common.program, "cannot place a page: %s", strerror(errno));
}

static void *prepare(size_t task)
{
    (void)task;
    return userfault_begin(bytes, UFFD_MODE_MISSING, resolve);
}

static void repeat(void *prepared, uint64_t times)
{
    Faulting *self = prepared;
    size_t page = page_size();

    for (; times > 0; times--, self->next += page) {
        volatile uint64_t *at;

        if (self->next == self->bytes) {
            if (madvise(self->region, self->bytes, MADV_DONTNEED) != 0)
                die(common.program, "madvise: %s", strerror(errno));
            self->next = 0;
        }
        at = (volatile uint64_t *)(self->region + self->next);
        if (*at != (uintptr_t)at)
            die(common.program, "a page has the content of another one");
    }
}

int main(int argc, char **argv)
{
    static const Testcase testcase = {
        .title = "Missing pages brought by a userfaultfd",
        .letters = "b:",
        .usage = "\t-b bytes\tSize of each task's region; K, M, G allowed (2M)\n",
        .option = option,
        .prepare = prepare,
        .repeat = repeat,
    };

    return measure(&testcase, argc, argv);
}
