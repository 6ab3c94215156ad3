//! Switching from one kernel stack to another.
//!
//! A context is a stack pointer: everything else is on that stack. The caller has saved the thread's state
//! that is not on the stack (FPU state, the thread pointer).

use core::arch::naked_asm;
use core::sync::atomic::Ordering;

use super::entry;
use super::percpu::PerCpu;
use super::sysreg::{read_sysreg, write_sysreg};

/// Words of a context: x19 to x30.
const WORDS: u64 = 12;

/// Saves this stack's pointer to `*save` and continues where `to` was saved.
///
/// # Safety
/// `to` was saved by this function or made by [`prepare`], and no other CPU uses that stack.
#[unsafe(naked)]
pub unsafe extern "C" fn switch(save: *mut u64, to: u64) {
    naked_asm!(
        "stp x19, x20, [sp, #-96]!",
        "stp x21, x22, [sp, #16]",
        "stp x23, x24, [sp, #32]",
        "stp x25, x26, [sp, #48]",
        "stp x27, x28, [sp, #64]",
        "stp x29, x30, [sp, #80]",
        "mov x9, sp",
        "str x9, [x0]",
        "mov sp, x1",
        "ldp x21, x22, [sp, #16]",
        "ldp x23, x24, [sp, #32]",
        "ldp x25, x26, [sp, #48]",
        "ldp x27, x28, [sp, #64]",
        "ldp x29, x30, [sp, #80]",
        "ldp x19, x20, [sp], #96",
        "ret",
    )
}

/// Makes a context that begins in `sched::thread_begin` with its user frame at `top`.
///
/// # Safety
/// `top` is the end of an unused kernel stack, below a trap frame.
pub unsafe fn prepare(top: u64) -> u64 {
    let sp = top - WORDS * 8;
    // SAFETY: The stack is ours and larger than this.
    unsafe {
        let words = sp as *mut u64;
        words.write_bytes(0, WORDS as usize);
        words
            .add(WORDS as usize - 1)
            .write(entry::thread_begin as *const () as u64);
    }
    sp
}

/// Switches to another stack and never returns.
///
/// # Safety
/// `top` is the end of an unused kernel stack, 16-byte aligned; nothing on this one is needed.
pub unsafe fn leave_for(top: u64, function: extern "C" fn() -> !) -> ! {
    // SAFETY: The caller's promise; a zero frame pointer ends a debugger's backtrace.
    unsafe {
        core::arch::asm!("mov sp, x0", "mov x29, xzr", "mov x30, xzr", "br x1",
            in("x0") top, in("x1") function, options(noreturn));
    }
}

/// The register that user mode reaches its thread's own data by.
#[derive(Clone, Copy, Default)]
pub struct UserBases {
    pub thread_pointer: u64,
}

impl UserBases {
    /// Whether a thread pointer can be loaded: any number can.
    pub fn accept(_thread_pointer: u64) -> bool {
        true
    }

    /// The same, with another thread pointer.
    pub fn with_thread_pointer(self, thread_pointer: u64) -> Self {
        Self { thread_pointer }
    }
}

/// The thread pointer of the current thread, which user mode may have written.
#[inline]
pub fn user_bases(_set: UserBases) -> UserBases {
    UserBases {
        thread_pointer: read_sysreg!("tpidr_el0"),
    }
}

/// Sets the thread pointer of user mode.
pub fn set_user_bases(bases: UserBases) {
    // SAFETY: The register is user mode's alone.
    unsafe { write_sysreg!("tpidr_el0", bases.thread_pointer) };
}

/// Sets the stack that traps and system calls from user mode begin on: the stack in use, from its end.
#[inline]
pub fn set_kernel_stack(cpu: &PerCpu, top: u64) {
    cpu.kernel_stack.store(top, Ordering::Relaxed);
}
