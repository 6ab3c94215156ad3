//! Many CPUs at once, on overlapping ranges, with the verifier at barriers.
//!
//! TLB hits are checked against the tables all the while. Each CPU has words of
//! its own in an area that is never unmapped, where its last store must be found
//! again; everything else only has to keep the invariants.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use faultless_mm::{AgingMode, Counter, Layout, OwnedSpace, Policy, advice, flags, remap_flags};
use faultless_soft::{SoftCpu, SoftSpace, Trap};
use faultless_tests::random::{Numbers, seed};
use faultless_tests::{Budget, available, budget, machine, on_every_cpu};

const PAGE: u64 = 4096;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS;
/// The centre of the range that all CPUs map and unmap: a boundary of tables and of slots.
const CENTRE: u64 = 1 << 36;
const HALF: u64 = 600;
const CPUS: usize = 4;

/// What the CPUs of a run share beside the machine.
struct Run {
    barrier: Barrier,
    /// The never unmapped area: each page has a word for each CPU.
    arena: u64,
    arena_pages: u64,
    accesses: AtomicU64,
    out_of_memory: AtomicU64,
}

fn range(numbers: &mut Numbers) -> (u64, u64) {
    let pages = match numbers.below(8) {
        0 => 1 + numbers.below(HALF),
        _ => 1 + numbers.below(12),
    };
    let first = match numbers.below(3) {
        0 => HALF - 8 + numbers.below(16),
        _ => numbers.below(2 * HALF - pages),
    };
    let first = first.min(2 * HALF - pages);
    (CENTRE - HALF * PAGE + first * PAGE, pages * PAGE)
}

