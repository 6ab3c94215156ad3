// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What the programs share whose output is a transcript, to be compared with that on Linux.

#ifndef TESTS_TRANSCRIPT_H
#define TESTS_TRANSCRIPT_H

#include "common.h"

// Prints a call with its result, or with its error's name.
#define SAY(call)                                                              \
    do {                                                                       \
        errno = 0;                                                             \
        long long result = (long long)(call);                                  \
        if (result < 0)                                                        \
            printf("%s: %s\n", #call, strerror(errno));                        \
        else                                                                   \
            printf("%s: %lld\n", #call, result);                               \
    } while (0)

#endif
