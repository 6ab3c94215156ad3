// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Shared by the programs with a transcript as output, which is compared with Linux's.

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
