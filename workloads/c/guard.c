// SPDX-License-Identifier: MIT OR Apache-2.0
//
// guard: tests memory protection against Linux's documentation.
//
// Guard pages, changes of protection, unmapping, stack growth, the signal's
// contents (si_code, si_addr) and what the handler may do, bad pointers passed to
// the kernel, and races of all this with accesses by another thread. Each
// check prints a line; the program exits with 1 if any failed.
//
// This file is the list of checks; they are in guard/, one file for each group.

#define _GNU_SOURCE
#include "guard/faults.h"
#include "guard/handlers.h"
#include "guard/kernel_access.h"
#include "guard/mappings.h"
#include "guard/races.h"
#include "guard/stacks.h"

#include <getopt.h>

enum { HELP = 256 };

static const Check checks[] = {
    {"a PROT_NONE page", check_prot_none},
    {"a guard page between two pages", check_guard_between},
    {"the null pointer", check_null},
    {"an unmapped page", check_unmapped},
    {"a read-only page", check_read_only},
    {"a page that is not executable", check_not_executable},
    {"a page made executable", check_executable},
    {"the program's text, constants and data", check_program_image},
    {"addresses of the kernel and none at all", check_kernel_half},
    {"an access across a page's end", check_straddling},

    {"PROT_NONE and back", check_none_and_back},
    {"protection of parts of a mapping", check_parts},
    {"mprotect over a hole", check_protect_hole},
    {"MAP_FIXED over a mapping", check_fixed_over},
    {"MADV_DONTNEED", check_dontneed},
    {"MAP_POPULATE", check_populate},
    {"MADV_POPULATE_READ and _WRITE", check_madvise_populate},
    {"brk up and down", check_brk},
    {"errors of bad arguments", check_errors},
    {"/proc/self/maps", check_maps},

    {"a handler that repairs and returns", check_repair},
    {"registers across a handler", check_registers},
    {"the context a handler sees", check_context},
    {"the signal mask in and after a handler", check_mask},
    {"a thousand jumps out of a handler", check_many_jumps},
    {"a fault in the handler", check_nested},
    {"a handler on the alternate stack", check_alternate_stack},
    {"a fault in a second thread", check_faulting_thread},

    {"stack touched below the stack pointer", check_below_stack_pointer},
    {"stack grown by a kernel access", check_kernel_grows_stack},
    {"stack grown by recursion", check_deep_recursion},
    {"the stack's limit", check_stack_limit},
    {"a thread's stack overflow", check_thread_stack_overflow},
    {"MAP_GROWSDOWN and its guard gap", check_grows_down},

    {"EFAULT where the kernel writes", check_kernel_writes},
    {"EFAULT where the kernel reads", check_kernel_reads},
    {"EFAULT of write(2)", check_write_from_bad},
    {"EFAULT of read(2)", check_read_into_bad},
    {"first touch by the kernel", check_kernel_first_touch},

    {"race: writes against mprotect", check_race_protect},
    {"race: writes against mprotect, handler flips back", check_race_flip_back},
    {"race: reads against munmap", check_race_unmap},
    {"race: writes against MADV_DONTNEED", check_race_dontneed},
    {"race: reads against MAP_FIXED over", check_race_fixed_over},
    {"race: faults against changes beside them", check_race_neighbours},
};

#define CHECKS (sizeof checks / sizeof checks[0])

static void usage(FILE *to, const char *program)
{
    fprintf(to,
            "Usage: %s [options] [word...]\n"
            "Runs the checks with a name that contains one of the words, or all.\n"
            "-l\t\t List the checks, run none\n"
            "-r <num>\t Rounds of each race (200)\n"
            "--help\t\t Print this\n"
            "Exits with 1 if a check failed.\n"
            "Example: %s -r 1000 race\n",
            program, program);
}

static bool wanted(const Check *check, int words, char **word)
{
    for (int i = 0; i < words; i++)
        if (strstr(check->name, word[i]) != NULL)
            return true;
    return words == 0;
}

int main(int argc, char **argv)
{
    static const struct option long_options[] = {
        {"help", no_argument, NULL, HELP},
        {NULL, 0, NULL, 0},
    };
    unsigned passed = 0, failed = 0;
    bool list = false;
    uint64_t n;
    int c;

    while ((c = getopt_long(argc, argv, "lr:", long_options, NULL)) != -1) {
        switch (c) {
        case 'l': list = true; break;
        case 'r':
            if (!parse_number(optarg, false, 1, INT_MAX, &n))
                die(argv[0], "-r: not a number of rounds: %s", optarg);
            rounds = n;
            break;
        case HELP: usage(stdout, argv[0]); return 0;
        default: usage(stderr, argv[0]); return 1;
        }
    }
    page = page_size();
    catch_segv(0);
    for (size_t i = 0; i < CHECKS; i++) {
        if (!wanted(&checks[i], argc - optind, argv + optind))
            continue;
        if (list)
            printf("%s\n", checks[i].name);
        else if (run_check(&checks[i]))
            passed++;
        else
            failed++;
    }
    if (list)
        return 0;
    if (passed + failed == 0)
        die(argv[0], "no check has such a name; -l lists them");
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}
