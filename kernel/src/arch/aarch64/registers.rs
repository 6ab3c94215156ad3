//! A thread's registers as a tracer sees them: Linux's `struct user_pt_regs`.
//!
//! The thread is in the kernel, and all its user registers are saved. A tracer may write any value: only
//! [`resume`] makes the registers such that the return to user mode cannot fail. Until then the tracer reads
//! back what it wrote.

use linux_raw_sys::general as linux;

use super::frame::TrapFrame;
use super::percpu;
use super::sysreg::{read_sysreg, write_sysreg};
use crate::errno::{EINVAL, EIO, Errno};
use crate::sched::thread::Thread;

/// In the order of the structure: x0 to x30, sp, pc, pstate.
pub type Registers = [u64; 34];

/// PSTATE as user mode may have it: the flags N, Z, C, V, and data-independent timing.
pub const USER_STATE: u64 = 0xf000_0000 | 1 << 24;
/// PSTATE.SS: the next instruction may still run.
const STEP: u64 = 1 << 21;
/// MDSCR_EL1.SS.
const STEPS: u64 = 1;

/// Reads the registers.
pub fn get(_thread: &Thread, frame: &TrapFrame) -> Registers {
    let mut all = [0; 34];
    all[..31].copy_from_slice(&frame.general());
    all[31] = frame.fast.sp;
    all[32] = frame.fast.pc;
    all[33] = frame.fast.pstate & !STEP;
    all
}

/// Sets the register with this number.
///
/// # Errors
/// `EIO`: there is no such register. `EINVAL`: it cannot have this value.
pub fn set(
    _thread: &Thread,
    frame: &mut TrapFrame,
    number: usize,
    value: u64,
) -> Result<(), Errno> {
    match number {
        0..31 => {
            let mut all = frame.general();
            all[number] = value;
            frame.set_general(&all);
        }
        31 => frame.fast.sp = value,
        32 => frame.fast.pc = value,
        // Another mode than that of 64-bit user code.
        33 if value & 0x1f != 0 => return Err(EINVAL),
        33 => frame.fast.pstate = frame.fast.pstate & !USER_STATE | value & USER_STATE,
        _ => return Err(EIO),
    }
    Ok(())
}

/// Sets whether the thread stops after its next instruction. Its CPU learns that when it takes the thread, or here if
/// the thread runs.
pub fn set_step(frame: &mut TrapFrame, on: bool) {
    match on {
        true => frame.fast.pstate |= STEP,
        false => frame.fast.pstate &= !STEP,
    }
    let own = percpu::current().map(Thread::frame);
    if own == Some(core::ptr::from_mut(frame)) {
        load_step(frame);
    }
}

/// Makes this CPU step in user mode if the thread that it is about to run does.
#[inline]
pub fn load_step(frame: &TrapFrame) {
    let control = read_sysreg!("mdscr_el1");
    let wanted = match frame.fast.pstate & STEP {
        0 => control & !STEPS,
        _ => control | STEPS,
    };
    if control != wanted {
        // SAFETY: Steps concern user mode only, because the kernel masks debug exceptions.
        unsafe { write_sysreg!("mdscr_el1", wanted) };
    }
}

/// The code and the address of the signal after a step over a system call.
pub fn step_over_call(frame: &TrapFrame) -> (i32, u64) {
    let _ = frame;
    (linux::SI_USER as i32, 0)
}

/// Prepares the current thread to continue with registers that its tracer may have changed.
pub fn resume(_thread: &Thread, frame: &mut TrapFrame) {
    load_step(frame);
    make_loadable(frame);
}

/// Ensures that the return to user mode goes to 64-bit user code, with interrupts on.
pub fn make_loadable(frame: &mut TrapFrame) {
    frame.fast.pstate &= USER_STATE | STEP;
}
