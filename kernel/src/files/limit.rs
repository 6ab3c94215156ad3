//! The limit on the size of files that a process writes (`RLIMIT_FSIZE`). It applies to regular files only.
//!
//! A call that the limit refuses fails with `EFBIG`, and its thread gets SIGXFSZ. The checks here run under a
//! file's `turn`, so the caller sends the signal, with [`told`], when it holds no lock.

use linux_raw_sys::general as linux;

use super::content::LARGEST;
use crate::errno::{Answer, EFBIG, Errno};
use crate::process;
use crate::signal::send;

fn limit() -> u64 {
    process::current().limits.lock().file_size()
}

/// How many of `length` bytes may be written from a position on: those below the limit.
///
/// # Errors
/// `EFBIG`: none of them.
pub fn writable(position: u64, length: u64) -> Answer {
    match limit().saturating_sub(position) {
        0 if length != 0 => Err(EFBIG),
        room => Ok(length.min(room)),
    }
}

/// Checks a change of a file's size. A file above the limit may shrink to any size.
///
/// # Errors
/// `EFBIG`.
pub fn check_size(before: u64, after: u64) -> Result<(), Errno> {
    if after > before && after > limit() {
        return Err(EFBIG);
    }
    Ok(())
}

/// Sends SIGXFSZ if the limit refused the call. A file that would be larger than any file can be is no reason
/// for the signal.
pub fn told(answer: Answer) -> Answer {
    if answer == Err(EFBIG) && limit() <= LARGEST {
        send::to_self(linux::SIGXFSZ);
    }
    answer
}
