//! Shards of CPUs: parts of an address space with locks of their own, one for the writers of each CPU. They
//! change nothing visible to a program but the addresses that are chosen for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use faultless_mm::{Counter, Errno, Layout, Limits, Policy, flags, remap_flags};
use faultless_soft::{Soft, SoftCpu, SoftMemory, SoftSpace};
use faultless_tests::operations::{SEALED, forking, limited, near, remapping};
use faultless_tests::random::cases;
use faultless_tests::script::Op;
use faultless_tests::soft::run_prepared;
use faultless_tests::{available, budget, machine, on_every_cpu, space, verify_and_destroy};
use proptest::prelude::*;

const PAGE: u64 = 4096;
const GIB: u64 = 1 << 30;
const HUGE: u64 = 2 << 20;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS;
const FIXED: u32 = ANON | flags::FIXED;
/// The middle of the scripts' window: a boundary of two shards, if addresses are chosen from the
/// end of the one above.
const CENTRE: u64 = (SEALED.start + SEALED.end) / 2;

/// A layout in which the first shards are on both sides of the middle of the scripts' window.
fn around() -> Layout {
    Layout {
        mmap_base: CENTRE + GIB,
        ..Layout::LINUX_X86_64
    }
}

/// The shards that exist, and the mappings, before a script starts.
#[derive(Clone, Copy)]
enum Prepared {
    /// Nothing is mapped; whether two shards exist.
    OfCpus(bool),
    /// All is mapped; whether a shard exists around the upper half, and another around the lower.
    Around([bool; 2]),
}

impl Prepared {
    fn prepare(self, space: &SoftSpace) {
        match self {
            Self::OfCpus(spread) => assert!(!spread || space.shard()),
            Self::Around(halves) => {
                // In pieces that do not end at slot boundaries.
                let (start, length) = (SEALED.start - 5 * PAGE, 90 * PAGE);
                for (at, prot) in (start..SEALED.end)
                    .step_by(length as usize)
                    .zip([1, 3].repeat(99))
                {
                    space.mmap(at, length, prot, FIXED).unwrap();
                }
                for (half, at) in halves.into_iter().zip([CENTRE, CENTRE - PAGE]) {
                    assert!(!half || space.shard_around(at));
                }
            }
        }
    }
}

fn lines(
    memory: &'static SoftMemory,
    prepared: Prepared,
    limits: &Limits,
    script: &[Op],
) -> Vec<String> {
    let prepare = |space: &SoftSpace| {
        prepared.prepare(space);
        space.set_brk(1 << 32);
        space.set_limits(limits);
    };
    let policy = Policy::Speculative;
    let (lines, sound) = run_prepared(memory, policy, around(), &prepare, &SEALED, script);
    sound.unwrap_or_else(|why| panic!("{why}"));
    lines
}

/// Asserts that scripts give the same results with shards as without.
fn same(least: u64, limits: &Limits, ops: impl Strategy<Value = Op>) {
    same_as([true, false].map(Prepared::OfCpus), least, limits, ops);
}

fn same_as(
    [one, other]: [Prepared; 2],
    least: u64,
    limits: &Limits,
    ops: impl Strategy<Value = Op>,
) {
    let memory = machine(4, 64);
    let scripts = prop::collection::vec(ops, 1..60);
    let result = cases(least, &scripts, |script| {
        let without = lines(memory, other, limits, &script);
        prop_assert_eq!(lines(memory, one, limits, &script), without);
        Ok(())
    });
    if let Err((seed, failure)) = result {
        panic!("FAULTLESS_SEED={seed}: {failure}");
    }
}

#[test]
fn programs_see_the_same_in_shards_around_them() {
    let without = Prepared::Around([false; 2]);
    for halves in [[true, false], [false, true], [true; 2]] {
        let with = Prepared::Around(halves);
        same_as([with, without], 60, &Limits::NONE, near());
        let ops = remapping().prop_map(to_a_fixed_place);
        same_as([with, without], 60, &Limits::NONE, ops);
        let ops = limited().prop_map(to_a_fixed_place);
        same_as([with, without], 60, &Limits::LINUX, ops);
        same_as([with, without], 30, &Limits::NONE, forking());
    }
}

#[test]
fn programs_see_the_same() {
    same(200, &Limits::NONE, near());
}

/// Replaces a move to a chosen address by one to an address in the shard.
fn to_a_fixed_place(op: Op) -> Op {
    match op {
        Op::Mremap { flags, .. } if flags & remap_flags::FIXED != 0 => op,
        Op::Mremap {
            address,
            old_length,
            length,
            to,
            ..
        } => Op::Mremap {
            address,
            old_length,
            length,
            flags: 0,
            to,
        },
        op => op,
    }
}

