//! The lookup of a mapping, among 100,000, in random order.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use faultless_mm::{Policy, flags};
use faultless_soft::SoftCpu;

use super::{ANONYMOUS, PAGE, READ_WRITE, machine, shuffled, space};
use crate::bench::Samples;

/// Nanoseconds per lookup, entering and leaving the read section included.
pub fn find_100k() -> Result<Samples> {
    let memory = machine(1, 64)?;
    let space = space(memory, Policy::default())?;
    let addresses = shuffled(100_000, 2);
    let samples = SoftCpu::run(&space, 0, |_| {
        for &at in &addresses {
            space
                .mmap(at, PAGE, READ_WRITE, ANONYMOUS | flags::FIXED)
                .context("the bench cannot map its memory")?;
        }
        (0..21)
            .map(|_| {
                let start = Instant::now();
                let found = addresses
                    .iter()
                    .filter(|&&a| space.lookup(a).is_some())
                    .count();
                let time = start.elapsed();
                ensure!(found == addresses.len(), "a mapping was not found");
                Ok(time.as_nanos() as f64 / addresses.len() as f64)
            })
            .collect::<Result<Vec<f64>>>()
    })?;
    Samples::new(samples)
}
