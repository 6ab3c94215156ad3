//! Whether writers and faults of one address space scale: a thread on each CPU, against one thread.

use std::sync::Barrier;
use std::thread;
use std::time::Instant;

use anyhow::{Result, anyhow};
use faultless_mm::Policy;
use faultless_soft::{SoftCpu, SoftSpace};

use super::{ANONYMOUS, PAGE, READ_WRITE, machine, space};
use crate::bench::Samples;

/// The most threads.
const MOST: usize = 16;
/// Pages of each mapping.
const PART: u64 = 16;
const ROUNDS: u32 = 2000;

/// Under classic.
pub fn churn_all_cpus_classic() -> Result<Samples> {
    churn_all_cpus(Policy::Classic)
}

/// Under vma-lock.
pub fn churn_all_cpus_vma_lock() -> Result<Samples> {
    churn_all_cpus(Policy::VmaLock)
}

/// Under speculative.
pub fn churn_all_cpus_speculative() -> Result<Samples> {
    churn_all_cpus(Policy::default())
}

/// A thread on each CPU of the host maps, touches and unmaps 16 pages in one address space: their speed together,
/// divided by that of one.
fn churn_all_cpus(policy: Policy) -> Result<Samples> {
    let cpus = thread::available_parallelism()
        .map_or(1, usize::from)
        .min(MOST);
    let memory = machine(cpus, 256)?;
    let space = space(memory, policy)?;
    let sample = |_| Ok(speed(&space, cpus)? / speed(&space, 1)?);
    sample(0)?;
    Samples::new((0..11).map(sample).collect::<Result<_>>()?)
}

/// Mappings a second, of so many threads together.
fn speed(space: &SoftSpace, threads: usize) -> Result<f64> {
    let barrier = Barrier::new(threads);
    let work = |number: usize| {
        SoftCpu::run(space, number as u32, |cpu| -> Result<f64> {
            cpu.pause(|| barrier.wait());
            let start = Instant::now();
            for _ in 0..ROUNDS {
                let at = space.mmap(0, PART * PAGE, READ_WRITE, ANONYMOUS)?;
                for page in 0..PART {
                    let stored = cpu.store(at + page * PAGE, 1);
                    stored.map_err(|trap| anyhow!("a store failed: {trap:?}"))?;
                }
                space.munmap(at, PART * PAGE)?;
            }
            Ok(f64::from(ROUNDS) / start.elapsed().as_secs_f64())
        })
    };
    thread::scope(|scope| {
        let work = &work;
        let others: Vec<_> = (1..threads)
            .map(|number| scope.spawn(move || work(number)))
            .collect();
        let mut sum = work(0)?;
        for other in others {
            sum += other
                .join()
                .map_err(|_| anyhow!("a thread of the bench died"))??;
        }
        Ok(sum)
    })
}
