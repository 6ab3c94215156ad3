//! Random bytes for AT_RANDOM and getrandom.
//!
//! From the CPU's own source where it has one. Elsewhere from the counter of time, mixed: good enough for hash seeds
//! and stack canaries, and for nothing that needs a secret.

use super::{entropy, time};

/// Tries before the CPU's source counts as exhausted.
const TRIES: u32 = 10;

/// Eight random bytes.
pub fn next() -> u64 {
    if entropy::is_there()
        && let Some(value) = (0..TRIES).find_map(|_| entropy::take())
    {
        return value;
    }
    // SplitMix64's finaliser.
    let mut z = time::ticks().wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
