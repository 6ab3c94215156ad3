//! A thread's registers as a tracer sees them: Linux's `struct user_regs_struct`.
//!
//! The thread is in the kernel, and all its user registers are saved. A tracer may write any value: only
//! [`resume`] makes the registers such that the return to user mode cannot fault. Until then the tracer reads
//! back what it wrote.

use super::context::{self, UserBases};
use linux_raw_sys::general as linux;

use super::frame::{TrapFrame, VECTOR_NONE, VECTOR_SYSCALL};
use super::gdt;
use super::signal_frame::{USER_FLAGS, make_loadable};
use crate::errno::{EIO, Errno};
use crate::memory::USER_END;
use crate::sched::thread::Thread;

/// In the order of the structure.
pub type Registers = [u64; 27];

/// The flag that traps after one instruction.
const STEP: u64 = 0x100;

/// Reads the registers.
pub fn get(thread: &Thread, frame: &TrapFrame) -> Registers {
    let f = &frame.fast;
    let bases = thread.bases.get();
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
        bases.fs,
        bases.gs,
        0,
        0,
        0,
        0,
    ]
}

/// Sets the register with this number. Segments keep their values.
///
/// # Errors
/// `EIO`: the value is invalid, or there is no such register.
pub fn set(thread: &Thread, frame: &mut TrapFrame, number: usize, value: u64) -> Result<(), Errno> {
    let bases = thread.bases.get();
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
            // Negative: there is no call to make, or to restart.
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
            thread.bases.set(bases.with_thread_pointer(value));
            return Ok(());
        }
        22 => {
            thread.bases.set(UserBases { gs: value, ..bases });
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

/// Sets whether the thread stops after its next instruction.
pub fn set_step(frame: &mut TrapFrame, on: bool) {
    match on {
        true => frame.fast.rflags |= STEP,
        false => frame.fast.rflags &= !STEP,
    }
}

/// Makes this CPU step in user mode if the thread that it is about to run does: the flags in its frame do that.
#[inline]
pub fn load_step(_frame: &TrapFrame) {}

/// The code and the address of the signal after a step over a system call.
pub fn step_over_call(frame: &TrapFrame) -> (i32, u64) {
    (linux::TRAP_BRKPT as i32, frame.instruction_pointer())
}

/// Prepares the current thread to continue with registers that its tracer may have changed.
pub fn resume(thread: &Thread, frame: &mut TrapFrame) {
    context::set_user_bases(thread.bases.get());
    // An invalid address faults in user mode, like any jump.
    let _ = make_loadable(frame);
}
