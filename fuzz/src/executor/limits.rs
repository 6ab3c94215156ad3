//! Limits relative to the memory that the process has: the absolute amount differs between systems.

use crate::address::PAGE;
use crate::memory::{Limited, MOST_LOCKED};

/// Lets the process map `more` pages above the present number; `u64::MAX`: without limit.
pub fn set(what: Limited, more: u64) -> Result<(), i32> {
    let (resource, name) = match what {
        Limited::Mapped => (libc::RLIMIT_AS, "VmSize:"),
        Limited::Data => (libc::RLIMIT_DATA, "VmData:"),
        Limited::Stack => (libc::RLIMIT_STACK, ""),
        Limited::Locked => (libc::RLIMIT_MEMLOCK, "VmLck:"),
    };
    let most = match more {
        u64::MAX => libc::RLIM_INFINITY,
        more if what == Limited::Stack => more * PAGE,
        more => kilobytes(name).ok_or(libc::ENOENT)? * 1024 + more * PAGE,
    };
    let most = match what {
        Limited::Locked => most.min(MOST_LOCKED),
        _ => most,
    };
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: room for a limit of this process.
    unsafe { libc::getrlimit(resource, &raw mut limit) };
    // The hard limit stays: without privileges it could not be raised again.
    limit.rlim_cur = most.min(limit.rlim_max);
    // SAFETY: a limit of this process.
    match unsafe { libc::setrlimit(resource, &raw const limit) } {
        0 => Ok(()),
        // SAFETY: the calling thread's own.
        _ => Err(unsafe { *libc::__errno_location() }),
    }
}

/// The version of capability sets of two words.
const CAPABILITIES: u32 = 0x2008_0522;
/// The capability that lifts the limit of locked memory.
const IPC_LOCK: u32 = 14;

/// Makes the limit of locked memory apply to this thread and all that it makes. Only for programs that
/// set the limit: with `mlockall` the other memory of the process would show.
pub fn give_up_locking() {
    let header = [CAPABILITIES, 0];
    // Effective, permitted and inheritable sets: low words, then high words.
    let mut sets = [[0u32; 3]; 2];
    // SAFETY: room for the sets of the calling thread. Removing the capability from the effective set
    // suffices; the call fails only if the thread does not have it.
    unsafe {
        if libc::syscall(libc::SYS_capget, header.as_ptr(), sets.as_mut_ptr()) == 0 {
            sets[0][0] &= !(1 << IPC_LOCK);
            libc::syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr());
        }
    }
}

/// A number of `/proc/self/status`.
fn kilobytes(name: &str) -> Option<u64> {
    let mut buffer = [0u8; 4096];
    // SAFETY: a path that ends in 0, and a buffer of ours.
    let got = unsafe {
        let file = libc::open(c"/proc/self/status".as_ptr(), libc::O_RDONLY);
        let got = libc::read(file, buffer.as_mut_ptr().cast(), buffer.len());
        libc::close(file);
        got
    };
    let text = std::str::from_utf8(buffer.get(..usize::try_from(got).ok()?)?).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}
