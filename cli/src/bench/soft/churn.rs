//! Mapping, touching and unmapping a few pages: the cost for one thread, and the cost of a second one.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use faultless_mm::{Policy, advice};
use faultless_soft::{SoftCpu, SoftSpace};

use super::policies::one_space_vs_two;
use super::{ANONYMOUS, BASE, PAGE, READ_WRITE, cpu_time, machine, map, space};
use crate::bench::Samples;

/// Pages of each mapping when two threads map repeatedly.
const PART: u64 = 16;
const ROUNDS: usize = 400;

/// `munmap` of a populated page.
pub fn munmap_1() -> Result<Samples> {
    munmap(1)
}

/// The same of 16 pages.
pub fn munmap_16() -> Result<Samples> {
    munmap(16)
}

/// `mmap` of a page at a given free address.
pub fn mmap_fixed() -> Result<Samples> {
    one_by_one(1, |cost| cost.mmap)
}

/// `mmap` of a page at an address that the space chooses.
pub fn mmap_anywhere() -> Result<Samples> {
    let memory = machine(1, 64)?;
    let space = space(memory, Policy::default())?;
    let samples = SoftCpu::run(&space, 0, |_| {
        (0..=30)
            .map(|_| {
                let start = cpu_time();
                let mut lowest = 0;
                for _ in 0..COUNT {
                    lowest = space.mmap(0, PAGE, READ_WRITE, ANONYMOUS)?;
                }
                let time = cpu_time() - start;
                space.munmap(lowest, COUNT * PAGE).context("cannot unmap")?;
                Ok(time.as_nanos() as f64 / COUNT as f64)
            })
            .collect::<Result<Vec<f64>>>()
    })?;
    Samples::new(samples[1..].to_vec())
}

/// Pages of a round.
const COUNT: u64 = 2000;

/// The times of all operations of one round.
struct Cost {
    mmap: Duration,
    munmap: Duration,
}

/// Nanoseconds of a `munmap` of a mapping of `pages` populated pages, while there is another mapping.
fn munmap(pages: u64) -> Result<Samples> {
    one_by_one(pages, |cost| cost.munmap)
}

/// Makes mappings of `pages` pages with holes between them, so that none merge; touches and unmaps them. Takes
/// the nanoseconds of one of these operations.
fn one_by_one(pages: u64, of: fn(Cost) -> Duration) -> Result<Samples> {
    let memory = machine(1, 192)?;
    let space = space(memory, Policy::default())?;
    let samples = SoftCpu::run(&space, 0, |_| {
        map(&space, BASE - PAGE, PAGE)?;
        (0..=30)
            .map(|_| {
                let count = COUNT / pages;
                let addresses = (0..count).map(|n| BASE + n * (pages + 1) * PAGE);
                let start = cpu_time();
                for at in addresses.clone() {
                    map(&space, at, pages * PAGE)?;
                }
                let mmap = cpu_time() - start;
                for at in addresses.clone() {
                    let touched = space.madvise(at, pages * PAGE, advice::POPULATE_WRITE);
                    touched.context("cannot touch")?;
                }
                let start = cpu_time();
                for at in addresses {
                    space.munmap(at, pages * PAGE).context("cannot unmap")?;
                }
                let munmap = cpu_time() - start;
                Ok(of(Cost { mmap, munmap }).as_nanos() as f64 / count as f64)
            })
            .collect::<Result<Vec<f64>>>()
    })?;
    Samples::new(samples[1..].to_vec())
}

/// Two threads each map, touch and unmap 16 pages, at addresses that the space chooses; then the same in two
/// address spaces. The speed of the first, divided by that of the second.
pub fn mmap_churn_one_vs_two_spaces() -> Result<Samples> {
    one_space_vs_two(Policy::default(), together)
}

/// The sum of the times of both threads.
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
