//! What `munmap` delays: how long it holds its range, and how long operations on another CPU take meanwhile.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use faultless_mm::{Access, Outcome, Policy, advice, flags, remap_flags};
use faultless_soft::{SoftCpu, SoftMemory, SoftSpace};
use faultless_sync::atomic::Local;
use faultless_trace::{Counter, Kind, Latencies, Mask};

use super::{ANONYMOUS, BASE, PAGE, READ_WRITE, machine, map, space};
use crate::bench::Samples;

const MB: u64 = 1 << 20;
/// Bytes that are unmapped while another CPU works.
const LARGE: u64 = 400 * MB;
/// Where the other CPU works.
const ELSEWHERE: u64 = 0x20_0000_0000;
/// Where its heap begins.
const HEAP: u64 = 0x30_0000_0000;
const READ: u32 = 1;

/// 80 MB.
pub fn exclusive_80mb() -> Result<Samples> {
    exclusive(80 * MB, Policy::default(), false, 15)
}

/// 800 MB.
pub fn exclusive_800mb() -> Result<Samples> {
    exclusive(800 * MB, Policy::default(), false, 7)
}

/// 8 GB of the zero page.
pub fn exclusive_8gb() -> Result<Samples> {
    exclusive(8000 * MB, Policy::default(), false, 5)
}

/// 80 GB of the zero page.
pub fn exclusive_80gb() -> Result<Samples> {
    exclusive(80_000 * MB, Policy::default(), false, 9)
}

/// The same, the mmap lock being downgraded.
pub fn exclusive_80gb_downgraded() -> Result<Samples> {
    exclusive(80_000 * MB, Policy::Classic, false, 3)
}

/// The same, the mmap lock being held.
pub fn exclusive_80gb_held() -> Result<Samples> {
    exclusive(80_000 * MB, Policy::Classic, true, 3)
}

/// Microseconds for which a `munmap` excludes other writers from its range; under `classic`, for which it
/// holds the mmap lock exclusively. From a gigabyte on every page is the zero page: the machine has less
/// memory.
fn exclusive(bytes: u64, policy: Policy, held: bool, rounds: usize) -> Result<Samples> {
    let is_real = bytes < 1000 * MB;
    let megabytes = if is_real {
        bytes / MB * 9 / 7 + 64
    } else {
        512
    };
    let memory = machine(1, megabytes)?;
    let space = space(memory, policy)?;
    space.hold_zaps(held);
    let words = (0..Latencies::WORDS + 256).map(|_| Local::new(0));
    let words: &'static [Local] = words.collect::<Vec<_>>().leak();
    // Touched, so that the host takes no page fault on it during the measurement.
    words.iter().for_each(|word| word.set(0));
    let tracer = memory.cpus()[0].tracer();
    tracer.begin(words, Mask::NONE.with(Kind::Munmap).with(Kind::RangeHold));
    let samples = SoftCpu::run(&space, 0, |_| {
        (0..=rounds)
            .map(|_| {
                let flags = ANONYMOUS | flags::FIXED | flags::NORESERVE;
                let mapped = space.mmap(BASE, bytes, READ_WRITE, flags);
                mapped.context("the bench cannot map its memory")?;
                let populate = match is_real {
                    true => advice::POPULATE_WRITE,
                    false => advice::POPULATE_READ,
                };
                space
                    .madvise(BASE, bytes, populate)
                    .context("cannot touch")?;
                let [whole, hold] = traced_munmap(memory, &space, bytes)?;
                Ok((if held { whole } else { hold }) as f64 / 1000.0)
            })
            .collect::<Result<Vec<f64>>>()
    });
    tracer.end();
    Samples::new(samples?[1..].to_vec())
}

/// Unmaps, traced. Returns, in nanoseconds, how long that took, and for how long of it no other writer could
/// change the range or, in phases that take the edit lock, anything.
fn traced_munmap(memory: &'static SoftMemory, space: &SoftSpace, bytes: u64) -> Result<[u64; 2]> {
    space.munmap(BASE, bytes).context("cannot unmap")?;
    let (mut times, mut hold) = ([0; 2], 0);
    let ring = memory.cpus()[0].tracer().ring();
    ring.collect(0, |_, event| match event.kind {
        Kind::RangeHold => hold += event.duration(),
        _ => times = [event.duration(), core::mem::take(&mut hold)],
    });
    let [whole, hold] = times;
    ensure!(whole >= hold && hold > 0, "the tracer saw no munmap");
    Ok(times)
}

/// The number of operations of another CPU, on ranges of its own, that waited during a `munmap`.
pub fn disjoint_waits() -> Result<Samples> {
    let memory = machine(2, LARGE / MB * 9 / 7 + 64)?;
    let space = space(memory, Policy::default())?;
    space.set_brk(HEAP);
    let samples = (0..5).map(|_| {
        let counters = memory.cpus()[1].counters();
        let before = counters.get(Counter::RangeWaits);
        let done = beside(&space, &space, |cpu| {
            mmap_and_munmap(cpu)?;
            mprotect(cpu)?;
            mlock(cpu)?;
            mremap(cpu)?;
            brk(cpu)?;
            fault(cpu)
        })?;
        ensure!(!done.is_empty(), "the munmap was over too soon");
        Ok((counters.get(Counter::RangeWaits) - before) as f64)
    });
    Samples::new(samples.collect::<Result<_>>()?)
}

