//! The layout of Linux's `struct stat`.

use crate::files::stat::Stat;

/// The words of the structure. `times`: access, modification and change, each as seconds and nanoseconds.
pub fn words(stat: &Stat, device: u64, times: &[u64]) -> [u64; 16] {
    let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    let mut words = [0; 16];
    words[..9].copy_from_slice(&[
        u64::from(stat.filesystem),
        stat.number,
        pair(stat.mode, stat.links),
        pair(stat.user, stat.group),
        device,
        0,
        stat.size,
        stat.block_size,
        stat.blocks,
    ]);
    words[9..15].copy_from_slice(times);
    words
}
