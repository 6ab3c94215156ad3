//! Reads and changes the registers of a stopped tracee, and reads its signal.

use super::tracee::State;
use super::with_stopped;
use crate::arch::registers::{self, Registers};
use crate::arch::uaccess;
use crate::errno::{Answer, EFAULT, EINVAL, EIO, Errno};

/// The general-purpose register set, by its ELF note type.
const NT_PRSTATUS: u32 = 1;
/// Bytes of a tracee's registers.
const SIZE: usize = size_of::<Registers>();
/// Bytes of Linux's `struct user`, of which the registers come first.
const USER_SIZE: u64 = 928;
/// The bytes of `struct user` that hold debug registers.
const DEBUG_REGISTERS: core::ops::Range<usize> = 848..912;

fn get(id: u32) -> Result<Registers, Errno> {
    with_stopped(id, |thread, _| {
        // SAFETY: The tracee has stopped, and resumes only after the lock is released.
        Ok(registers::get(thread, unsafe { &*thread.frame() }))
    })
}

/// Changes registers in order, up to the first that cannot have its value.
fn set(id: u32, from: usize, values: &[u64]) -> Result<(), Errno> {
    with_stopped(id, |thread, _| {
        // SAFETY: As above.
        let frame = unsafe { &mut *thread.frame() };
        (from..)
            .zip(values)
            .try_for_each(|(number, &value)| registers::set(thread, frame, number, value))
    })
}

#[cfg(target_arch = "x86_64")]
pub fn registers(id: u32, to: u64) -> Answer {
    uaccess::write(to, &get(id)?).map(|()| 0)
}

#[cfg(target_arch = "x86_64")]
pub fn set_registers(id: u32, from: u64) -> Answer {
    let values: Registers = uaccess::read(from)?;
    set(id, 0, &values).map(|()| 0)
}

/// Reads an `iovec`: the address of a register set, and the number of bytes to copy.
fn place(kind: u64, vector: u64) -> Result<(u64, usize), Errno> {
    let [at, length]: [u64; 2] = uaccess::read(vector)?;
    if kind as u32 != NT_PRSTATUS || !length.is_multiple_of(8) {
        return Err(EINVAL);
    }
    Ok((at, SIZE.min(length as usize)))
}

pub fn register_set(id: u32, kind: u64, vector: u64) -> Answer {
    let (at, length) = place(kind, vector)?;
    let values = get(id)?;
    for (number, value) in (0..length as u64 / 8).zip(&values) {
        uaccess::write(at.wrapping_add(8 * number), value)?;
    }
    uaccess::write(vector.wrapping_add(8), &(length as u64))?;
    Ok(0)
}

pub fn set_register_set(id: u32, kind: u64, vector: u64) -> Answer {
    let (at, length) = place(kind, vector)?;
    let mut values: Registers = [0; SIZE / 8];
    for (number, value) in (0..length as u64 / 8).zip(&mut values) {
        *value = uaccess::read(at.wrapping_add(8 * number))?;
    }
    set(id, 0, &values[..length / 8])?;
    uaccess::write(vector.wrapping_add(8), &(length as u64))?;
    Ok(0)
}

fn check_place(address: u64) -> Result<usize, Errno> {
    match address.is_multiple_of(8) && address < USER_SIZE {
        true => Ok(address as usize / 8),
        false => Err(EIO),
    }
}

/// Reads a word of `struct user`; words after the registers are 0.
pub fn peek_user(id: u32, address: u64, to: u64) -> Answer {
    let number = check_place(address)?;
    let value = get(id)?.get(number).copied().unwrap_or(0);
    uaccess::write(to, &value).map(|()| 0)
}

pub fn poke_user(id: u32, address: u64, value: u64) -> Answer {
    let number = check_place(address)?;
    if number >= SIZE / 8 {
        // Debug registers are not supported, so only 0 can be written.
        let is_debug = DEBUG_REGISTERS.contains(&(number * 8));
        return if is_debug && value == 0 {
            Ok(0)
        } else {
            Err(EIO)
        };
    }
    set(id, number, &[value]).map(|()| 0)
}

/// Writes the signal, or the stop, as a `siginfo_t`.
pub fn signal_info(id: u32, to: u64) -> Answer {
    let info = with_stopped(id, |_, tracee| match tracee.state {
        State::Stopped(stop) => stop.info.ok_or(EINVAL),
        _ => Err(EINVAL),
    })?;
    uaccess::write(to, &info.words()).map_err(|_| EFAULT)?;
    Ok(0)
}

pub fn message(id: u32, to: u64) -> Answer {
    let message = with_stopped(id, |_, tracee| Ok(tracee.message))?;
    uaccess::write(to, &message).map(|()| 0)
}
