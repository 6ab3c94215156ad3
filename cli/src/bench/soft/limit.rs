//! The cost of a fault beyond the limit.
//!
//! The limit is to zero a frame and store one entry, nothing else. Both sides zero the very same frames in
//! the same order, cold: there are more of them than caches hold. The difference, per fault, is the cost of
//! the engine.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use faultless_mm::{Access, Outcome, PhysicalMemory, Policy};
use faultless_soft::{SoftCpu, SoftSpace};

use super::{ANONYMOUS, BASE, PAGE, READ_WRITE, cpu_time, machine, map, shuffled, space};
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
        // The first pair warms up caches, which are warm in a program that has run for a while.
        (0..=PAIRS)
            .map(|_| pair(space, addresses, &prepare))
            .collect::<Result<Vec<f64>>>()
    })?;
    Samples::new(samples[1..].to_vec())
}

/// Pages that one side handles before the other side's turn.
const CHUNK: usize = 1024;
/// Chunks by which the limit follows the faults, so that the frames it zeroes
/// are as cold as they were for the fault.
const LAG: usize = 24;

/// Faults and the limit on the same frames, in turns; the difference in ns per fault.
fn pair(space: &SoftSpace, addresses: &[u64], prepare: impl Fn() -> Result<()>) -> Result<f64> {
    let last = addresses.iter().max().context("nothing to measure")? + PAGE;
    prepare()?;
    install_tables(space, addresses)?;
    let entries: Vec<AtomicU64> = (BASE..last)
        .step_by(PAGE as usize)
        .map(AtomicU64::new)
        .collect();
    let machine = space.memory().machine();

    let chunks: Vec<&[u64]> = addresses.chunks(CHUNK).collect();
    let (mut faults, mut limit) = (Duration::ZERO, Duration::ZERO);
    let mut failed = 0;
    for turn in 0..chunks.len() + LAG {
        if let Some(chunk) = chunks.get(turn) {
            let start = cpu_time();
            for &address in *chunk {
                failed += u64::from(space.fault(address, Access::Write) != Outcome::Resolved);
            }
            faults += cpu_time() - start;
        }
        if let Some(chunk) = turn.checked_sub(LAG).and_then(|behind| chunks.get(behind)) {
            let frames: Vec<_> = chunk.iter().filter_map(|&a| space.translate(a)).collect();
            let start = cpu_time();
            for (&frame, &address) in frames.iter().zip(*chunk) {
                machine.zero(frame);
                let entry = &entries[((address - BASE) / PAGE) as usize];
                entry.store(frame.0 * PAGE, Ordering::Release);
            }
            limit += cpu_time() - start;
            failed += (chunk.len() - frames.len()) as u64;
        }
    }
    ensure!(failed == 0, "{failed} faults failed");
    std::hint::black_box(&entries);
    space.munmap(BASE, last - BASE).context("cannot unmap")?;
    Ok((faults.as_nanos() as f64 - limit.as_nanos() as f64) / addresses.len() as f64)
}

/// Puts the tables in place: the figure is about pages.
fn install_tables(space: &SoftSpace, addresses: &[u64]) -> Result<()> {
    let table = |address: u64| address / (512 * PAGE);
    let mut sorted = addresses.to_vec();
    sorted.sort_unstable();
    sorted.dedup_by_key(|address| table(*address));
    for address in sorted {
        ensure!(
            space.fault(address, Access::Read) == Outcome::Resolved,
            "a fault failed"
        );
        space.madvise(address, PAGE, faultless_mm::advice::DONTNEED)?;
    }
    Ok(())
}
