//! A thread's registers as a tracer sees them: Linux's `struct user_regs_struct`.
//!
//! The thread is in the kernel, and all its user registers are saved. What a tracer puts there is
//! made such that the return to user mode cannot fault only when the thread goes on ([`resume`]), so that
//! until then the tracer finds what it has put there.

use super::frame::{TrapFrame, VECTOR_NONE, VECTOR_SYSCALL};
use super::signal_frame::{USER_FLAGS, make_loadable};
use super::{context, gdt};
use crate::errno::{EIO, Errno};
use crate::memory::USER_END;
use crate::sched::thread::Thread;

/// In the order of the structure.
pub type Registers = [u64; 27];

/// The flag that stops after an instruction.
const STEP: u64 = 0x100;

/// What they are.
pub fn get(thread: &Thread, frame: &TrapFrame) -> Registers {
    let f = &frame.fast;
    let call = match f.vector {
        VECTOR_SYSCALL => f.error,
        _ => u64::MAX,
    };
    [
        frame.r15,
        frame.r14,
        frame.r13,
        frame.r12,
        frame.rbp,
        frame.rbx,
        f.r11,
        f.r10,
        f.r9,
        f.r8,
        f.rax,
        f.rcx,
        f.rdx,
        f.rsi,
        f.rdi,
        call,
        f.rip,
        u64::from(gdt::USER_CODE),
        f.rflags,
        f.rsp,
        u64::from(gdt::USER_DATA),
        thread.fs_base.get(),
        thread.gs_base.get(),
        0,
        0,
        0,
        0,
    ]
}

/// Gives the one of a number another value. Segments stay what they are.
///
/// # Errors
/// `EIO`: it cannot have this value, or there is none of that number.
pub fn set(thread: &Thread, frame: &mut TrapFrame, number: usize, value: u64) -> Result<(), Errno> {
    let f = &mut frame.fast;
    let place = match number {
        0 => &mut frame.r15,
        1 => &mut frame.r14,
        2 => &mut frame.r13,
        3 => &mut frame.r12,
        4 => &mut frame.rbp,
        5 => &mut frame.rbx,
        6 => &mut f.r11,
        7 => &mut f.r10,
        8 => &mut f.r9,
        9 => &mut f.r8,
        10 => &mut f.rax,
        11 => &mut f.rcx,
        12 => &mut f.rdx,
        13 => &mut f.rsi,
        14 => &mut f.rdi,
        15 => {
            // Less than 0: there is no call to make, or to begin anew.
            f.vector = match (value as i64) < 0 {
                true => VECTOR_NONE,
                false => VECTOR_SYSCALL,
            };
            &mut f.error
        }
        16 => &mut f.rip,
        18 => {
            f.rflags = f.rflags & !USER_FLAGS | value & USER_FLAGS;
            return Ok(());
        }
        19 => &mut f.rsp,
        17 | 20 => return check_selector(value, false),
        23..=26 => return check_selector(value, true),
        21 | 22 if value >= USER_END => return Err(EIO),
        21 => {
            thread.fs_base.set(value);
            return Ok(());
        }
        22 => {
            thread.gs_base.set(value);
            return Ok(());
        }
        _ => return Err(EIO),
    };
    *place = value;
    Ok(())
}

fn check_selector(value: u64, may_be_null: bool) -> Result<(), Errno> {
    match value as u16 {
        0 if may_be_null => Ok(()),
        selector if selector & 3 == 3 => Ok(()),
        _ => Err(EIO),
    }
}

/// Whether the thread stops after its next instruction.
pub fn set_step(frame: &mut TrapFrame, on: bool) {
    match on {
        true => frame.fast.rflags |= STEP,
        false => frame.fast.rflags &= !STEP,
    }
}

/// The current thread goes on with what its tracer may have changed.
pub fn resume(thread: &Thread, frame: &mut TrapFrame) {
    context::set_user_bases(thread.fs_base.get(), thread.gs_base.get());
    // A place that is none faults there, like any jump.
    let _ = make_loadable(frame);
}
