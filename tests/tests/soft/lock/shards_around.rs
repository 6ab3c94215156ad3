//! Shards around existing mappings, where writers at fixed addresses contend; and the choice of free
//! address ranges beside shards.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use faultless_mm::{Layout, Limits, Policy, flags, remap_flags};
use faultless_soft::{SoftCpu, SoftSpace};
use faultless_tests::{machine, on_every_cpu, space};

const PAGE: u64 = 4096;
const GIB: u64 = 1 << 30;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS;
const FIXED: u32 = ANON | flags::FIXED;

/// Maps pages anywhere.
fn map(space: &SoftSpace, pages: u64) -> u64 {
    let at = space.mmap(0, pages * PAGE, RW, ANON);
    at.unwrap_or_else(|errno| panic!("{errno:?}"))
}

/// Changes two pages of the mapping at `at`.
fn change(space: &SoftSpace, at: u64) {
    space.mprotect(at, PAGE, 1).unwrap();
    space.mprotect(at, PAGE, RW).unwrap();
    space.munmap(at + PAGE, PAGE).unwrap();
    let how = FIXED | flags::NORESERVE;
    space.mmap(at + PAGE, PAGE, RW, how).unwrap();
}

/// Two threads change mappings at fixed addresses, `apart` from each other, until a shard is created around one
/// of them.
fn contend(apart: u64, prepare: impl Fn(&SoftSpace, u64)) {
    let (memory, space) = space(2, 64, Policy::Speculative);
    let all = 4 * GIB;
    let start = SoftCpu::attend(memory, 0, || {
        let how = FIXED | flags::NORESERVE;
        let start = space.mmap(16 * GIB, all, RW, how).unwrap();
        prepare(&space, start);
        start
    });
    let before = space.shard_count();
    let places = [0, 1].map(|n| start + n * apart + 5 * PAGE);
    let until = Instant::now() + Duration::from_secs(60);
    on_every_cpu(&space, |cpu| {
        while space.shard_count() == before && Instant::now() < until {
            change(&space, places[cpu.number() as usize]);
        }
    });
    let made = space.shard_count() - before;
    assert!(made > 0, "no shard was created within a minute");
    SoftCpu::attend(memory, 0, || {
        space.verify().unwrap();
        // One of them is in the shard, and the other is not.
        let refused = places.iter().filter(|&&at| !space.shard_around(at));
        assert_eq!(refused.count(), 1);
        assert_eq!(space.totals().mappings, 1);
        space.munmap(start, all).unwrap();
        assert_eq!(space.totals().mapped, 0);
    });
}

/// Contention creates a shard around the mapping of one thread, however far away the other is.
#[test]
fn contention_at_named_places_makes_shards() {
    for apart in [20 << 20, 3 * GIB] {
        contend(apart, |_, _| ());
    }
}

/// A gibibyte that contains a shard or the heap becomes no shard, but a part of it may.
#[test]
fn contention_beside_a_small_shard_makes_another() {
    contend(3 * GIB, |space, start| {
        assert!(space.shard_around(start + GIB / 2));
        space.set_brk(start + 3 * GIB + GIB / 2);
    });
}

/// One thread that names addresses, beside others that only fault and fork, gets no shard.
#[test]
fn one_thread_that_names_places_gets_none() {
    let (memory, space) = space(2, 64, Policy::Speculative);
    let start = SoftCpu::attend(memory, 0, || map(&space, 1000));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            SoftCpu::run(&space, 1, |cpu| {
                while !done.load(Ordering::Relaxed) {
                    cpu.store(start + 900 * PAGE, 1).unwrap();
                    space.fork().unwrap().destroy();
                }
            });
        });
        SoftCpu::run(&space, 0, |_| (0..2000).for_each(|_| change(&space, start)));
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(space.shard_count(), 0);
}

