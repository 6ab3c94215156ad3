// SPDX-License-Identifier: MIT OR Apache-2.0
//
// exec1: programs executed per second.
//
// An operation is one fork, the child's execve of this same program, which ends
// immediately, and the parent's wait. With -b the parent has this much memory, all of
// it written to; with -v the child is made by vfork and copies none of it.

#define _GNU_SOURCE
#include "process.h"
#include "vfork.h"

#include <sys/auxv.h>

// As the first argument: end immediately.
#define CHILD "--end-at-once"

static bool by_vfork;
static const char *path; // of this program, as it was executed

static void option(int letter, const char *value)
{
    if (letter == 'v')
        by_vfork = true;
    else
        parent_bytes = number_option(letter, value, true, 0, (size_t)1 << 46);
}

static void begin(void)
{
    path = (const char *)getauxval(AT_EXECFN);
    if (path == NULL)
        path = "/proc/self/exe";
    make_large();
}

static void repeat(void *prepared, uint64_t times)
{
    char *const arguments[] = {(char *)common.program, CHILD, NULL};
    char *const environment[] = {NULL};

    (void)prepared;
    while (times-- > 0) {
        pid_t child = by_vfork ? vfork() : fork();

        if (child == 0) {
            execve(path, arguments, environment);
            _exit(127);
        }
        wait_for_child(child);
    }
}

int main(int argc, char **argv)
{
    static const Testcase testcase = {
        .title = "fork, execve, exit and wait",
        .letters = "b:v",
        .usage = "\t-b bytes\tMemory of the parent, all written to; K, M, G allowed (0)\n"
                 "\t-v\t\tvfork instead of fork\n",
        .option = option,
        .begin = begin,
        .repeat = repeat,
    };

    if (argc == 2 && strcmp(argv[1], CHILD) == 0)
        return 0;
    return measure(&testcase, argc, argv);
}
