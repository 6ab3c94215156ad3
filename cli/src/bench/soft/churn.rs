//! Mapping, touching and unmapping a little: what it costs, and what two threads cost each other.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use faultless_mm::{Policy, advice};
use faultless_soft::{SoftCpu, SoftSpace};

use super::policies::one_space_vs_two;
use super::{ANONYMOUS, BASE, PAGE, READ_WRITE, cpu_time, machine, map, space};
use crate::bench::Samples;

/// Pages of a mapping that two threads each make again and again.
const PART: u64 = 16;
const ROUNDS: usize = 400;

/// `munmap` of a page that is there.
pub fn munmap_1() -> Result<Samples> {
    munmap(1)
}

/// The same of 16 pages.
pub fn munmap_16() -> Result<Samples> {
    munmap(16)
}

/// Nanoseconds of a `munmap` of a mapping of so many pages, all there, beside another mapping.
fn munmap(pages: u64) -> Result<Samples> {
    const COUNT: u64 = 2000;
    let memory = machine(1, 192)?;
    let space = space(memory, Policy::default())?;
    let samples = SoftCpu::run(&space, 0, |_| {
        map(&space, BASE - PAGE, PAGE)?;
        (0..=30)
            .map(|_| {
                // Holes between them, so that each is a mapping of its own.
                let addresses = (0..COUNT / pages).map(|n| BASE + n * (pages + 1) * PAGE);
                for at in addresses.clone() {
                    map(&space, at, pages * PAGE)?;
                    let touched = space.madvise(at, pages * PAGE, advice::POPULATE_WRITE);
                    touched.context("cannot touch")?;
                }
                let start = cpu_time();
                for at in addresses {
                    space.munmap(at, pages * PAGE).context("cannot unmap")?;
                }
                Ok((cpu_time() - start).as_nanos() as f64 / (COUNT / pages) as f64)
            })
            .collect::<Result<Vec<f64>>>()
    })?;
    Samples::new(samples[1..].to_vec())
}

/// Two threads each map, touch and unmap 16 pages, wherever there is room; then the same in two
/// address spaces. The speed of the first, in terms of the second.
pub fn mmap_churn_one_vs_two_spaces() -> Result<Samples> {
    one_space_vs_two(Policy::default(), together)
}

/// The time that both threads together take.
fn together(spaces: [&SoftSpace; 2]) -> Result<Duration> {
    let barrier = Barrier::new(2);
    let thread = |number: u32| {
        let (barrier, space) = (&barrier, spaces[number as usize]);
        move || {
            SoftCpu::run(space, number, |cpu| -> Result<Duration> {
                cpu.pause(|| barrier.wait());
                let start = Instant::now();
                for _ in 0..ROUNDS {
                    let at = space.mmap(0, PART * PAGE, READ_WRITE, ANONYMOUS)?;
                    for page in 0..PART {
                        let stored = cpu.store(at + page * PAGE, 1);
                        stored.map_err(|trap| anyhow::anyhow!("a store failed: {trap:?}"))?;
                    }
                    space.munmap(at, PART * PAGE)?;
                }
                Ok(start.elapsed())
            })
        }
    };
    let (first, second) = std::thread::scope(|scope| {
        let other = scope.spawn(thread(1));
        let first = thread(0)();
        (first, other.join())
    });
    let second = second.map_err(|_| anyhow::anyhow!("a thread of the bench died"))?;
    Ok(first? + second?)
}
