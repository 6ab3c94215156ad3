//! All kernel entry and exit paths, in assembly.
//!
//! Invariants:
//! - Interrupts are off from the first instruction in here until the return to user mode. Kernel code takes
//!   them only where it says so (`take_interrupts`).
//! - While user mode runs, the kernel's stack pointer is the end of the thread's stack. So user frames begin
//!   there, and a thread's saved registers are found there.
//! - Accesses to user memory are forbidden on entry (PAN).
//!
//! On each crossing of the user boundary the CPU publishes whether it uses user memory (`from_user`,
//! `to_user`). The interrupt of a shootdown does not: it completes before anything else happens.
//!
//! The page-fault and system-call paths save what a call may clobber and return directly unless their handler
//! says otherwise. All other paths save all registers and leave through `leave_full`.

use core::arch::global_asm;

use super::percpu::{CURRENT, FLUSH_DONE, FLUSH_REQUESTED, USES_USER};
use super::trap;

macro_rules! save_fast {
    () => {
        "sub sp, sp, #224\n\
         stp x0, x1, [sp]\nstp x2, x3, [sp, #16]\nstp x4, x5, [sp, #32]\nstp x6, x7, [sp, #48]\n\
         stp x8, x9, [sp, #64]\nstp x10, x11, [sp, #80]\nstp x12, x13, [sp, #96]\n\
         stp x14, x15, [sp, #112]\nstp x16, x17, [sp, #128]\nstp x18, x30, [sp, #144]\n\
         mrs x0, elr_el1\nmrs x1, spsr_el1\nstp x0, x1, [sp, #160]\n\
         mrs x0, sp_el0\nmrs x1, esr_el1\nstp x0, x1, [sp, #176]\n"
    };
}
macro_rules! restore_fast {
    () => {
        "ldp x0, x1, [sp, #160]\nmsr elr_el1, x0\nmsr spsr_el1, x1\n\
         ldr x0, [sp, #176]\nmsr sp_el0, x0\n\
         ldp x2, x3, [sp, #16]\nldp x4, x5, [sp, #32]\nldp x6, x7, [sp, #48]\n\
         ldp x8, x9, [sp, #64]\nldp x10, x11, [sp, #80]\nldp x12, x13, [sp, #96]\n\
         ldp x14, x15, [sp, #112]\nldp x16, x17, [sp, #128]\nldp x18, x30, [sp, #144]\n\
         ldp x0, x1, [sp]\nadd sp, sp, #224\n"
    };
}
macro_rules! save_rest {
    () => {
        "sub sp, sp, #96\n\
         stp x19, x20, [sp]\nstp x21, x22, [sp, #16]\nstp x23, x24, [sp, #32]\n\
         stp x25, x26, [sp, #48]\nstp x27, x28, [sp, #64]\nstp x29, xzr, [sp, #80]\n"
    };
}
macro_rules! restore_rest {
    () => {
        "ldp x19, x20, [sp]\nldp x21, x22, [sp, #16]\nldp x23, x24, [sp, #32]\n\
         ldp x25, x26, [sp, #48]\nldp x27, x28, [sp, #64]\nldr x29, [sp, #80]\nadd sp, sp, #96\n"
    };
}

/// From user mode: the CPU does not use user memory for now, so flushes can be deferred (`shootdown`). A CPU
/// that sees this may give the program's page to another program immediately, so the program's accesses must be
/// complete before: a release.
macro_rules! from_user {
    () => {
        "mrs x3, tpidr_el1\nadd x4, x3, {uses_user}\nstlr wzr, [x4]\n"
    };
}
/// To user mode, while all registers are still saved: the CPU uses user memory from here on. Requests from
/// before the exchange became visible are flushed now; later ones interrupt. The load is an acquire, because
/// only such a load is ordered after the store half of the exchange.
macro_rules! to_user {
    () => {
        "88: mrs x3, tpidr_el1\nadd x4, x3, {uses_user}\nmov w0, #1\nswpal w0, w0, [x4]\n\
         add x4, x3, {flush_requested}\nldar x0, [x4]\nldr x1, [x3, {flush_done}]\n\
         cmp x0, x1\nb.eq 89f\nbl {poll_before_user}\nb 88b\n89:\n"
    };
}

