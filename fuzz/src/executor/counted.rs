//! The faults of a single access, as charged to the calling thread.
//!
//! The access is made twice at the same depth of the stack, first to an address that is never mapped. This
//! brings code, stack and the memory of signal delivery in, also after a fork.

use std::hint::black_box;

use super::probe;
use crate::memory::{Faults, Signal};

/// An address of neither user nor kernel memory.
const NOWHERE: u64 = 1 << 52;

/// Stores the value or loads, and sets the number of faults.
pub fn access(address: u64, value: Option<u64>, faults: &mut Faults) -> Result<u64, Signal> {
    let mut result = Ok(0);
    for at in [NOWHERE, address] {
        (result, *faults) = once(black_box(at), value);
    }
    result
}

#[inline(never)]
fn once(address: u64, value: Option<u64>) -> (Result<u64, Signal>, Faults) {
    // The first call faults in the memory that the others write.
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
