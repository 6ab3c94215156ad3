//! Records the numbers of unimplemented system calls for the report.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::errno::{Answer, ENOSYS};
use crate::exec::run_file::LIST_UNKNOWN;

const MOST: u32 = 512;

static SEEN: [AtomicU64; MOST as usize / 64] = [const { AtomicU64::new(0) }; MOST as usize / 64];

/// Remembers a call's number and refuses it.
#[cold]
pub fn remember(number: u32) -> Answer {
    if number < MOST {
        let bit = 1 << (number % 64);
        let before = SEEN[number as usize / 64].fetch_or(bit, Ordering::Relaxed);
        if before & bit == 0 && LIST_UNKNOWN.load(Ordering::Relaxed) {
            log::info!("unknown system call {number}");
        }
    }
    Err(ENOSYS)
}

/// All numbers seen, in order.
pub fn for_each(f: &mut dyn FnMut(u32)) {
    for number in 0..MOST {
        if SEEN[number as usize / 64].load(Ordering::Relaxed) & 1 << (number % 64) != 0 {
            f(number);
        }
    }
}
