//! Pointers passed to the kernel: a bad one causes EFAULT and no signal, and a valid one may point to an untouched
//! page.
//!
//! The system calls are implemented here: a kernel copies to or from the program's memory, faults like
//! the program, and turns an error into EFAULT.

use std::time::{SystemTime, UNIX_EPOCH};

use faultless_mm::{Errno, PROT_READ};

use super::check::{Failure, ensure};
use super::pages::{NONE, RW, all_zero, contents, map_pages, protect, read, unmap};
use crate::system::{PAGE, Stop, Thread};

type Answer = Result<Result<(), Errno>, Stop>;

const KERNEL_HALF: u64 = 0xffff_8000_0000_0000;
/// Bytes of a `struct timespec`.
const TIMESPEC: usize = 16;

/// `copy_to_user`.
fn copy_to(t: &Thread<'_>, at: u64, bytes: &[u8]) -> Answer {
    let result = t.attempt(|cpu| cpu.store_bytes(at, bytes))?;
    Ok(result.map_err(|_| Errno::EFAULT))
}

/// `copy_from_user`.
fn copy_from(t: &Thread<'_>, at: u64, size: usize) -> Answer {
    let mut bytes = vec![0; size];
    let result = t.attempt(|cpu| cpu.load_bytes(at, &mut bytes))?;
    Ok(result.map_err(|_| Errno::EFAULT))
}

/// `clock_gettime`.
pub fn clock_to(t: &Thread<'_>, at: u64) -> Answer {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let mut timespec = [0; TIMESPEC];
    timespec[..8].copy_from_slice(&now.as_secs().to_ne_bytes());
    timespec[8..].copy_from_slice(&u64::from(now.subsec_nanos()).to_ne_bytes());
    copy_to(t, at, &timespec)
}

/// `nanosleep`, with the time 0 that a fresh page contains.
fn sleep_from(t: &Thread<'_>, at: u64) -> Answer {
    copy_from(t, at, TIMESPEC)
}

pub fn kernel_writes(t: &Thread<'_>) -> Result<(), Failure> {
    let p = map_pages(t, 4, RW)?;
    protect(t, p, 1, NONE)?;
    protect(t, p + PAGE, 1, PROT_READ)?;
    unmap(t, p + 3 * PAGE, 1)?;
    let refused = |at| clock_to(t, at).map(|answer| answer == Err(Errno::EFAULT));
    ensure!(refused(p)?, "PROT_NONE: no EFAULT");
    ensure!(refused(p + PAGE)?, "read-only, untouched: no EFAULT");
    ensure!(read(t, p + PAGE)? == 0, "a read-only page was written");
    ensure!(refused(p + PAGE)?, "read-only, zero page: no EFAULT");
    ensure!(refused(p + 3 * PAGE)?, "unmapped: no EFAULT");
    ensure!(refused(p + 3 * PAGE - 8)?, "half unmapped: no EFAULT");
    ensure!(refused(16)?, "address 16: no EFAULT");
    ensure!(refused(KERNEL_HALF)?, "kernel half: no EFAULT");
    ensure!(refused(u64::MAX - 7)?, "last bytes: no EFAULT");
    ensure!(!refused(p + 2 * PAGE)?, "a good pointer was refused");
    unmap(t, p, 4)?;
    Ok(())
}

pub fn kernel_reads(t: &Thread<'_>) -> Result<(), Failure> {
    let p = map_pages(t, 2, RW)?;
    protect(t, p, 1, NONE)?;
    let refused = |at| sleep_from(t, at).map(|answer| answer == Err(Errno::EFAULT));
    ensure!(refused(p)?, "PROT_NONE: no EFAULT");
    ensure!(!refused(p + PAGE)?, "a fresh page was refused");
    unmap(t, p + PAGE, 1)?;
    ensure!(refused(p + PAGE)?, "unmapped: no EFAULT");
    ensure!(refused(KERNEL_HALF)?, "kernel half: no EFAULT");
    unmap(t, p, 1)?;
    Ok(())
}

pub fn write_from_bad(t: &Thread<'_>) -> Result<(), Failure> {
    let p = map_pages(t, 2, NONE)?;
    let write = |at| copy_from(t, at, 16).map(|answer| answer == Err(Errno::EFAULT));
    ensure!(write(p)?, "PROT_NONE: no EFAULT");
    unmap(t, p + PAGE, 1)?;
    ensure!(write(p + PAGE)?, "unmapped: no EFAULT");
    unmap(t, p, 1)?;
    Ok(())
}

pub fn read_into_bad(t: &Thread<'_>) -> Result<(), Failure> {
    let p = map_pages(t, 3, RW)?;
    protect(t, p, 1, PROT_READ)?;
    protect(t, p + PAGE, 1, NONE)?;
    let refused = |at| copy_to(t, at, &[7; 16]).map(|answer| answer == Err(Errno::EFAULT));
    ensure!(refused(p)?, "read-only: no EFAULT");
    ensure!(refused(p + PAGE)?, "PROT_NONE: no EFAULT");
    ensure!(all_zero(t, p, PAGE)?, "a read-only page was written");
    ensure!(!refused(p + 2 * PAGE)?, "a fresh page was refused");
    ensure!(read(t, p + 2 * PAGE + 8)? != 0, "nothing was read");
    unmap(t, p, 3)?;
    Ok(())
}

pub fn kernel_first_touch(t: &Thread<'_>) -> Result<(), Failure> {
    let p = map_pages(t, 2, RW)?;
    // To an untouched page, and to one that is mapped to the zero page.
    let answer = clock_to(t, p)?;
    ensure!(answer.is_ok(), "{answer:?}");
    let time = contents(t, p, TIMESPEC as u64)?;
    ensure!(time.iter().any(|&byte| byte != 0), "nothing was written");
    ensure!(read(t, p + PAGE)? == 0, "a fresh page is not zero");
    let answer = clock_to(t, p + PAGE)?;
    ensure!(answer.is_ok(), "{answer:?}");
    let (time, rest) = (TIMESPEC as u64, PAGE - TIMESPEC as u64);
    ensure!(!all_zero(t, p + PAGE, time)?, "nothing was written");
    ensure!(all_zero(t, p + PAGE + time, rest)?, "the rest is not zero");
    unmap(t, p, 2)?;
    Ok(())
}
