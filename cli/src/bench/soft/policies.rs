//! One policy against another, and threads in one mapping against threads in
//! address spaces of their own.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use faultless_mm::Policy;
use faultless_soft::{SoftCpu, SoftSpace};

use super::{BASE, PAGE, cpu_time, machine, map, space};
use crate::bench::Samples;

/// One thread maps, writes every page, unmaps: the CPU time that takes under
/// speculative divided by that under classic, pair by pair.
pub fn speculative_vs_classic_1t() -> Result<Samples> {
    const PAGES: u64 = 512;
    const ROUNDS: u32 = 40;
    let memory = machine(1, 64)?;
    let space = space(memory, Policy::Classic)?;
    let samples = SoftCpu::run(&space, 0, |cpu| {
        let time = |policy| -> Result<Duration> {
            space.set_policy(policy);
            let start = cpu_time();
            for _ in 0..ROUNDS {
                map(&space, BASE, PAGES * PAGE)?;
                touch(cpu, BASE, PAGES)?;
                space.munmap(BASE, PAGES * PAGE).context("cannot unmap")?;
            }
            Ok(cpu_time() - start)
        };
        time(Policy::Classic)?;
        (0..31u32)
            .map(|n| {
                // The two policies take turns in going first.
                let (classic, speculative) = if n % 2 == 0 {
                    let classic = time(Policy::Classic)?;
                    (classic, time(Policy::default())?)
                } else {
                    let speculative = time(Policy::default())?;
                    (time(Policy::Classic)?, speculative)
                };
                Ok(speculative.as_secs_f64() / classic.as_secs_f64())
            })
            .collect::<Result<Vec<f64>>>()
    })?;
    Samples::new(samples)
}

/// Under classic.
pub fn one_mapping_vs_two_spaces_classic() -> Result<Samples> {
    one_mapping_vs_two_spaces(Policy::Classic)
}

/// Under vma-lock.
pub fn one_mapping_vs_two_spaces_vma_lock() -> Result<Samples> {
    one_mapping_vs_two_spaces(Policy::VmaLock)
}

/// Under speculative.
pub fn one_mapping_vs_two_spaces_speculative() -> Result<Samples> {
    one_mapping_vs_two_spaces(Policy::default())
}

/// Pages that each thread touches in a round.
const PART: u64 = 1024;
const ROUNDS: usize = 30;

/// Two threads touch fresh pages, each its own part of one mapping; then the same in two address spaces. The
/// speed of the first, divided by that of the second.
fn one_mapping_vs_two_spaces(policy: Policy) -> Result<Samples> {
    one_space_vs_two(policy, together)
}

/// Runs two threads `together` in one address space and in two, by turns: the speed of the first, divided by
/// that of the second.
pub(super) fn one_space_vs_two(
    policy: Policy,
    together: fn([&SoftSpace; 2]) -> Result<Duration>,
) -> Result<Samples> {
    let memory = machine(2, 64)?;
    let shared = space(memory, policy)?;
    let apart = [space(memory, policy)?, space(memory, policy)?];
    let sample = |n: usize| -> Result<f64> {
        let one = || together([&shared, &shared]);
        let two = || together([&apart[0], &apart[1]]);
        let (one, two) = if n.is_multiple_of(2) {
            let one = one()?;
            (one, two()?)
        } else {
            let two = two()?;
            (one()?, two)
        };
        Ok(two.as_secs_f64() / one.as_secs_f64())
    };
    sample(0)?;
    Samples::new((0..31).map(sample).collect::<Result<_>>()?)
}

/// The sum of the times that both threads spend touching, over all rounds. Each thread has its own part in
/// either case; mapping and unmapping is not timed.
fn together(spaces: [&SoftSpace; 2]) -> Result<Duration> {
    let barrier = Barrier::new(2);
    let one_space = std::ptr::eq(spaces[0], spaces[1]);
    let thread = |cpu: u32| {
        let barrier = &barrier;
        let space = spaces[cpu as usize];
        move || {
            SoftCpu::run(space, cpu, |soft| -> Result<Duration> {
                let mut time = Duration::ZERO;
                let mine = BASE + u64::from(cpu) * PART * PAGE;
                for _ in 0..ROUNDS {
                    if !one_space {
                        map(space, mine, PART * PAGE)?;
                    } else if cpu == 0 {
                        map(space, BASE, 2 * PART * PAGE)?;
                    }
                    barrier.wait();
                    let start = Instant::now();
                    touch(soft, mine, PART)?;
                    time += start.elapsed();
                    barrier.wait();
                    if !one_space {
                        space.munmap(mine, PART * PAGE).context("cannot unmap")?;
                    } else if cpu == 0 {
                        space
                            .munmap(BASE, 2 * PART * PAGE)
                            .context("cannot unmap")?;
                    }
                    barrier.wait();
                }
                Ok(time)
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

fn touch(cpu: &SoftCpu<'_>, at: u64, pages: u64) -> Result<()> {
    let failed = (0..pages)
        .filter(|n| cpu.store(at + n * PAGE, 1).is_err())
        .count();
    ensure!(failed == 0, "{failed} stores failed");
    Ok(())
}
