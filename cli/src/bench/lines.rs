//! Measures which cache lines two faults both write (recording builds only).
//!
//! Two CPUs fault on pages of one fresh mapping, the first fault of each and of the mapping included. Every
//! write of the core goes through the atomics facade, which records the line; a page's content is the fault's
//! own frame. Work done once per batch (refilling a CPU's frames) is marked in the code and counted
//! separately. Tables are in place: a table serves 512 pages.

use std::collections::BTreeMap;
use std::sync::Barrier;

use anyhow::{Result, ensure};
use faultless_mm::{Access, Outcome, PAGE_SIZE, Policy, SlotCache, advice, flags};
use faultless_soft::{Options, Soft, SoftCpu, SoftSpace};
use faultless_swap::{Compressed, Scratch};
use faultless_sync::record::{self, Writes};

use super::Samples;

const BASE: u64 = 0x10_0000_0000;
const PAGES: u64 = 512;
/// Faults that each CPU takes, and how far apart its pages are.
const FAULTS: u64 = 192;
/// Entries that share a line with a page's own entry.
const NEIGHBOURS: u64 = 8;
/// Slots of a cluster.
const CLUSTER: u64 = 256;

/// The lines that one fault, or one round, wrote.
struct Fault {
    page: u64,
    lines: BTreeMap<usize, Writes>,
}

/// Counts the lines that both faults of a pair wrote, for every pair on different CPUs more than 8 pages
/// apart. Takes the worst pair, for direct writes; or the mean, for batched work.
pub fn take(amortised: bool) -> Result<Samples> {
    let options = Options {
        cpus: 2,
        memory: 64 << 20,
        ..Options::default()
    };
    let memory = Soft::start(options)?;
    let space = SoftCpu::attend(memory, 0, || Soft::space(memory, Policy::default()))?;
    SoftCpu::run(&space, 0, |_| -> Result<()> {
        // A fault on an earlier mapping installs the table.
        let flags = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
        space.mmap(BASE, PAGES * PAGE_SIZE, 3, flags)?;
        ensure!(
            space.fault(BASE, Access::Write) == Outcome::Resolved,
            "a fault failed"
        );
        // A new mapping in its place: the faults below are its first.
        space.mmap(BASE, PAGES * PAGE_SIZE, 3, flags)?;
        Ok(())
    })?;
    // One after the other, so that the lines that a fault writes do not depend on timing.
    let first = SoftCpu::run(&space, 0, |_| faults(&space, 0))?;
    let second = std::thread::scope(|scope| {
        scope
            .spawn(|| SoftCpu::run(&space, 1, |_| faults(&space, PAGES / 2 + NEIGHBOURS)))
            .join()
            .map_err(|_| anyhow::anyhow!("a thread of the bench died"))?
    })?;
    compare(&first, &second, amortised)
}

/// Counts the lines that both faults of a pair wrote, for pairs more than 8 pages apart.
fn compare(first: &[Fault], second: &[Fault], amortised: bool) -> Result<Samples> {
    let mut worst = 0;
    let (mut shared, mut pairs) = (0, 0);
    for a in first {
        for b in second
            .iter()
            .filter(|b| a.page.abs_diff(b.page) > NEIGHBOURS)
        {
            let (direct, batched) = common(a, b);
            worst = worst.max(direct);
            shared += batched;
            pairs += 1;
        }
    }
    ensure!(pairs > 0, "no pair of faults was far enough apart");
    Samples::new(vec![if amortised {
        shared as f64 / pairs as f64
    } else {
        worst as f64
    }])
}

