//! The cost of a cold load on the host, a reference for the figures of faults.
//!
//! The metadata of 100,000 mappings is as large as a last-level cache may be. If other programs use that
//! cache too, as on a shared machine, the same binary's faults may take a memory access longer. This figure
//! hints which case it was.

use anyhow::Result;

use super::{BASE, PAGE, cpu_time, shuffled};
use crate::bench::Samples;

/// One cache line, and the number of the next.
#[repr(align(64))]
struct Line(u64);

/// Lines of 4 MiB: more than a core's own caches, less than what cores share.
const LINES: u64 = (4 << 20) / 64;

/// Nanoseconds per load, each load's address being the result of the one before.
pub fn load_4m() -> Result<Samples> {
    let order: Vec<u64> = shuffled(LINES, 1)
        .iter()
        .map(|address| (address - BASE) / PAGE)
        .collect();
    let mut lines: Vec<Line> = (0..LINES).map(|_| Line(0)).collect();
    for (at, &line) in order.iter().enumerate() {
        lines[line as usize].0 = order[(at + 1) % order.len()];
    }
    let mut at = 0;
    let samples = (0..11)
        .map(|_| {
            let start = cpu_time();
            for _ in 0..LINES {
                at = lines[at as usize].0;
            }
            std::hint::black_box(at);
            (cpu_time() - start).as_nanos() as f64 / LINES as f64
        })
        .collect();
    Samples::new(samples)
}
