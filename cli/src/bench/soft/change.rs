//! The cost of changing mappings: of one page among 100,000 mappings, and whether a mapping's size matters.

use std::time::Duration;

use anyhow::{Context as _, Result};
use faultless_mm::{Policy, flags};
use faultless_soft::{SoftCpu, SoftSpace};

use super::{ANONYMOUS, PAGE, READ_WRITE, cpu_time, machine, shuffled, space};
use crate::bench::Samples;

const MAPPINGS: u64 = 100_000;
/// Pages that are changed for one sample: at least nine tenths stay as they are.
const CHANGED: usize = 10_000;
const READ: u32 = 1;

/// `munmap` of a populated page.
pub fn unmap_100k() -> Result<Samples> {
    among_100k(|space, addresses| {
        let time = timed(addresses, |at| {
            space.munmap(at, PAGE).context("cannot unmap")
        })?;
        for &at in addresses {
            map_page(space, at)?;
        }
        Ok(time)
    })
}

/// `mprotect` of a populated page, to read-only and back.
pub fn protect_100k() -> Result<Samples> {
    among_100k(|space, addresses| {
        let protect = |to| {
            let change = |at| space.mprotect(at, PAGE, to).context("cannot protect");
            timed(addresses, change)
        };
        Ok((protect(READ)? + protect(READ_WRITE)?) / 2)
    })
}

/// Nanoseconds for one change: of pages in random order, each a mapping, with holes between.
fn among_100k(change: impl Fn(&SoftSpace, &[u64]) -> Result<Duration>) -> Result<Samples> {
    let memory = machine(1, 640)?;
    let space = space(memory, Policy::default())?;
    let addresses = shuffled(MAPPINGS, 2);
    let samples = SoftCpu::run(&space, 0, |_| {
        for &at in &addresses {
            map_page(&space, at)?;
        }
        // The first sample warms up caches, which are warm in a program that has run for a while.
        (0..=20)
            .map(|n| {
                let from = n * CHANGED % (addresses.len() - CHANGED);
                let time = change(&space, &addresses[from..from + CHANGED])?;
                Ok(time.as_nanos() as f64 / CHANGED as f64)
            })
            .collect::<Result<Vec<f64>>>()
    })?;
    Samples::new(samples[1..].to_vec())
}

fn timed(addresses: &[u64], change: impl Fn(u64) -> Result<()>) -> Result<Duration> {
    let start = cpu_time();
    for &at in addresses {
        change(at)?;
    }
    Ok(cpu_time() - start)
}

/// Maps a page and writes to it.
fn map_page(space: &SoftSpace, at: u64) -> Result<()> {
    let flags = ANONYMOUS | flags::FIXED | flags::POPULATE;
    space
        .mmap(at, PAGE, READ_WRITE, flags)
        .map(|_| ())
        .context("the bench cannot map its memory")
}

/// The time of an `mmap` of 1 GiB, untouched, divided by that of 1 MiB, at addresses that the address space
/// chooses.
pub fn mmap_1gib_vs_1mib() -> Result<Samples> {
    const ROUNDS: u32 = 200;
    let memory = machine(1, 64)?;
    let space = space(memory, Policy::default())?;
    let samples = SoftCpu::run(&space, 0, |_| {
        let time = |bytes| -> Result<Duration> {
            let mut time = Duration::ZERO;
            for _ in 0..ROUNDS {
                time += map_some(&space, bytes)?;
            }
            Ok(time)
        };
        time(1 << 20)?;
        (0..31u32)
            .map(|n| {
                // The two sizes take turns in going first.
                let (small, large) = if n % 2 == 0 {
                    let small = time(1 << 20)?;
                    (small, time(1 << 30)?)
                } else {
                    let large = time(1 << 30)?;
                    (time(1 << 20)?, large)
                };
                Ok(large.as_secs_f64() / small.as_secs_f64())
            })
            .collect::<Result<Vec<f64>>>()
    })?;
    Samples::new(samples)
}

/// Maps `bytes` a few times, and unmaps them. Returns the time for mapping. The protection alternates, so that no
/// mapping merges with the one before. `NORESERVE`, because the machine has less memory.
fn map_some(space: &SoftSpace, bytes: u64) -> Result<Duration> {
    const AT_ONCE: usize = 32;
    let mut mapped = [0; AT_ONCE];
    let start = cpu_time();
    for (n, at) in mapped.iter_mut().enumerate() {
        let protection = if n % 2 == 0 { READ_WRITE } else { READ };
        *at = space
            .mmap(0, bytes, protection, ANONYMOUS | flags::NORESERVE)
            .context("the bench cannot map its memory")?;
    }
    let time = cpu_time() - start;
    for at in mapped {
        space.munmap(at, bytes).context("cannot unmap")?;
    }
    Ok(time)
}