fn note(run: &Run, result: Result<(), Trap>) {
    run.accesses.fetch_add(1, Ordering::Relaxed);
    match result {
        Ok(()) | Err(Trap::Segv { .. }) => {}
        Err(Trap::Bus { address } | Trap::Poisoned { address }) => {
            panic!("SIGBUS at {address:#x} without a file")
        }
        Err(Trap::OutOfMemory) => {
            run.out_of_memory.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Performs one random operation on the shared range. Errors are legal; panics are not.
fn act(cpu: &SoftCpu<'_>, run: &Run, numbers: &mut Numbers, switch: bool) {
    let space = cpu.space();
    let (at, length) = range(numbers);
    let prot = [RW, RW, RW, 1, 0, 5][numbers.below(6) as usize];
    let fixed = ANON | flags::FIXED;
    match numbers.below(45) {
        0..=2 => drop(space.mmap(at, length, prot, fixed)),
        3 => drop(space.mmap(at, length, RW, fixed | flags::POPULATE)),
        4 => drop(space.mmap(at, length, prot, ANON | flags::FIXED_NOREPLACE)),
        5 => drop(space.mmap(at, length, RW, ANON)),
        6 => drop(space.mmap(at, length.min(4 * PAGE), RW, fixed | flags::GROWSDOWN)),
        7..=8 => drop(space.munmap(at, length)),
        9..=11 => drop(space.mprotect(at, length, prot)),
        12..=13 => drop(space.madvise(at, length, advice::DONTNEED)),
        14 => drop(space.madvise(at, length, advice::POPULATE_WRITE)),
        15 => drop(space.madvise(at, length, advice::POPULATE_READ)),
        17 => drop(space.madvise(at, length, advice::FREE)),
        18 => drop(space.madvise(at, length.min(8 * PAGE), advice::GUARD_INSTALL)),
        19 => drop(space.madvise(at, length, advice::GUARD_REMOVE)),
        20 => drop(space.take_lazyfree()),
        21 => space.clear_soft_dirty(),
        22 => space.clear_accessed(AgingMode::All),
        23 => drop(space.usage(at..at + length)),
        24 => drop(space.page_state(at)),
        40 => {
            let how = remap_flags::MAYMOVE | remap_flags::FIXED;
            let to = range(numbers).0;
            let _ = space.mremap(at, length, length, how, to);
        }
        41 => {
            let more = length + 8 * PAGE;
            let _ = space.mremap(at, length, more, remap_flags::MAYMOVE, 0);
        }
        42 => drop(space.mlock(at, length.min(8 * PAGE), 0)),
        43 => drop(space.munlock(at, length)),
        // Large and small, at random addresses.
        44 => {
            if let Ok(new) = space.mmap(0, length, RW, ANON) {
                note(run, cpu.store(new, 1));
                let _ = space.munmap(new, length);
            }
        }
        39 => drop(space.shard_around(at)),
        16 if switch => {
            space.set_policy(Policy::ALL[numbers.below(Policy::ALL.len() as u64) as usize]);
        }
        _ => {
            for _ in 0..8 {
                let word = CENTRE - HALF * PAGE + numbers.below(2 * HALF * 512) * 8;
                note(
                    run,
                    match numbers.below(4) {
                        0 => cpu.load(word).map(drop),
                        1 => cpu.execute(word),
                        2 => cpu.fetch_add(word, 1).map(drop),
                        _ => cpu.store(word, numbers.draw()),
                    },
                );
            }
        }
    }
}

/// Own words: what this CPU stored last, if the store succeeded.
struct Own {
    values: Vec<u64>,
}

impl Own {
    fn check(&mut self, cpu: &SoftCpu<'_>, run: &Run, numbers: &mut Numbers) {
        for _ in 0..4 {
            let page = numbers.below(run.arena_pages);
            let at = run.arena + page * PAGE + u64::from(cpu.number()) * 8;
            let expected = &mut self.values[page as usize];
            match cpu.load(at) {
                Ok(value) => assert_eq!(value, *expected, "CPU {} at {at:#x}", cpu.number()),
                Err(Trap::OutOfMemory) => note(run, Err(Trap::OutOfMemory)),
                Err(trap) => panic!("{trap:?} in the arena"),
            }
            let value = numbers.draw();
            let stored = cpu.store(at, value);
            if stored.is_ok() {
                *expected = value;
            }
            assert!(
                !matches!(stored, Err(Trap::Segv { .. })),
                "{stored:?} in the arena"
            );
            note(run, stored);
        }
    }
}

/// The machine of a run, and its operations.
struct Plan {
    megabytes: u64,
    arena_pages: u64,
    policy: Policy,
    switch: bool,
    /// Whether all CPUs map and unmap in two shards, and across their boundary.
    in_shards: bool,
    epochs: Budget,
    steps: u64,
}

fn stress(plan: &Plan) -> (u64, u64) {
    let memory = machine(CPUS, plan.megabytes);
    let before = available(memory);
    let mmap_base = match plan.in_shards {
        true => CENTRE + (1 << 30),
        false => Layout::LINUX_X86_64.mmap_base,
    };
    let layout = Layout {
        mmap_base,
        ..Layout::LINUX_X86_64
    };
    let space = SoftCpu::attend(memory, 0, || {
        let space = OwnedSpace::new(memory, plan.policy, layout);
        let space = space.unwrap_or_else(|e| panic!("{e}"));
        assert!(!plan.in_shards || space.shard());
        space
    });
    let arena = SoftCpu::run(&space, 0, |cpu| {
        cpu.space()
            .mmap(0, plan.arena_pages * PAGE, RW, ANON | flags::NORESERVE)
    })
    .unwrap_or_else(|e| panic!("no arena: {e}"));
    let run = Run {
        barrier: Barrier::new(CPUS),
        arena,
        arena_pages: plan.arena_pages,
        accesses: AtomicU64::new(0),
        out_of_memory: AtomicU64::new(0),
    };
    let seed = seed();
    let goes_on = AtomicBool::new(plan.epochs.goes_on(0));
    on_every_cpu(&space, |cpu| {
        let mut numbers = Numbers(seed ^ (u64::from(cpu.number()) << 56));
        let mut own = Own {
            values: vec![0; plan.arena_pages as usize],
        };
        let mut epoch = 0;
        while goes_on.load(Ordering::Relaxed) {
            epoch += 1;
            for _ in 0..plan.steps {
                act(cpu, &run, &mut numbers, plan.switch);
                own.check(cpu, &run, &mut numbers);
            }
            if run.barrier.wait().is_leader() {
                cpu.space()
                    .verify()
                    .unwrap_or_else(|violation| panic!("{violation}"));
                goes_on.store(plan.epochs.goes_on(epoch), Ordering::Relaxed);
            }
            run.barrier.wait();
        }
    });
    recover(&space, arena, plan);
    let faults = memory.total(Counter::Faults);
    assert!(
        faults > plan.epochs.done() * plan.steps / 4,
        "{faults} faults"
    );
    faultless_tests::verify_and_destroy(space, before);
    (faults, run.out_of_memory.into_inner())
}

/// Unmaps everything and asserts that the machine works as at its start.
fn recover(space: &SoftSpace, arena: u64, plan: &Plan) {
    SoftCpu::run(space, 0, |cpu| {
        let space = cpu.space();
        // First unmaps that need no split: all free frames may be in other CPUs' caches.
        for (at, pages) in [(arena, plan.arena_pages), (CENTRE - HALF * PAGE, 2 * HALF)] {
            space
                .munmap(at, pages * PAGE)
                .unwrap_or_else(|e| panic!("{pages} pages at {at:#x}: {e}"));
        }
        let at = space
            .mmap(0, 64 * PAGE, RW, ANON)
            .unwrap_or_else(|e| panic!("{e}"));
        for page in 0..64 {
            assert_eq!(cpu.store(at + page * PAGE, page), Ok(()));
        }
    });
}

#[test]
fn every_policy() {
    for &policy in Policy::ALL {
        stress(&Plan {
            megabytes: 64,
            arena_pages: 700,
            policy,
            switch: false,
            in_shards: false,
            epochs: budget(12),
            steps: 400,
        });
    }
}

#[test]
fn policies_that_change() {
    stress(&Plan {
        megabytes: 64,
        arena_pages: 700,
        policy: Policy::default(),
        switch: true,
        in_shards: false,
        epochs: budget(30),
        steps: 400,
    });
}

#[test]
fn in_shards_and_beside() {
    for switch in [false, true] {
        stress(&Plan {
            megabytes: 64,
            arena_pages: 700,
            policy: Policy::Speculative,
            switch,
            in_shards: true,
            epochs: budget(20),
            steps: 400,
        });
    }
}

#[test]
fn memory_runs_out_in_shards() {
    let (_, out_of_memory) = stress(&Plan {
        megabytes: 2,
        arena_pages: 300,
        policy: Policy::Speculative,
        switch: false,
        in_shards: true,
        epochs: budget(12),
        steps: 300,
    });
    assert!(out_of_memory > 0, "memory was never short");
}

#[test]
fn memory_runs_out() {
    for &policy in Policy::ALL {
        let (_, out_of_memory) = stress(&Plan {
            megabytes: 2,
            arena_pages: 300,
            policy,
            switch: false,
            in_shards: false,
            epochs: budget(12),
            steps: 300,
        });
        assert!(out_of_memory > 0, "memory was never short");
    }
}
