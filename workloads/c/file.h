// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Shared by page_fault2, page_fault3 and mmap2: each task's own file, without a
// name, with all pages in memory before the measurement.

#ifndef WORKLOADS_FILE_H
#define WORKLOADS_FILE_H

#include "operation.h"

#include <sys/mman.h>

// Maps a file of `bytes` for reading and writing.
static char *map_file(int file, size_t bytes, int flags)
{
    char *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, file, 0);

    if (p == MAP_FAILED)
        die(common.program, "cannot map %zu bytes: %s", bytes, strerror(errno));
    return p;
}

static void unmap_file(char *at, size_t bytes)
{
    if (munmap(at, bytes) != 0)
        die(common.program, "munmap: %s", strerror(errno));
}

static int make_file(size_t bytes)
{
    char name[] = "/tmp/workload.XXXXXX";
    int file = mkstemp(name);
    char *pages;

    if (file < 0 || unlink(name) != 0 || ftruncate(file, (off_t)bytes) != 0)
        die(common.program, "cannot make a file of %zu bytes: %s", bytes, strerror(errno));
    pages = map_file(file, bytes, MAP_SHARED);
    for (size_t i = 0; i < bytes; i += page_size())
        ((volatile char *)pages)[i] = 1;
    unmap_file(pages, bytes);
    return file;
}

#endif