#[test]
fn programs_that_move_memory_see_the_same() {
    let ops = remapping().prop_map(to_a_fixed_place);
    same(200, &Limits::NONE, ops);
}

#[test]
fn programs_with_limits_see_the_same() {
    let ops = limited().prop_map(to_a_fixed_place);
    same(200, &Limits::LINUX, ops);
}

#[test]
fn programs_with_few_mappings_see_the_same() {
    let limits = Limits {
        mappings: 12,
        ..Limits::LINUX
    };
    same(200, &limits, near());
}

#[test]
fn programs_that_fork_see_the_same() {
    same(100, &Limits::NONE, forking());
}

/// Maps pages anywhere.
fn map(space: &SoftSpace, pages: u64) -> u64 {
    let at = space.mmap(0, pages * PAGE, RW, ANON);
    at.unwrap_or_else(|errno| panic!("{errno:?}"))
}

/// One thread that maps, beside others that only fault, keeps getting Linux's addresses.
#[test]
fn one_thread_gets_the_highest_addresses() {
    let (memory, space) = space(2, 64, Policy::Speculative);
    let before = available(memory);
    let done = AtomicBool::new(false);
    let at = SoftCpu::attend(memory, 0, || map(&space, 64));
    assert_eq!(at, Layout::LINUX_X86_64.mmap_base - 64 * PAGE);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            SoftCpu::run(&space, 1, |cpu| {
                while !done.load(Ordering::Relaxed) {
                    (0..64).for_each(|page| cpu.store(at + page * PAGE, 1).unwrap());
                    space
                        .madvise(at, 64 * PAGE, faultless_mm::advice::DONTNEED)
                        .unwrap();
                }
            });
        });
        SoftCpu::run(&space, 0, |_| {
            for _ in 0..2000 {
                let new = map(&space, 2);
                assert_eq!(new, at - 2 * PAGE);
                space.munmap(new, 2 * PAGE).unwrap();
            }
        });
        done.store(true, Ordering::Relaxed);
    });
    SoftCpu::attend(memory, 0, || space.munmap(at, 64 * PAGE)).unwrap();
    assert_eq!(available(memory), before);
}

/// Each CPU's addresses are in a gibibyte of its own, adjacent to each other.
#[test]
fn each_cpu_has_its_own() {
    let (memory, space) = space(2, 64, Policy::Speculative);
    let of = |number: u32| {
        SoftCpu::run(&space, number, |cpu| {
            let at = map(&space, 3);
            let next = map(&space, 5);
            assert_eq!(next + 5 * PAGE, at, "one mapping, as by Linux");
            cpu.store(next, 1).unwrap();
            cpu.store(at, 2).unwrap();
            at
        })
    };
    SoftCpu::attend(memory, 0, || assert!(space.shard()));
    let first = [of(0), of(1)];
    assert_ne!(first[0] / GIB, first[1] / GIB);
    let again = [of(0), of(1)];
    assert_eq!(
        [0, 1].map(|n| first[n] / GIB),
        [0, 1].map(|n| again[n] / GIB)
    );
    SoftCpu::attend(memory, 0, || {
        assert_eq!(space.totals().mapped, 32);
        assert_eq!(space.totals().mappings, 2);
        assert!(!space.shard(), "more than there are CPUs");
        space.verify().unwrap();
        // A mapping at a fixed address or a free hint is placed there.
        let fixed = first[0] - 64 * PAGE;
        assert_eq!(space.mmap(fixed, PAGE, RW, FIXED), Ok(fixed));
        assert_eq!(space.mmap(fixed - PAGE, PAGE, RW, ANON), Ok(fixed - PAGE));
        // A large mapping is placed where Linux places it.
        let large = space.mmap(0, GIB / 2, 0, ANON | flags::NORESERVE).unwrap();
        assert_eq!(
            large,
            (Layout::LINUX_X86_64.mmap_base - GIB / 2) & !(HUGE - 1)
        );
    });
}

/// With shards as much can be mapped as without: in pieces, and in one mapping once all is unmapped.
#[test]
fn all_room_can_be_had() {
    let memory = machine(4, 64);
    let layout = Layout {
        end: 9 * GIB,
        mmap_base: 9 * GIB,
        ..Layout::LINUX_X86_64
    };
    let piece = 60 << 20;
    let pieces = |spread: bool| {
        let before = available(memory);
        let space = SoftCpu::attend(memory, 0, || {
            let space = faultless_mm::OwnedSpace::new(memory, Policy::Speculative, layout);
            let space: SoftSpace = space.expect("memory suffices");
            assert!(!spread || space.shard());
            space
        });
        let count = SoftCpu::attend(memory, 1, || {
            let mut count = 0;
            let how = ANON | flags::NORESERVE;
            while space.mmap(0, piece, RW, how).is_ok() {
                count += 1;
            }
            assert_eq!(space.mmap(0, piece, RW, how), Err(Errno::ENOMEM));
            space.munmap(0, layout.end).unwrap();
            let all = layout.end - 2 * layout.lowest;
            assert!(space.mmap(0, all, RW, how).is_ok(), "all in one");
            space.munmap(0, layout.end).unwrap();
            assert_eq!(space.totals().mapped, 0);
            count
        });
        verify_and_destroy(space, before);
        count
    };
    let (without, with) = (pieces(false), pieces(true));
    // A piece may not fit at the end of a shard.
    assert!(with + 8 >= without, "{with} pieces instead of {without}");
}

