//! Switching from one kernel stack to another.
//!
//! A context is a stack pointer: everything else is on that stack. The caller has saved the thread's state
//! that is not on the stack (FPU state, FS base).

use core::arch::naked_asm;
use core::sync::atomic::Ordering;

use super::percpu::PerCpu;
use super::{entry, gdt, msr};
use crate::memory::USER_END;

/// Saves this stack's pointer to `*save` and continues where `to` was saved.
///
/// # Safety
/// `to` was saved by this function or made by [`prepare`], and no other CPU uses that stack.
#[unsafe(naked)]
pub unsafe extern "C" fn switch(save: *mut u64, to: u64) {
    naked_asm!(
        "push rbp",
        "push rbx",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "mov [rdi], rsp",
        "mov rsp, rsi",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbx",
        "pop rbp",
        "ret",
    )
}

/// Makes a context that begins in `sched::thread_begin` with its user frame at `top`.
///
/// # Safety
/// `top` is the end of an unused kernel stack, below a trap frame.
pub unsafe fn prepare(top: u64) -> u64 {
    let rsp = top - 7 * 8;
    // SAFETY: The stack is ours and larger than this.
    unsafe {
        let words = rsp as *mut u64;
        words.write_bytes(0, 7);
        words.add(6).write(entry::thread_begin as *const () as u64);
    }
    rsp
}

/// Switches to another stack and never returns.
///
/// # Safety
/// `top` is the end of an unused kernel stack, 16-byte aligned; nothing on this one is needed.
pub unsafe fn leave_for(top: u64, function: extern "C" fn() -> !) -> ! {
    // SAFETY: The caller's promise; a zero return address ends a debugger's backtrace.
    unsafe {
        core::arch::asm!("mov rsp, {}", "xor ebp, ebp", "push 0", "jmp {}",
            in(reg) top, in(reg) function, options(noreturn));
    }
}

/// The registers that user mode reaches its thread's own data by.
#[derive(Clone, Copy, Default)]
pub struct UserBases {
    pub fs: u64,
    pub gs: u64,
}

impl UserBases {
    /// Whether a thread pointer can be loaded.
    pub fn accept(fs: u64) -> bool {
        fs < USER_END
    }

    /// The same, with another thread pointer.
    pub fn with_thread_pointer(self, fs: u64) -> Self {
        Self { fs, ..self }
    }
}

/// The bases of the current thread, which are those that it set last: user mode cannot write them.
#[inline]
pub fn user_bases(set: UserBases) -> UserBases {
    set
}

/// Sets the bases of user mode.
pub fn set_user_bases(bases: UserBases) {
    msr::write(msr::FS_BASE, bases.fs);
    msr::write(msr::KERNEL_GS_BASE, bases.gs);
}

/// Sets the stack that traps and system calls from user mode begin on.
#[inline]
pub fn set_kernel_stack(cpu: &PerCpu, top: u64) {
    cpu.kernel_stack.store(top, Ordering::Relaxed);
    gdt::set_kernel_stack(cpu.number.load(Ordering::Relaxed), top);
}
