//! Random bytes for AT_RANDOM and getrandom.
//!
//! From RDRAND where the CPU has it. Elsewhere from the time stamp counter, mixed: good enough for
//! hash seeds and stack canaries, and for nothing that needs a secret.

use super::features::{Features, features};

/// Eight random bytes.
pub fn next() -> u64 {
    if features().contains(Features::RDRAND) {
        for _ in 0..10 {
            let value: u64;
            let ok: u8;
            // SAFETY: The CPU has the instruction.
            unsafe {
                core::arch::asm!("rdrand {}", "setc {}", out(reg) value, out(reg_byte) ok,
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
