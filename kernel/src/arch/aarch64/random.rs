//! Random bytes for AT_RANDOM and getrandom.
//!
//! From RNDR where the CPU has it. Elsewhere from the counter, mixed: good enough for hash seeds and stack
//! canaries, and for nothing that needs a secret.

use super::features::{Features, features};

/// Eight random bytes.
pub fn next() -> u64 {
    if features().contains(Features::RNDR) {
        for _ in 0..10 {
            let value: u64;
            let ok: u64;
            // SAFETY: The CPU has the register; a failure sets the zero flag.
            unsafe {
                core::arch::asm!("mrs {}, s3_3_c2_c4_0", "cset {}, ne", out(reg) value, out(reg) ok,
                    options(nomem, nostack));
            }
            if ok != 0 {
                return value;
            }
        }
    }
    // SplitMix64's finaliser.
    let mut z = super::time::ticks().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
