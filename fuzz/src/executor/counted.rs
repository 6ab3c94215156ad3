//! The faults of a single access: what the calling thread is charged with meanwhile.
//!
//! The access is made twice at the same depth of the stack, first to an address where nothing ever
//! is: then code, stack and what a signal takes are in memory, also after a fork.

use std::hint::black_box;

use super::probe;
use crate::memory::{Faults, Signal};

/// No address of user memory, nor of a kernel's.
const NOWHERE: u64 = 1 << 63;

/// Stores the value or loads, and says how many faults that took.
pub fn access(address: u64, value: Option<u64>, faults: &mut Faults) -> Result<u64, Signal> {
    let mut result = Ok(0);
    for at in [NOWHERE, address] {
        (result, *faults) = once(black_box(at), value);
    }
    result
}

#[inline(never)]
fn once(address: u64, value: Option<u64>) -> (Result<u64, Signal>, Faults) {
    // The first call brings the memory that the others write.
    let _ = used();
    let before = used();
    let result = match value {
        Some(value) => probe::store(address, value).map(|()| 0),
        None => probe::load(address),
    };
    let after = used();
    let faults = Faults {
        minor: after.minor - before.minor,
        major: after.major - before.major,
    };
    (result, faults)
}

#[inline(never)]
fn used() -> Faults {
    // SAFETY: plain numbers, which the call writes.
    let used = unsafe {
        let mut used: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut used);
        used
    };
    Faults {
        minor: used.ru_minflt as u64,
        major: used.ru_majflt as u64,
    }
}
