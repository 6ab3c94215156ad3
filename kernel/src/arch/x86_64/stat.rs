//! The layout of Linux's `struct stat`.

use crate::files::stat::Stat;

/// The words of the structure. `times`: access, modification and change, each as seconds and nanoseconds.
pub fn words(stat: &Stat, device: u64, times: &[u64]) -> [u64; 18] {
    let mut words = [0; 18];
    words[..9].copy_from_slice(&[
        u64::from(stat.filesystem),
        stat.number,
        u64::from(stat.links),
        u64::from(stat.mode) | u64::from(stat.user) << 32,
        u64::from(stat.group),
        device,
        stat.size,
        stat.block_size,
        stat.blocks,
    ]);
    words[9..15].copy_from_slice(times);
    words
}