/// `mmap` and `munmap`.
pub fn stall_p99_mmap() -> Result<Samples> {
    stall_p99(mmap_and_munmap)
}

/// A change of protection, there and back.
pub fn stall_p99_mprotect() -> Result<Samples> {
    stall_p99(mprotect)
}

/// A fault, and the discarding of its page.
pub fn stall_p99_fault() -> Result<Samples> {
    stall_p99(fault)
}

/// A fork, and the end of the child.
pub fn stall_p99_fork() -> Result<Samples> {
    stall_p99(|cpu| {
        let child = cpu.space().fork().context("cannot fork")?;
        child.destroy();
        Ok(())
    })
}

fn mmap_and_munmap(cpu: &SoftCpu<'_>) -> Result<()> {
    let at = cpu.space().mmap(0, 16 * PAGE, READ_WRITE, ANONYMOUS)?;
    Ok(cpu.space().munmap(at, 16 * PAGE)?)
}

fn mlock(cpu: &SoftCpu<'_>) -> Result<()> {
    cpu.space().mlock(ELSEWHERE, PAGE, 0)?;
    Ok(cpu.space().munlock(ELSEWHERE, PAGE)?)
}

/// A mapping that shrinks, then grows and may move.
fn mremap(cpu: &SoftCpu<'_>) -> Result<()> {
    let (space, how) = (cpu.space(), remap_flags::MAYMOVE);
    let at = space.mmap(0, 16 * PAGE, READ_WRITE, ANONYMOUS)?;
    space.mremap(at, 16 * PAGE, 8 * PAGE, how, 0)?;
    let at = space.mremap(at, 8 * PAGE, 32 * PAGE, how, 0)?;
    Ok(space.munmap(at, 32 * PAGE)?)
}

/// Grows the heap by a page, and shrinks it again.
fn brk(cpu: &SoftCpu<'_>) -> Result<()> {
    for end in [HEAP + PAGE, HEAP] {
        ensure!(cpu.space().brk(end) == end, "no heap");
    }
    Ok(())
}

fn mprotect(cpu: &SoftCpu<'_>) -> Result<()> {
    for prot in [READ, READ_WRITE] {
        cpu.space().mprotect(ELSEWHERE, PAGE, prot)?;
    }
    Ok(())
}

fn fault(cpu: &SoftCpu<'_>) -> Result<()> {
    let at = ELSEWHERE + PAGE;
    ensure!(cpu.space().fault(at, Access::Write) == Outcome::Resolved);
    Ok(cpu.space().madvise(at, PAGE, advice::DONTNEED)?)
}

/// The 99th percentile of the time of `act` while another CPU unmaps 400 MB of the space that both run. It is
/// divided by the percentile while that CPU unmaps as much of a space that no CPU runs.
fn stall_p99(act: fn(&SoftCpu<'_>) -> Result<()>) -> Result<Samples> {
    let memory = machine(2, LARGE / MB * 9 / 7 + 64)?;
    let (own, other) = (
        space(memory, Policy::default())?,
        space(memory, Policy::default())?,
    );
    let p99 = |space: &SoftSpace| -> Result<f64> {
        // Several unmappings for one percentile: each lasts for some hundred operations.
        let mut times = Vec::new();
        for _ in 0..4 {
            times.extend(beside(space, &own, act)?);
        }
        Ok(Samples::new(times)?.percentile(99.0))
    };
    let sample = |n: usize| -> Result<f64> {
        let (idle, busy) = if n.is_multiple_of(2) {
            let idle = p99(&other)?;
            (idle, p99(&own)?)
        } else {
            let busy = p99(&own)?;
            (p99(&other)?, busy)
        };
        Ok(busy / idle)
    };
    sample(0)?;
    Samples::new((0..9).map(sample).collect::<Result<_>>()?)
}

/// Repeats `act` on CPU 1 in `space` while CPU 0, which also runs `space`, unmaps a large range of
/// `unmapped`. Returns how long each `act` took, in nanoseconds.
fn beside(
    unmapped: &SoftSpace,
    space: &SoftSpace,
    act: impl Fn(&SoftCpu<'_>) -> Result<()> + Sync,
) -> Result<Vec<f64>> {
    let (barrier, over) = (Barrier::new(2), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let acting = scope.spawn(|| {
            SoftCpu::run(space, 1, |cpu| -> Result<Vec<f64>> {
                let fixed = ANONYMOUS | flags::FIXED | flags::POPULATE;
                let mapped = space.mmap(ELSEWHERE, 2 * PAGE, READ_WRITE, fixed);
                cpu.pause(|| barrier.wait());
                mapped?;
                let mut times = Vec::new();
                while !over.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    act(cpu)?;
                    times.push(start.elapsed().as_nanos() as f64);
                }
                Ok(times)
            })
        });
        // CPU 0 runs `space` in either case, so that the flushes of CPU 1 include it.
        let result = SoftCpu::run(space, 0, |cpu| -> Result<()> {
            let mapped = map(unmapped, BASE, LARGE);
            let touched = unmapped.madvise(BASE, LARGE, advice::POPULATE_WRITE);
            cpu.pause(|| barrier.wait());
            let result = unmapped.munmap(BASE, LARGE);
            over.store(true, Ordering::Relaxed);
            mapped?;
            touched?;
            Ok(result?)
        });
        let times = acting.join();
        result?;
        times.map_err(|_| anyhow::anyhow!("a thread of the bench died"))?
    })
}