/// The same for two swap-ins, with slots from different clusters. One CPU has paged all pages out, as the thread does
/// that reclaims in the background; nothing owns the clusters any more. The device is compressed memory;
/// all pages are of one size class.
pub fn take_swap_ins(amortised: bool) -> Result<Samples> {
    let options = Options {
        cpus: 2,
        memory: 64 << 20,
        ..Options::default()
    };
    let memory = Soft::start(options)?;
    let space = SoftCpu::attend(memory, 0, || Soft::space(memory, Policy::default()))?;
    let caches: Vec<_> = (0..2).map(|_| SlotCache::default()).collect();
    let scratch: Vec<_> = (0..2).map(|_| Scratch::default()).collect();
    let size = 3 * CLUSTER * PAGE_SIZE;
    SoftCpu::run(&space, 0, |cpu| -> Result<()> {
        let device = Compressed::new(memory.machine(), scratch.leak(), 4096)?;
        memory.swap_on(Box::leak(Box::new(device)), caches.leak(), None)?;
        let flags = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
        space.mmap(BASE, size, 3, flags)?;
        for page in 0..3 * CLUSTER {
            let stored = cpu.store(BASE + page * PAGE_SIZE, page + 1);
            ensure!(stored.is_ok(), "a store failed");
        }
        space.madvise(BASE, size, advice::PAGEOUT)?;
        let used = memory.swap_usage().1;
        ensure!(used == 3 * CLUSTER, "only {used} pages were paged out");
        Ok(())
    })?;
    // Slots are allocated in order, so that the pages of each CPU are a cluster.
    let first = SoftCpu::run(&space, 0, |_| faults(&space, 0))?;
    let second = std::thread::scope(|scope| {
        scope
            .spawn(|| SoftCpu::run(&space, 1, |_| faults(&space, CLUSTER)))
            .join()
            .map_err(|_| anyhow::anyhow!("a thread of the bench died"))?
    })?;
    compare(&first, &second, amortised)
}

/// Lines that both wrote: both as part of every fault, or at least one of them as part of a batch.
fn common(a: &Fault, b: &Fault) -> (usize, usize) {
    let both = a
        .lines
        .iter()
        .filter_map(|(line, writes)| Some((writes, b.lines.get(line)?)));
    both.fold((0, 0), |(direct, batched), (a, b)| {
        if a.direct > 0 && b.direct > 0 {
            (direct + 1, batched)
        } else {
            (direct, batched + 1)
        }
    })
}

/// Counts the lines that two CPUs both write while each maps memory at an address that the space chooses,
/// touches it and unmaps it. Takes the worst pair of rounds. The space has shards, as after contention.
///
/// The CPUs take turns, so that the lines that a round writes do not depend on timing. Only successive rounds
/// are a pair: memory that one CPU freed long ago may belong to the other by now.
pub fn take_mappings() -> Result<Samples> {
    let options = Options {
        cpus: 2,
        memory: 64 << 20,
        ..Options::default()
    };
    let memory = Soft::start(options)?;
    let space = SoftCpu::attend(memory, 0, || Soft::space(memory, Policy::default()))?;
    SoftCpu::attend(memory, 0, || {
        ensure!(space.shard(), "there is no room for shards");
        Ok(())
    })?;
    let barrier = Barrier::new(2);
    let cpu = |number| SoftCpu::run(&space, number, |cpu| mappings(cpu, number, &barrier));
    let (first, second) = std::thread::scope(|scope| {
        let second = scope.spawn(|| cpu(1));
        (cpu(0), second.join())
    });
    let second = second.map_err(|_| anyhow::anyhow!("a thread of the bench died"))??;
    let pairs = first?.into_iter().zip(second).map(|(a, b)| common(&a, &b));
    let worst = pairs.map(|(direct, _)| direct).max().unwrap_or(0);
    Samples::new(vec![worst as f64])
}

fn mappings(cpu: &SoftCpu<'_>, number: u32, barrier: &Barrier) -> Result<Vec<Fault>> {
    let space = cpu.space();
    let round = || {
        let at = space.mmap(0, PAGE_SIZE, 3, flags::PRIVATE | flags::ANONYMOUS)?;
        let outcome = space.fault(at, Access::Write);
        debug_assert_eq!(outcome, Outcome::Resolved);
        space.munmap(at, PAGE_SIZE)
    };
    // The first round installs the table.
    let mut result = round();
    let mut rounds = Vec::new();
    for page in 0..FAULTS {
        for turn in 0..2 {
            if turn == number && result.is_ok() {
                let lines = record::lines(|| result = round());
                rounds.push(Fault { page, lines });
            }
            cpu.pause(|| barrier.wait());
        }
    }
    result?;
    ensure!(
        rounds.iter().all(|round| !round.lines.is_empty()),
        "a round wrote nothing: the recorder is off"
    );
    Ok(rounds)
}

fn faults(space: &SoftSpace, from: u64) -> Result<Vec<Fault>> {
    (from..from + FAULTS)
        .map(|page| {
            let mut outcome = Outcome::OutOfMemory;
            let address = BASE + page * PAGE_SIZE;
            let lines = record::lines(|| outcome = space.fault(address, Access::Write));
            ensure!(outcome == Outcome::Resolved, "a fault failed");
            ensure!(
                !lines.is_empty(),
                "a fault wrote nothing: the recorder is off"
            );
            Ok(Fault { page, lines })
        })
        .collect()
}
