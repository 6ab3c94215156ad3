//! Accesses to user memory.
//!
//! A table lists the instructions that may fault, each with the address where to continue if the fault engine
//! refuses the access (the fixup). SMAP is lifted around exactly these instructions, and deferred flushes are
//! done before them (`tlb::with_user`). The no-fault variants never enter the engine; code that holds a lock
//! has to use them.

use core::sync::atomic::Ordering;

use super::entry::{clac, stac};
use super::{percpu, tlb};
use crate::errno::{EFAULT, Errno};
use crate::memory::USER_END;

macro_rules! guarded {
    ($instruction:literal) => {
        concat!(
            stac!(),
            "771: ",
            $instruction,
            "\n772:\n",
            clac!(),
            ".pushsection .extable, \"a\", @progbits\n.quad 771b, 773f\n.popsection\n"
        )
    };
}

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

/// Copies between kernel and user memory; returns whether it copied everything.
///
/// # Safety
/// One side is kernel memory good for `length` bytes, the other side passed [`check`].
unsafe fn copy(to: u64, from: u64, length: usize) -> bool {
    let failed: u64;
    // SAFETY: Faults on the user side go to the fixup; the kernel side is the caller's promise.
    unsafe {
        core::arch::asm!(
            guarded!("rep movsq"),
            "mov rcx, {tail}",
            stac!(),
            "774: rep movsb",
            clac!(),
            "xor {failed:e}, {failed:e}",
            "jmp 775f",
            "773:",
            clac!(),
            "mov {failed:e}, 1",
            "775:",
            ".pushsection .extable, \"a\", @progbits",
            ".quad 774b, 773b",
            ".popsection",
            tail = in(reg) length & 7,
            failed = out(reg) failed,
            inout("rdi") to => _,
            inout("rsi") from => _,
            inout("rcx") length / 8 => _,
            options(nostack),
        );
    }
    failed == 0
}

/// Copies from user memory.
///
/// # Errors
/// `EFAULT`.
pub fn read_bytes(from: u64, to: &mut [u8]) -> Result<(), Errno> {
    check(from, to.len())?;
    // SAFETY: `to` is kernel memory, `from` was checked.
    if tlb::with_user(|| unsafe { copy(to.as_mut_ptr() as u64, from, to.len()) }) {
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
    if tlb::with_user(|| unsafe { copy(to, from.as_ptr() as u64, from.len()) }) {
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
    if tlb::with_user(|| unsafe { copy(to as u64, from, length) }) {
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
    if tlb::with_user(|| unsafe { copy(to, from as u64, length) }) {
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
    without_faults(|| tlb::with_user(|| load(from)))
}

fn load(from: u64) -> Result<u32, Errno> {
    let (value, failed): (u32, u32);
    // SAFETY: A fault goes to the fixup.
    unsafe {
        core::arch::asm!(
            guarded!("mov {value:e}, [{from}]"),
            "xor {failed:e}, {failed:e}",
            "jmp 775f",
            "773:",
            clac!(),
            "xor {value:e}, {value:e}",
            "mov {failed:e}, 1",
            "775:",
            value = out(reg) value,
            from = in(reg) from,
            failed = out(reg) failed,
            options(nostack),
        );
    }
    if failed == 0 { Ok(value) } else { Err(EFAULT) }
}

/// Compares and exchanges a word; returns the old value.
///
/// # Errors
/// `EFAULT`.
pub fn compare_exchange_word(at: u64, expected: u32, new: u32) -> Result<u32, Errno> {
    check(at, 4)?;
    tlb::with_user(|| exchange(at, expected, new))
}

fn exchange(at: u64, expected: u32, new: u32) -> Result<u32, Errno> {
    let (found, failed): (u32, u32);
    // SAFETY: A fault goes to the fixup.
    unsafe {
        core::arch::asm!(
            guarded!("lock cmpxchg [{at}], {new:e}"),
            "xor {failed:e}, {failed:e}",
            "jmp 775f",
            "773:",
            clac!(),
            "mov {failed:e}, 1",
            "775:",
            at = in(reg) at,
            new = in(reg) new,
            inout("eax") expected => found,
            failed = out(reg) failed,
            options(nostack),
        );
    }
    if failed == 0 { Ok(found) } else { Err(EFAULT) }
}
