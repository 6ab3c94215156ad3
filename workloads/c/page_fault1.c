// SPDX-License-Identifier: MIT OR Apache-2.0
//
// page_fault1: first touches of anonymous memory per second.
//
// Like the test case of that name in will-it-scale: every task maps
// a private anonymous region, writes to each of its pages once, unmaps it, and
// starts again. Same -s and -t, same lines of output, so that scripts written
// for it work with this program.
//
// With -1 all threads fault in one mapping, each in its own part of it,
// and free the pages with MADV_DONTNEED, which keeps the mapping whole.
// A lock or a reference count in the mapping makes this case slow.
//
// The figure is the last line: pages touched per second by all tasks together.

#define _GNU_SOURCE
#include "operation.h"

#include <sys/mman.h>

static size_t bytes = 128u << 20; // each task's region, or its part of the one mapping
static bool one_mapping;
static char *shared; // with -1: the one mapping

// One task's position in its region, in cache lines that no other thread writes.
typedef struct {
    _Alignas(LINE_PAIR) char *region; // NULL: none is mapped
    size_t next;
} Place;

static void option(int letter, const char *value)
{
    if (letter == '1')
        one_mapping = true;
    else
        bytes = round_up(number_option(letter, value, true, 1, (size_t)1 << 46), page_size());
}

static char *map(size_t size)
{
    char *p = mmap(NULL, size, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (p == MAP_FAILED)
        die(common.program, "cannot map %zu bytes: %s", size, strerror(errno));
    return p;
}

static void begin(void)
{
    if (one_mapping && common.processes)
        die(common.program, "-1 is for threads: processes share no mapping");
    if (one_mapping)
        shared = map(common.tasks * bytes);
}

static void *prepare(size_t task)
{
    Place *place = aligned_alloc(LINE_PAIR, sizeof *place);

    if (place == NULL)
        die(common.program, "no memory");
    place->region = one_mapping ? shared + task * bytes : NULL;
    place->next = 0;
    return place;
}

static void give_back(Place *place)
{
    if (one_mapping) {
        if (madvise(place->region, bytes, MADV_DONTNEED) != 0)
            die(common.program, "madvise: %s", strerror(errno));
    } else {
        if (munmap(place->region, bytes) != 0)
            die(common.program, "munmap: %s", strerror(errno));
        place->region = NULL;
    }
    place->next = 0;
}

static void repeat(void *prepared, uint64_t times)
{
    Place *place = prepared;
    size_t page = page_size();

    while (times > 0) {
        if (place->region == NULL)
            place->region = map(bytes);
        for (; times > 0 && place->next < bytes; times--, place->next += page)
            ((volatile char *)place->region)[place->next] = 1;
        if (place->next >= bytes)
            give_back(place);
    }
}

int main(int argc, char **argv)
{
    static const Testcase testcase = {
        .title = "Anonymous memory page fault",
        .letters = "b:1",
        .usage = "\t-b bytes\tSize of each task's region; K, M, G allowed (128M)\n"
                 "\t-1\t\tAll threads in one mapping, each in its own part of it\n",
        .option = option,
        .begin = begin,
        .prepare = prepare,
        .repeat = repeat,
    };

    return measure(&testcase, argc, argv);
}
