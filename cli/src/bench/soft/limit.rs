//! What a fault costs beyond the limit.
//!
//! The limit is a frame zeroed and one entry stored, nothing else. Both sides
//! zero the very same frames in the same order, cold: there are more of them
//! than caches hold. The difference, per fault, is what the engine adds.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use faultless_mm::{Access, Machine, Outcome, PhysicalMemory, Policy};
use faultless_soft::{SoftCpu, SoftSpace};

use super::{ANONYMOUS, BASE, PAGE, READ_WRITE, machine, map, shuffled, space};
use crate::bench::Samples;

const PAIRS: usize = 11;

/// One mapping, from its first page to its last.
pub fn fault_over_limit() -> Result<Samples> {
    let pages = 32 * 1024;
    let memory = machine(1, 256)?;
    let space = space(memory, Policy::default())?;
    let addresses: Vec<u64> = (0..pages).map(|n| BASE + n * PAGE).collect();
    compare(&space, &addresses, || map(&space, BASE, pages * PAGE))
}

/// 100,000 mappings of one page, with holes between them, in random order.
pub fn fault_over_limit_100k() -> Result<Samples> {
    let memory = machine(1, 640)?;
    let space = space(memory, Policy::default())?;
    let addresses = shuffled(100_000, 2);
    compare(&space, &addresses, || {
        for &at in &addresses {
            space
                .mmap(at, PAGE, READ_WRITE, ANONYMOUS | faultless_mm::flags::FIXED)
                .context("the bench cannot map its memory")?;
        }
        Ok(())
    })
}

fn compare(
    space: &SoftSpace,
    addresses: &[u64],
    prepare: impl Fn() -> Result<()>,
) -> Result<Samples> {
    let samples = SoftCpu::run(space, 0, |_| {
        // The first pair warms up what is warm in a program that has run for a while.
        (0..=PAIRS)
            .map(|_| pair(space, addresses, &prepare))
            .collect::<Result<Vec<f64>>>()
    })?;
    Samples::new(samples[1..].to_vec())
}

/// Faults, then the limit on the same frames; the difference in ns per fault.
fn pair(space: &SoftSpace, addresses: &[u64], prepare: impl Fn() -> Result<()>) -> Result<f64> {
    let last = addresses.iter().max().context("nothing to measure")? + PAGE;
    prepare()?;
    // Tables are there already: the figure is about pages. One page keeps each.
    for table in (BASE..last).step_by(512 * PAGE as usize) {
        let first = addresses
            .iter()
            .find(|&&a| a / (512 * PAGE) == table / (512 * PAGE));
        if let Some(&address) = first {
            ensure!(
                space.fault(address, Access::Read) == Outcome::Resolved,
                "a fault failed"
            );
        }
    }
    space
        .madvise(BASE, last - BASE, faultless_mm::advice::DONTNEED)
        .ok();

    let start = Instant::now();
    let mut failed = 0;
    for &address in addresses {
        failed += u64::from(space.fault(address, Access::Write) != Outcome::Resolved);
    }
    let faults = start.elapsed();
    ensure!(failed == 0, "{failed} faults failed");

    let frames: Vec<_> = addresses
        .iter()
        .filter_map(|&a| space.translate(a))
        .collect();
    ensure!(frames.len() == addresses.len(), "pages went away");
    let entries: Vec<std::sync::atomic::AtomicU64> = (BASE..last)
        .step_by(PAGE as usize)
        .map(|_| std::sync::atomic::AtomicU64::new(1))
        .collect();
    let machine = space.memory().machine();
    ensure!(
        !machine.frames().census().available().eq(&0),
        "no memory is left"
    );
    let start = Instant::now();
    for (&frame, &address) in frames.iter().zip(addresses) {
        machine.zero(frame);
        entries[((address - BASE) / PAGE) as usize]
            .store(frame.0 * PAGE, std::sync::atomic::Ordering::Release);
    }
    let limit = start.elapsed();
    std::hint::black_box(&entries);
    space.munmap(BASE, last - BASE).context("cannot unmap")?;
    Ok((faults.as_nanos() as f64 - limit.as_nanos() as f64) / addresses.len() as f64)
}