global_asm!(
    ".text",
    ".balign 2048",
    ".global vectors",
    "vectors:",
    // With the user's stack pointer in kernel mode: never.
    ".rept 4",
    ".balign 128",
    "b kernel_bad",
    ".endr",
    // In kernel mode.
    ".balign 128",
    "b kernel_sync",
    ".balign 128",
    "b kernel_interrupt",
    ".balign 128",
    "b kernel_bad",
    ".balign 128",
    "b kernel_bad",
    // In user mode.
    ".balign 128",
    "b user_sync",
    ".balign 128",
    "b user_interrupt",
    ".balign 128",
    "b kernel_bad",
    ".balign 128",
    "b kernel_bad",
    // In 32-bit user mode: never.
    ".rept 4",
    ".balign 128",
    "b kernel_bad",
    ".endr",
    // Synchronous exceptions of user mode.
    ".balign 64",
    "user_sync:",
    save_fast!(),
    from_user!(),
    "lsr x4, x1, #26",
    "cmp x4, #0x15",
    "b.eq 5f",
    // Data aborts are class 0x24, instruction aborts 0x20.
    "orr x5, x4, #4",
    "cmp x5, #0x24",
    "b.ne user_other",
    "mov x4, {none}",
    "str x4, [sp, #192]",
    "mrs x0, far_el1",
    "bl {user_page_fault}",
    "cbnz w0, 1f",
    // A fault may have slept or napped, and have missed the interrupt that announced work.
    "mrs x3, tpidr_el1",
    "ldr x3, [x3, {current}]",
    "ldr w3, [x3]",
    "cbnz w3, 4f",
    "3:",
    to_user!(),
    restore_fast!(),
    "eret",
    "1:",
    "mov w1, w0",
    save_rest!(),
    "mov x0, sp",
    "bl {user_page_fault_slow}",
    "b leave_full",
    "4:",
    save_rest!(),
    "mov x0, sp",
    "bl {leave}",
    "b leave_full",
    // System calls.
    "5:",
    "mov x4, {syscall_mark}",
    "ldr x0, [sp]",
    "stp x4, x8, [sp, #192]",
    "str x0, [sp, #208]",
    "mov x0, sp",
    "bl {syscall}",
    "str x0, [sp]",
    "cbz x1, 3b",
    save_rest!(),
    "mov x0, sp",
    "bl {syscall_slow}",
    // Returns to user mode with all registers from the frame.
    ".global leave_full",
    "leave_full:",
    to_user!(),
    restore_rest!(),
    restore_fast!(),
    "eret",
    // A new thread's first instructions: the switch returned here.
    ".global thread_begin",
    "thread_begin:",
    "bl {thread_begin_rust}",
    "b leave_full",
    // All other exceptions of user mode.
    "user_other:",
    "mov x4, {none}",
    "str x4, [sp, #192]",
    save_rest!(),
    "mov x0, sp",
    "bl {exception_from_user}",
    "b leave_full",
    // Interrupts of user mode. A shootdown is answered without a check of the thread's work.
    "user_interrupt:",
    save_fast!(),
    "bl {acknowledge}",
    "cbz w0, 6f",
    from_user!(),
    "str x0, [sp, #192]",
    save_rest!(),
    "mov x0, sp",
    "bl {interrupt_from_user}",
    "b leave_full",
    "6:",
    restore_fast!(),
    "eret",
    // In kernel mode: an access to user memory, or a bug.
    "kernel_sync:",
    // Whether the stack pointer is on the thread's stack or below it, by its place in the slot (`memory::stacks`).
    // No register is free yet: this exchanges x0 and sp by sums.
    "add sp, sp, x0",
    "sub x0, sp, x0",
    "tbnz x0, #15, 8f",
    "tbz x0, #14, 9f",
    "tbz x0, #13, 9f",
    "8:",
    "sub x0, sp, x0",
    "sub sp, sp, x0",
    save_fast!(),
    "mrs x0, far_el1",
    "mov x2, sp",
    "bl {kernel_sync}",
    "cbnz w0, 7f",
    restore_fast!(),
    "eret",
    "7:",
    save_rest!(),
    "mov x0, sp",
    "bl {trap_from_kernel}",
    "brk #1",
    "kernel_bad:",
    save_fast!(),
    "b 7b",
    // The stack has overflown into its guard. The boot stack is not needed any more.
    "9:",
    "sub x0, sp, x0",
    "msr tpidrro_el0, x0",
    "ldr x0, =boot_stack_end",
    "mov sp, x0",
    "mrs x0, tpidrro_el0",
    "b kernel_bad",
    ".ltorg",
    // Interrupts where the kernel lets them in.
    "kernel_interrupt:",
    save_fast!(),
    "bl {interrupt_from_kernel}",
    restore_fast!(),
    "eret",
    user_page_fault = sym trap::user_page_fault,
    user_page_fault_slow = sym trap::user_page_fault_slow,
    kernel_sync = sym trap::kernel_sync,
    exception_from_user = sym trap::exception_from_user,
    interrupt_from_user = sym trap::interrupt_from_user,
    interrupt_from_kernel = sym trap::interrupt_from_kernel,
    trap_from_kernel = sym trap::trap_from_kernel,
    acknowledge = sym trap::acknowledge,
    syscall = sym crate::syscall::syscall,
    syscall_slow = sym crate::syscall::syscall_slow,
    thread_begin_rust = sym crate::sched::thread_begin,
    leave = sym crate::sched::leave,
    poll_before_user = sym super::shootdown::poll_before_user,
    uses_user = const USES_USER,
    flush_requested = const FLUSH_REQUESTED,
    flush_done = const FLUSH_DONE,
    current = const CURRENT,
    none = const super::frame::VECTOR_NONE,
    syscall_mark = const super::frame::VECTOR_SYSCALL,
);

unsafe extern "C" {
    pub fn thread_begin();
}
