// SPDX-License-Identifier: MIT OR Apache-2.0
//
// IRETQ in user mode, to where execution would continue anyway: allowed by the hardware.
// With SMAP, QEMU 7.2 treats its stack accesses as the kernel's, which
// raises a page fault that no mapping can prevent: then it must end by
// SIGSEGV. With an argument: by a handler.

#include "common.h"

static void on_segv(int signal_number)
{
    (void)signal_number;
    _exit(3);
}

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1)
        signal(SIGSEGV, on_segv);
    __asm__ volatile("mov %%rsp, %%rax\n\t"
                     "mov %%ss, %%ecx\n\t"
                     "push %%rcx\n\t"
                     "push %%rax\n\t"
                     "pushfq\n\t"
                     "mov %%cs, %%ecx\n\t"
                     "push %%rcx\n\t"
                     "lea 1f(%%rip), %%rcx\n\t"
                     "push %%rcx\n\t"
                     "iretq\n"
                     "1:"
                     :
                     :
                     : "rax", "rcx", "memory", "cc");
    return 0;
}
