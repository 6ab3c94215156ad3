//! Pages for the checks. These functions end the program if a call fails that no check tests,
//! or an access that must succeed.

use faultless_mm::{Errno, PROT_READ, PROT_WRITE, flags};

use super::check::unexpected;
use crate::system::{PAGE, Stop, Thread};

/// Reading and writing.
pub const RW: u32 = PROT_READ | PROT_WRITE;
/// No access.
pub const NONE: u32 = 0;
/// Flags of fresh memory.
pub const ANONYMOUS: u32 = flags::PRIVATE | flags::ANONYMOUS;

/// Maps fresh private pages.
pub fn map_pages(thread: &Thread<'_>, count: u64, protection: u32) -> Result<u64, Stop> {
    let result = thread.call(|space| space.mmap(0, count * PAGE, protection, ANONYMOUS))?;
    result.map_err(|e| thread.die(format_args!("cannot map {count} pages: {e}")))
}

/// Maps fresh private pages at this address, over existing mappings.
pub fn map_over(
    thread: &Thread<'_>,
    at: u64,
    count: u64,
    protection: u32,
) -> Result<Result<u64, Errno>, Stop> {
    let fixed = ANONYMOUS | flags::FIXED;
    thread.call(|space| space.mmap(at, count * PAGE, protection, fixed))
}

/// Changes the protection.
pub fn protect(thread: &Thread<'_>, at: u64, count: u64, protection: u32) -> Result<(), Stop> {
    let result = thread.call(|space| space.mprotect(at, count * PAGE, protection))?;
    thread.or_die("mprotect", result)
}

/// Unmaps.
pub fn unmap(thread: &Thread<'_>, at: u64, count: u64) -> Result<(), Stop> {
    let result = thread.call(|space| space.munmap(at, count * PAGE))?;
    thread.or_die("munmap", result)
}

/// Calls `madvise`.
pub fn advise(
    thread: &Thread<'_>,
    at: u64,
    count: u64,
    advice: i32,
) -> Result<Result<(), Errno>, Stop> {
    thread.call(|space| space.madvise(at, count * PAGE, advice))
}

/// Reads a byte.
pub fn read(thread: &Thread<'_>, at: u64) -> Result<u8, Stop> {
    thread
        .attempt(|cpu| cpu.load_u8(at))?
        .map_err(|fault| unexpected(thread, fault))
}

/// Writes a byte.
pub fn write(thread: &Thread<'_>, at: u64, value: u8) -> Result<(), Stop> {
    thread
        .attempt(|cpu| cpu.store_u8(at, value))?
        .map_err(|fault| unexpected(thread, fault))
}

/// Reads bytes.
pub fn contents(thread: &Thread<'_>, at: u64, size: u64) -> Result<Vec<u8>, Stop> {
    let mut bytes = vec![0; size as usize];
    let result = thread.attempt(|cpu| cpu.load_bytes(at, &mut bytes))?;
    result.map_err(|fault| unexpected(thread, fault))?;
    Ok(bytes)
}

/// Writes the same byte to all of it.
pub fn fill(thread: &Thread<'_>, at: u64, size: u64, byte: u8) -> Result<(), Stop> {
    let result = thread.attempt(|cpu| cpu.fill(at, size as usize, byte))?;
    result.map_err(|fault| unexpected(thread, fault))
}

/// Whether all bytes are zero.
pub fn all_zero(thread: &Thread<'_>, at: u64, size: u64) -> Result<bool, Stop> {
    Ok(contents(thread, at, size)?.iter().all(|&byte| byte == 0))
}
