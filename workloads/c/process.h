// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Shared by fork1 and exec1: a parent of selectable size, and waiting
// for a child.

#ifndef WORKLOADS_PROCESS_H
#define WORKLOADS_PROCESS_H

#include "operation.h"

#include <sys/mman.h>

static size_t parent_bytes;  // -b
static char *parent_memory; // NULL without

// Allocates the parent's memory and writes to every page, so that a child inherits it.
static void make_large(void)
{
    if (parent_bytes == 0)
        return;
    parent_bytes = round_up(parent_bytes, page_size());
    parent_memory = mmap(NULL, parent_bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (parent_memory == MAP_FAILED)
        die(common.program, "cannot map %zu bytes: %s", parent_bytes, strerror(errno));
    for (size_t i = 0; i < parent_bytes; i += page_size())
        ((volatile char *)parent_memory)[i] = 1;
}

static void wait_for_child(pid_t child)
{
    int status;

    if (child < 0)
        die(common.program, "cannot start a process: %s", strerror(errno));
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            die(common.program, "cannot wait for a process: %s", strerror(errno));
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        die(common.program, "a child failed (status %#x)", (unsigned)status);
}

#endif
