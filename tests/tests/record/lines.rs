//! Which lines faults write, exactly (recording builds: `--cfg record`).
//!
//! Under speculative, two faults more than 8 pages apart in one mapping have no
//! line in common, the mapping's first fault included. The recorder does see the
//! lock of `classic` and the reference count of `vma-lock`, which proves that it
//! works.

use std::collections::BTreeSet;

use faultless_mm::{Access, Counter, HugeMode, Mask, Outcome, Policy, Tracer, advice, flags};
use faultless_soft::SoftCpu;
use faultless_sync::atomic::Local;
use faultless_sync::record::{self, LINE};
use faultless_tests::space;

const BASE: u64 = 0x10_0000_0000;
const PAGE: u64 = 4096;
const ANYWHERE: u32 = flags::PRIVATE | flags::ANONYMOUS;
const ANON: u32 = ANYWHERE | flags::FIXED;

/// The lines written by one fault, without those of batched work.
fn lines(space: &faultless_soft::SoftSpace, page: u64, access: Access) -> BTreeSet<usize> {
    let mut outcome = Outcome::OutOfMemory;
    let written = record::lines(|| outcome = space.fault(BASE + page * PAGE, access));
    assert_eq!(outcome, Outcome::Resolved);
    assert!(!written.is_empty(), "the recorder is off");
    written
        .into_iter()
        .filter(|(_, w)| w.direct > 0)
        .map(|(line, _)| line)
        .collect()
}

/// Lines that a fault on CPU 0 and one on CPU 1 both write, `distance` pages apart.
fn shared(policy: Policy, distance: u64, access: Access) -> usize {
    let (_, space) = space(2, 16, policy);
    SoftCpu::run(&space, 0, |_| {
        // The table is there; the mapping is new.
        space.mmap(BASE, 512 * PAGE, 3, ANON).unwrap();
        assert_eq!(space.fault(BASE, Access::Write), Outcome::Resolved);
        space.mmap(BASE, 512 * PAGE, 3, ANON).unwrap();
    });
    let first = SoftCpu::run(&space, 0, |_| lines(&space, 16, access));
    let second = std::thread::scope(|scope| {
        scope
            .spawn(|| SoftCpu::run(&space, 1, |_| lines(&space, 16 + distance, access)))
            .join()
    });
    first.intersection(&second.unwrap()).count()
}

#[test]
fn speculative_faults_share_no_line() {
    for access in [Access::Read, Access::Write] {
        for distance in [8, 9, 64, 400] {
            assert_eq!(
                shared(Policy::Speculative, distance, access),
                0,
                "{distance} {access:?}"
            );
        }
    }
}

/// Lines that faults on two huge pages both write, `distance` huge pages apart.
fn shared_by_huge(distance: u64, access: Access) -> usize {
    const HUGE: u64 = 512;
    let (memory, space) = space(2, 96, Policy::Speculative);
    memory.set_huge_mode(HugeMode::Always);
    SoftCpu::run(&space, 0, |_| {
        // The table above, and the huge zero page.
        space.mmap(BASE, 32 * HUGE * PAGE, 3, ANON).unwrap();
        assert_eq!(space.fault(BASE, Access::Write), Outcome::Resolved);
        assert_eq!(
            space.fault(BASE + HUGE * PAGE, Access::Read),
            Outcome::Resolved
        );
    });
    let first = SoftCpu::run(&space, 0, |_| lines(&space, 8 * HUGE, access));
    let there = (8 + distance) * HUGE;
    let second = std::thread::scope(|scope| {
        scope
            .spawn(|| SoftCpu::run(&space, 1, |_| lines(&space, there, access)))
            .join()
    });
    let mapped = match access {
        Access::Write => Counter::ThpFaultAlloc,
        _ => Counter::ThpZeroPageMaps,
    };
    assert!(memory.total(mapped) >= 2, "no huge pages");
    first.intersection(&second.unwrap()).count()
}

#[test]
fn faults_on_huge_pages_share_no_line() {
    for access in [Access::Read, Access::Write] {
        assert_eq!(shared_by_huge(8, access), 0, "{access:?}");
        assert_eq!(
            shared_by_huge(1, access),
            1,
            "{access:?}: the entries' line"
        );
    }
}

#[test]
fn neighbours_share_the_line_of_their_entries_only() {
    assert_eq!(shared(Policy::Speculative, 1, Access::Write), 1);
}

#[test]
fn the_lock_of_classic_and_the_count_of_vma_lock_are_seen() {
    assert_eq!(shared(Policy::Classic, 64, Access::Write), 1);
    assert_eq!(shared(Policy::VmaLock, 64, Access::Write), 1);
}

#[test]
fn a_fault_writes_events_only_while_they_are_on() {
    let (memory, space) = space(1, 16, Policy::Speculative);
    let words: &'static [Local] = (0..Tracer::words(64))
        .map(|_| Local::new(0))
        .collect::<Vec<_>>()
        .leak();
    let recorded = words.as_ptr_range();
    let recorded = recorded.start as usize / LINE..=(recorded.end as usize - 1) / LINE;
    let tracer = memory.cpus()[0].tracer();
    SoftCpu::run(&space, 0, |_| {
        space.mmap(BASE, 512 * PAGE, 3, ANON).unwrap();
        let written = |page| {
            let all = lines(&space, page, Access::Write);
            let (of_events, others): (BTreeSet<_>, _) =
                all.into_iter().partition(|line| recorded.contains(line));
            (of_events.len(), others.len())
        };
        // The first fault installs tables.
        written(0);
        let never_on = written(16);
        tracer.begin(words, Mask::from_bits(u64::MAX));
        let on = written(32);
        tracer.end();
        let off = written(48);
        assert_eq!(off, never_on);
        assert_eq!(off.0, 0);
        // A counter and an event; a latency's maximum, sum and count.
        assert!((2..=8).contains(&on.0), "{on:?}");
        assert_eq!(on.1, off.1, "nothing else is written");
    });
}

