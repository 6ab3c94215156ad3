//! Accesses to user memory.
//!
//! A table lists the instructions that may fault, each with the address where to continue if the fault engine
//! refuses the access (the fixup). SMAP is lifted around exactly these instructions, and deferred flushes are
//! done before them (`shootdown::with_user`). The no-fault variants never enter the engine; code that holds a lock
//! has to use them.

use core::sync::atomic::Ordering;

use super::user_copy::{copy, exchange, load};
use super::{percpu, shootdown};
use crate::errno::{EFAULT, Errno};
use crate::memory::USER_END;

unsafe extern "C" {
    static __extable_start: [u64; 2];
    static __extable_end: [u64; 2];
}

/// The fixup of the instruction at `rip`, if it is in the table.
pub fn fixup(rip: u64) -> Option<u64> {
    let mut entry = &raw const __extable_start;
    while entry < &raw const __extable_end {
        // SAFETY: The linker script bounds the table.
        let [at, fixup] = unsafe { *entry };
        if at == rip {
            return Some(fixup);
        }
        // SAFETY: As above.
        entry = unsafe { entry.add(1) };
    }
    None
}

/// Whether all of a range is user memory.
pub fn range_ok(address: u64, length: u64) -> bool {
    address
        .checked_add(length)
        .is_some_and(|end| end <= USER_END)
}

fn check(address: u64, length: usize) -> Result<(), Errno> {
    if range_ok(address, length as u64) {
        Ok(())
    } else {
        Err(EFAULT)
    }
}

/// Copies from user memory.
///
/// # Errors
/// `EFAULT`.
pub fn read_bytes(from: u64, to: &mut [u8]) -> Result<(), Errno> {
    check(from, to.len())?;
    // SAFETY: `to` is kernel memory, `from` was checked.
    if shootdown::with_user(|| unsafe { copy(to.as_mut_ptr() as u64, from, to.len()) }) {
        Ok(())
    } else {
        Err(EFAULT)
    }
}

/// Copies to user memory.
///
/// # Errors
/// `EFAULT`.
pub fn write_bytes(to: u64, from: &[u8]) -> Result<(), Errno> {
    check(to, from.len())?;
    // SAFETY: `from` is kernel memory, `to` was checked.
    if shootdown::with_user(|| unsafe { copy(to, from.as_ptr() as u64, from.len()) }) {
        Ok(())
    } else {
        Err(EFAULT)
    }
}

/// Copies from user memory to memory that programs may write meanwhile: a page of a file.
///
/// # Errors
/// `EFAULT`.
///
/// # Safety
/// `to` is memory good for `length` bytes, and no Rust value.
pub unsafe fn read_to(from: u64, to: *mut u8, length: usize) -> Result<(), Errno> {
    check(from, length)?;
    // SAFETY: `to` is the caller's promise, `from` was checked.
    if shootdown::with_user(|| unsafe { copy(to as u64, from, length) }) {
        Ok(())
    } else {
        Err(EFAULT)
    }
}

/// Copies such memory to user memory.
///
/// # Errors
/// `EFAULT`.
///
/// # Safety
/// As for [`read_to`].
pub unsafe fn write_from(to: u64, from: *const u8, length: usize) -> Result<(), Errno> {
    check(to, length)?;
    // SAFETY: `from` is the caller's promise, `to` was checked.
    if shootdown::with_user(|| unsafe { copy(to, from as u64, length) }) {
        Ok(())
    } else {
        Err(EFAULT)
    }
}

/// Types without padding of which any bytes are a value.
///
/// # Safety
/// Any bytes are a value, and there is no padding.
pub unsafe trait Plain: Copy {}
// SAFETY: Integers.
unsafe impl Plain for u8 {}
// SAFETY: Integers.
unsafe impl Plain for i32 {}
// SAFETY: Integers.
unsafe impl Plain for u32 {}
// SAFETY: Integers.
unsafe impl Plain for u64 {}
// SAFETY: Integers.
unsafe impl Plain for i64 {}
// SAFETY: An array has no padding of its own.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// Reads a value from user memory.
///
/// # Errors
/// `EFAULT`.
pub fn read<T: Plain>(from: u64) -> Result<T, Errno> {
    let mut value = core::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: The bytes of a plain value may be written one by one.
    let bytes =
        unsafe { core::slice::from_raw_parts_mut(value.as_mut_ptr().cast(), size_of::<T>()) };
    read_bytes(from, bytes)?;
    // SAFETY: Any bytes are a value.
    Ok(unsafe { value.assume_init() })
}

/// Writes a value to user memory.
///
/// # Errors
/// `EFAULT`.
pub fn write<T: Plain>(to: u64, value: &T) -> Result<(), Errno> {
    // SAFETY: A plain value is its bytes.
    let bytes =
        unsafe { core::slice::from_raw_parts(core::ptr::from_ref(value).cast(), size_of::<T>()) };
    write_bytes(to, bytes)
}

/// Runs `f` with user accesses that fail instead of faulting pages in.
fn without_faults<R>(f: impl FnOnce() -> R) -> R {
    let cpu = percpu::this();
    cpu.no_fault.store(true, Ordering::Relaxed);
    let result = f();
    cpu.no_fault.store(false, Ordering::Relaxed);
    result
}

/// Reads a word only if its page is present.
///
/// # Errors
/// `EFAULT`: not allowed, or not present.
pub fn read_word_no_fault(from: u64) -> Result<u32, Errno> {
    check(from, 4)?;
    without_faults(|| shootdown::with_user(|| load(from)))
}

/// Compares and exchanges a word; returns the old value.
///
/// # Errors
/// `EFAULT`.
pub fn compare_exchange_word(at: u64, expected: u32, new: u32) -> Result<u32, Errno> {
    check(at, 4)?;
    shootdown::with_user(|| exchange(at, expected, new))
}