/// No shard is created below 4 GiB, over another one, around the heap, beyond the end, under a policy that
/// serialises writers, or with a low limit of mappings; and there are at most eight.
#[test]
fn where_there_can_be_none() {
    let (memory, space) = space(2, 64, Policy::Speculative);
    SoftCpu::attend(memory, 0, || {
        let heap = 5 * GIB + PAGE;
        space.set_brk(heap);
        assert!(space.brk(heap + 2 * PAGE) > heap);
        assert!(!space.shard_around(heap), "the heap is there");
        assert!(!space.shard_around(3 * GIB), "that is low");
        assert!(!space.shard_around(u64::MAX), "that is no address");
        let end = space.layout().end;
        assert!(!space.shard_around(end), "nothing is mapped there");
        let few = Limits {
            mappings: 1000,
            ..Limits::NONE
        };
        space.set_limits(&few);
        assert!(
            !space.shard_around(6 * GIB),
            "all would be counted centrally"
        );
        space.set_limits(&Limits::NONE);
        let made = (6..30).filter(|n| space.shard_around(n * GIB)).count();
        assert_eq!((made, space.shard_count()), (8, 8));
        assert!(!space.shard_around(6 * GIB), "there is one");
        // Shards of CPUs are counted apart; they receive mappings without a fixed address.
        let at = map(&space, 1);
        assert!(space.shard());
        let new = map(&space, 1);
        assert_ne!(at / GIB, new / GIB);
        assert_eq!(space.shard_count(), 10);
        space.verify().unwrap();
    });
    let (memory, space) = self::space(2, 64, Policy::Classic);
    SoftCpu::attend(memory, 0, || assert!(!space.shard_around(6 * GIB)));
}

/// Below a shard a stack's guard gap and a page to merge over stay free, however the address was chosen.
#[test]
fn nothing_is_put_right_below_a_shard() {
    const GAP: u64 = 256 * PAGE;
    let (memory, space) = space(2, 64, Policy::Speculative);
    SoftCpu::attend(memory, 0, || {
        assert!(space.shard());
        let large = || space.mmap(0, 4 * GIB, 0, ANON | flags::NORESERVE).unwrap();
        let first = large();
        // A stack at the beginning of the shard.
        let shard = (first + 4 * GIB).next_multiple_of(GIB);
        assert!(shard - (first + 4 * GIB) > GAP);
        let stack = FIXED | flags::GROWSDOWN;
        space.mmap(shard, PAGE, RW, stack).unwrap();
        for _ in 0..3 {
            space.munmap(first, 4 * GIB).unwrap();
            assert_eq!(large(), first);
        }
        space.verify().unwrap();
    });
}

/// A hint at an occupied address, in a shard or across its end, is ignored; a free one is used. A mapping that
/// grows in a full shard moves out of it.
#[test]
fn hints_and_moves_in_shards_around() {
    const MIB: u64 = 1 << 20;
    let (memory, space) = space(2, 64, Policy::Speculative);
    SoftCpu::attend(memory, 0, || {
        let (shard, end) = (16 * GIB, 16 * GIB + 16 * MIB);
        space.mmap(shard, 16 * MIB, RW, FIXED).unwrap();
        assert!(space.shard_around(shard));
        let top = Layout::LINUX_X86_64.mmap_base;
        for hint in [shard, shard + 5 * PAGE, end - PAGE, shard - PAGE] {
            let at = space.mmap(hint, 2 * PAGE, RW, ANON).unwrap();
            assert_eq!(at, top - 2 * PAGE, "{hint:x}");
            space.munmap(at, 2 * PAGE).unwrap();
        }
        for hint in [end, shard - 2 * PAGE] {
            assert_eq!(space.mmap(hint, 2 * PAGE, RW, ANON), Ok(hint));
            space.munmap(hint, 2 * PAGE).unwrap();
        }
        // The shard is full; after the move the old address is free.
        let at = shard + MIB;
        let grown = space.mremap(at, PAGE, 9 * PAGE, remap_flags::MAYMOVE, 0);
        assert_eq!(grown, Ok(top - 9 * PAGE));
        assert_eq!(space.mmap(at, PAGE, RW, ANON), Ok(at));
        space.verify().unwrap();
        space.munmap(0, space.layout().end).unwrap();
        assert_eq!(space.totals().mapped, 0);
    });
}

/// A mapping that shares a node with a shard further up: the address right below it can be chosen.
#[test]
fn room_is_right_below_what_a_shard_is_not_in() {
    const MIB: u64 = 1 << 20;
    let layout = Layout {
        mmap_base: 20 * GIB,
        ..Layout::LINUX_X86_64
    };
    let memory = machine(2, 64);
    SoftCpu::attend(memory, 0, || {
        let space = faultless_mm::OwnedSpace::new(memory, Policy::Speculative, layout);
        let space: SoftSpace = space.expect("memory suffices");
        let (at, length) = (19 * GIB + 64 * MIB, GIB - 64 * MIB);
        let how = FIXED | flags::NORESERVE;
        space.mmap(at, length, RW, how).unwrap();
        assert!(space.shard_around(at + 128 * MIB));
        assert_eq!(map(&space, 3), at - 3 * PAGE);
        space.destroy();
    });
}
