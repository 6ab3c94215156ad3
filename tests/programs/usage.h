// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What a program sees of its own memory: fields of /proc/self/smaps, and its faults.

#ifndef USAGE_H
#define USAGE_H

#include "common.h"

#include <sys/resource.h>

// The value of a field in the record of the mapping at an address, in /proc/self/smaps.
static inline long field_of(const volatile void *at, const char *field)
{
    FILE *file = fopen("/proc/self/smaps", "r");
    char line[256];
    int is_its = 0;
    long value = -1;

    while (value < 0 && fgets(line, sizeof line, file) != NULL) {
        unsigned long start, end;

        if (sscanf(line, "%lx-%lx ", &start, &end) == 2)
            is_its = start <= (uintptr_t)at && (uintptr_t)at < end;
        else if (is_its && strncmp(line, field, strlen(field)) == 0)
            value = atol(line + strlen(field) + 1);
    }
    fclose(file);
    return value;
}

static inline long faults(void)
{
    struct rusage usage;

    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_minflt + usage.ru_majflt;
}

#endif
