// SPDX-License-Identifier: MIT OR Apache-2.0
//
// page_fault3: pages of a shared file mapping written per second.
//
// Like the test case of that name in will-it-scale: the first write
// to each page of a shared mapping of a file, which is in memory.

#define _GNU_SOURCE
#include "file_fault.h"

static void repeat(void *prepared, uint64_t times)
{
    repeat_fault(prepared, times, MAP_SHARED);
}

int main(int argc, char **argv)
{
    static const Testcase testcase = {
        .title = "Separate file shared mapping page fault",
        .letters = "b:",
        .usage = FILE_FAULT_USAGE,
        .option = option,
        .prepare = prepare,
        .repeat = repeat,
    };

    return measure(&testcase, argc, argv);
}
