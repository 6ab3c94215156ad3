// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Shared by page_fault2 and page_fault3: every task maps a file of its own,
// writes to each of its pages once, unmaps it, and starts again.

#ifndef WORKLOADS_FILE_FAULT_H
#define WORKLOADS_FILE_FAULT_H

#include "file.h"

static size_t bytes = 128u << 20; // of each task's file

// One task's position in its file, in cache lines that no other thread writes.
typedef struct {
    _Alignas(LINE_PAIR) int file;
    char *region; // NULL: none is mapped
    size_t next;
} Place;

static void option(int letter, const char *value)
{
    bytes = round_up(number_option(letter, value, true, 1, (size_t)1 << 40), page_size());
}

static void *prepare(size_t task)
{
    Place *place = aligned_alloc(LINE_PAIR, sizeof *place);

    (void)task;
    if (place == NULL)
        die(common.program, "no memory");
    *place = (Place){.file = make_file(bytes)};
    return place;
}

static void repeat_fault(Place *place, uint64_t times, int flags)
{
    size_t page = page_size();

    while (times > 0) {
        if (place->region == NULL)
            place->region = map_file(place->file, bytes, flags);
        for (; times > 0 && place->next < bytes; times--, place->next += page)
            ((volatile char *)place->region)[place->next] = 1;
        if (place->next >= bytes) {
            unmap_file(place->region, bytes);
            place->region = NULL;
            place->next = 0;
        }
    }
}

#define FILE_FAULT_USAGE "\t-b bytes\tSize of each task's file; K, M, G allowed (128M)\n"

#endif