/// Two threads that map and unmap contend until they have shards; after that no wait is
/// counted.
#[test]
fn contention_makes_shards() {
    let (memory, space) = space(2, 64, Policy::Speculative);
    let top = Layout::LINUX_X86_64.mmap_base / GIB;
    let until = Instant::now() + Duration::from_secs(60);
    let found = AtomicBool::new(false);
    on_every_cpu(&space, |cpu| {
        while !found.load(Ordering::Relaxed) && Instant::now() < until {
            let at = map(&space, 1);
            cpu.store(at, 1).unwrap();
            space.munmap(at, PAGE).unwrap();
            if at / GIB != top {
                found.store(true, Ordering::Relaxed);
            }
        }
    });
    assert!(found.into_inner(), "no shard was created within a minute");
    let before = memory.total(Counter::RangeWaits);
    on_every_cpu(&space, |cpu| {
        for _ in 0..1000 {
            let at = map(&space, 1);
            cpu.store(at, 1).unwrap();
            space.munmap(at, PAGE).unwrap();
        }
    });
    assert_eq!(memory.total(Counter::RangeWaits), before);
    SoftCpu::attend(memory, 0, || assert!(space.verify().is_ok()));
}

/// Policies that serialise writers have no shards.
#[test]
fn not_where_writers_take_turns() {
    for policy in [Policy::Classic, Policy::VmaLock] {
        let (memory, space) = space(2, 64, policy);
        SoftCpu::attend(memory, 0, || assert!(!space.shard()));
    }
    let (memory, space) = space(2, 64, Policy::Speculative);
    SoftCpu::attend(memory, 0, || {
        space.set_limits(&Limits {
            address_space: GIB,
            ..Limits::NONE
        });
        assert!(!space.shard(), "a limit of address space");
    });
}

/// A mapping across two shards, with parts unmapped and mapped in both at once, ends when its last part is unmapped.
#[test]
fn a_mapping_in_two_parts() {
    let memory = machine(2, 64);
    let before = available(memory);
    let space = SoftCpu::attend(memory, 0, || {
        let space = Soft::space(memory, Policy::Speculative).expect("memory suffices");
        assert!(space.shard());
        space
    });
    let inside = SoftCpu::attend(memory, 0, || map(&space, 1));
    let border = (inside / GIB + 1) * GIB;
    let start = border - 64 * PAGE;
    SoftCpu::attend(memory, 0, || space.mmap(start, 128 * PAGE, RW, FIXED)).unwrap();
    let budget = budget(3000);
    on_every_cpu(&space, |cpu| {
        let own = match cpu.number() {
            0 => border - 40 * PAGE,
            _ => border + 40 * PAGE,
        };
        for _ in budget.rounds() {
            space.munmap(own, PAGE).unwrap();
            space.mmap(own, PAGE, RW, FIXED).unwrap();
        }
    });
    SoftCpu::attend(memory, 0, || {
        assert_eq!(space.totals().mappings, 2);
        space.verify().unwrap();
        space.munmap(start, 128 * PAGE).unwrap();
        space.munmap(inside, PAGE).unwrap();
    });
    verify_and_destroy(space, before);
}

/// A limit of mappings that is set after shards were created takes effect, and can be lifted again.
#[test]
fn a_limit_of_mappings_that_comes_later() {
    let (memory, space) = space(2, 64, Policy::Speculative);
    SoftCpu::attend(memory, 0, || {
        assert!(space.shard());
        let few = Limits {
            mappings: 3,
            ..Limits::NONE
        };
        space.set_limits(&few);
        // Changes every second page, so that none merge.
        let at = map(&space, 200);
        let mut done = 0;
        while space.mprotect(at + 2 * done * PAGE, PAGE, 1).is_ok() {
            done += 1;
        }
        assert_eq!((done, space.totals().mappings), (1, 3 - 1));
        space.set_limits(&Limits::NONE);
        (0..100).for_each(|n| space.mprotect(at + 2 * n * PAGE, PAGE, 1).unwrap());
        assert_eq!(space.totals().mappings, 200);
    });
}