/// Lines written by mappings of `bytes` at addresses of the space's choice, none of which merges
/// with the one before.
fn lines_of_mappings(space: &faultless_soft::SoftSpace, bytes: u64) -> usize {
    let how = flags::PRIVATE | flags::ANONYMOUS | flags::NORESERVE;
    let map = |n: u32| space.mmap(0, bytes, 1 + n % 2 * 2, how).unwrap();
    (0..4).for_each(|n| drop(map(n)));
    let lines = |n| record::lines(|| drop(map(n))).len();
    (4..20).map(lines).sum()
}

#[test]
fn a_large_mapping_writes_no_more_than_a_small_one() {
    let lines = |bytes| {
        let (_, space) = space(1, 16, Policy::Speculative);
        SoftCpu::run(&space, 0, |_| lines_of_mappings(&space, bytes))
    };
    let (small, large) = (lines(1 << 20), lines(1 << 30));
    assert!(large <= small, "{large} lines, and {small} for small ones");
}

/// The lines that CPU `number` writes in `round`, on a thread of its own, without those of batched work; `prepare`
/// runs first.
fn lines_of(
    space: &faultless_soft::SoftSpace,
    number: u32,
    prepare: impl Fn(&SoftCpu<'_>) + Sync,
    round: impl Fn(&SoftCpu<'_>) + Sync,
) -> BTreeSet<usize> {
    let work = || {
        SoftCpu::run(space, number, |cpu| {
            prepare(cpu);
            let written = record::lines(|| round(cpu));
            let direct = written.into_iter().filter(|(_, w)| w.direct > 0);
            direct.map(|(line, _)| line).collect::<BTreeSet<_>>()
        })
    };
    let lines = std::thread::scope(|scope| scope.spawn(work).join().unwrap());
    assert!(lines.len() > 8, "the recorder is off");
    lines
}

/// Lines that CPUs 0 and 1 both write when each maps, touches and unmaps in a shard of its own, without those of
/// batched work.
#[test]
fn writers_in_shards_share_no_line() {
    let (memory, space) = space(2, 16, Policy::Speculative);
    SoftCpu::attend(memory, 0, || assert!(space.shard()));
    let round = |cpu: &SoftCpu<'_>| {
        let at = space.mmap(0, 3 * PAGE, 3, ANYWHERE).unwrap();
        cpu.store(at, 1).unwrap();
        space.munmap(at, 3 * PAGE).unwrap();
    };
    // A neighbour stays mapped, and the tables exist.
    let prepare = |cpu: &SoftCpu<'_>| {
        space.mmap(0, PAGE, 1, ANYWHERE).unwrap();
        round(cpu);
    };
    let [one, other] = [0, 1].map(|number| lines_of(&space, number, prepare, round));
    let both = one.intersection(&other).collect::<Vec<_>>();
    assert!(both.is_empty(), "{both:x?}");
}

/// The same for CPUs that change mappings at fixed addresses, each in a shard created around them: with every
/// operation there is.
#[test]
fn writers_at_named_places_share_no_line() {
    const MIB: u64 = 1 << 20;
    let (memory, space) = space(2, 64, Policy::Speculative);
    let start = 8192 * MIB;
    let fixed = ANYWHERE | flags::FIXED;
    SoftCpu::attend(memory, 0, || {
        space
            .mmap(start, 64 * MIB, 3, fixed | flags::NORESERVE)
            .unwrap();
        assert!(space.shard_around(start) && space.shard_around(start + 32 * MIB));
    });
    let round = |cpu: &SoftCpu<'_>| {
        let at = start + u64::from(cpu.number()) * 32 * MIB + 100 * PAGE;
        let touch = |page| cpu.store(at + page * PAGE, 1).unwrap();
        (0..8).for_each(touch);
        space.mprotect(at, 2 * PAGE, 1).unwrap();
        space.mprotect(at, 2 * PAGE, 3).unwrap();
        space.madvise(at, 8 * PAGE, advice::DONTNEED).unwrap();
        space.madvise(at, PAGE, advice::DONTFORK).unwrap();
        space.madvise(at, PAGE, advice::DOFORK).unwrap();
        space.mlock(at, 2 * PAGE, 0).unwrap();
        space.munlock(at, 2 * PAGE).unwrap();
        space.munmap(at + 2 * PAGE, 3 * PAGE).unwrap();
        space.mremap(at, 2 * PAGE, 4 * PAGE, 0, 0).unwrap();
        space.mremap(at, 4 * PAGE, 3 * PAGE, 0, 0).unwrap();
        space.mmap(at, 5 * PAGE, 3, fixed).unwrap();
    };
    let prepare = |cpu: &SoftCpu<'_>| (0..2).for_each(|_| round(cpu));
    let [one, other] = [0, 1].map(|number| lines_of(&space, number, prepare, round));
    let both = one.intersection(&other).collect::<Vec<_>>();
    assert!(both.is_empty(), "{both:x?}");
}
