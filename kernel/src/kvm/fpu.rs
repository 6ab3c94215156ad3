//! A guest's FPU and vector state: switching, and the calls that read and write it. While no thread is in the
//! run loop the state is in the page behind the run area.

use super::area::Area;
use super::state::State;
use crate::arch::fpu::{self, AREA_SIZE};
use crate::arch::uaccess;
use crate::errno::{Answer, EINVAL, Errno};
use crate::sched::thread::Thread;

/// Gives the registers to the guest. The current thread must give them back (`leave`).
pub fn enter(thread: &Thread, area: &Area) {
    // SAFETY: The thread runs, so its state is its own; the guest's is the holder's of the vCPU's turn.
    unsafe {
        fpu::save(&mut *thread.fpu.get());
        thread.guest_fpu.set(area.fpu());
        fpu::restore(&*area.fpu());
    }
}

/// Gives them back to the program.
pub fn leave(thread: &Thread, area: &Area) {
    // SAFETY: As above.
    unsafe {
        fpu::save(&mut *area.fpu());
        thread.guest_fpu.set(core::ptr::null_mut());
        fpu::restore(&*thread.fpu.get());
    }
}

/// Sets the state in which a guest begins.
pub fn reset(area: &Area) {
    // SAFETY: The caller made the area or has the vCPU's turn.
    unsafe { area.fpu().write(fpu::Area::initial()) };
}

/// `KVM_GET_XSAVE`.
///
/// # Errors
/// `EFAULT`.
pub fn get_xsave(area: &Area, at: u64) -> Answer {
    // SAFETY: The caller has the vCPU's turn.
    let state = unsafe { &*area.fpu() };
    uaccess::write_bytes(at, &state.0)?;
    let zeroes = [0u8; 4096 - AREA_SIZE];
    uaccess::write_bytes(at.wrapping_add(AREA_SIZE as u64), &zeroes)?;
    Ok(0)
}

/// `KVM_SET_XSAVE`.
///
/// # Errors
/// `EFAULT`; `EINVAL` for state that the CPU does not have.
pub fn set_xsave(area: &Area, at: u64) -> Answer {
    change(area, |state| {
        uaccess::read_bytes(at, &mut state.0)?;
        match fpu::check(state, true) {
            true => Ok(()),
            false => Err(EINVAL),
        }
    })
}

fn change(area: &Area, f: impl FnOnce(&mut fpu::Area) -> Result<(), Errno>) -> Answer {
    // SAFETY: The caller has the vCPU's turn.
    let state = unsafe { &mut *area.fpu() };
    let mut new = state.clone();
    f(&mut new)?;
    new.keep_kernel_keys();
    *state = new;
    Ok(0)
}

/// `KVM_GET_FPU`: registers, control words, and vectors of `struct kvm_fpu`.
///
/// # Errors
/// `EFAULT`.
pub fn get_legacy(area: &Area, at: u64) -> Answer {
    // SAFETY: The caller has the vCPU's turn.
    let from = unsafe { &(*area.fpu()).0 };
    let mut to = [0u8; 416];
    to[..128].copy_from_slice(&from[32..160]);
    to[128..132].copy_from_slice(&from[0..4]);
    to[132] = from[4];
    to[134..136].copy_from_slice(&from[6..8]);
    to[136..152].copy_from_slice(&from[8..24]);
    to[152..408].copy_from_slice(&from[160..416]);
    to[408..412].copy_from_slice(&from[24..28]);
    uaccess::write_bytes(at, &to)?;
    Ok(0)
}

/// `KVM_SET_FPU`.
///
/// # Errors
/// `EFAULT`; `EINVAL` for reserved control bits, which the CPU would refuse.
pub fn set_legacy(area: &Area, at: u64) -> Answer {
    let mut from = [0u8; 416];
    uaccess::read_bytes(at, &mut from)?;
    change(area, |state| {
        let to = &mut state.0;
        to[32..160].copy_from_slice(&from[..128]);
        to[0..4].copy_from_slice(&from[128..132]);
        to[4] = from[132];
        to[6..8].copy_from_slice(&from[134..136]);
        to[8..24].copy_from_slice(&from[136..152]);
        to[160..416].copy_from_slice(&from[152..408]);
        to[24..28].copy_from_slice(&from[408..412]);
        // x87 and SSE state is there.
        to[512] |= 0b11;
        match fpu::check(state, true) {
            true => Ok(()),
            false => Err(EINVAL),
        }
    })
}

/// `KVM_GET_XCRS`.
///
/// # Errors
/// `EFAULT`.
pub fn get_xcrs(state: &State, at: u64) -> Answer {
    let mut words = [0u64; 49];
    words[0] = 1;
    words[2] = state.xcr0;
    uaccess::write(at, &words)?;
    Ok(0)
}

/// `KVM_SET_XCRS`.
///
/// # Errors
/// `EFAULT`, `EINVAL`.
pub fn set_xcrs(state: &mut State, at: u64) -> Answer {
    let words: [u64; 49] = uaccess::read(at)?;
    let (count, flags) = (words[0] as u32, words[0] >> 32);
    if count > 16 || flags != 0 {
        return Err(EINVAL);
    }
    for entry in words[1..].chunks(3).take(count as usize) {
        if entry[0] as u32 == 0 {
            return match super::msr::set_xcr0(state, entry[1]) {
                true => Ok(0),
                false => Err(EINVAL),
            };
        }
    }
    Ok(0)
}
