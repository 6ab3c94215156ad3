//! A truncation beside a zap of private copies of the object's pages: after the truncation no CPU reads them.
//! No count covers a private copy, and the walk of the object's mappings does not find pages that are being
//! zapped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::model::{FIXED, Model, PAGE, Processor, RW, Space, World, explore_under};
use faultless_mm::{MemoryObject, Opened, PROT_READ, Policy, flags, remap_flags};
use faultless_sync::{Mutant, with_flaw};

const MOVE: u32 = remap_flags::MAYMOVE | remap_flags::FIXED;
const STAY: u32 = MOVE | remap_flags::DONTUNMAP;
/// The content of the copies.
const COPY: u64 = 7;

/// Ways to zap pages 2 to 5, which are private copies of the object's pages, with anonymous memory around
/// them.
const WAYS: [fn(&Processor<'_>); 10] = [
    |cpu| cpu.space().munmap(2 * PAGE, 4 * PAGE).unwrap(),
    |cpu| cpu.space().munmap(3 * PAGE, 2 * PAGE).unwrap(),
    |cpu| cpu.space().munmap(3 * PAGE, PAGE).unwrap(),
    |cpu| cpu.space().munmap(0, 8 * PAGE).unwrap(),
    |cpu| _ = cpu.space().mmap(2 * PAGE, 4 * PAGE, RW, FIXED).unwrap(),
    |cpu| _ = cpu.space().mmap(3 * PAGE, PAGE, RW, FIXED).unwrap(),
    |cpu| {
        let shrunk = cpu.space().mremap(2 * PAGE, 4 * PAGE, PAGE, 0, 0);
        assert_eq!(shrunk, Ok(2 * PAGE));
    },
    |cpu| move_over(cpu, 12 * PAGE, MOVE),
    // The moved mapping shows the same pages of the object as the replaced one.
    |cpu| move_over(cpu, 14 * PAGE, MOVE),
    |cpu| move_over(cpu, 14 * PAGE, STAY),
];

fn move_over(cpu: &Processor<'_>, from: u64, flags: u32) {
    let to = 2 * PAGE;
    let moved = cpu.space().mremap(from, 2 * PAGE, 2 * PAGE, flags, to);
    assert_eq!(moved, Ok(to));
}

/// A world with such copies, each of which is in the TLBs of CPUs 0 and 2.
fn copied(policy: Policy) -> (Arc<World>, MemoryObject<Model>) {
    let world = World::new(3, policy);
    let store = MemoryObject::new(world.space().memory(), 4 * PAGE, None, 0).unwrap();
    world.map(0, 2, RW);
    world.map(6, 2, RW);
    world.map(12, 2, RW);
    let opened = Opened {
        store: Ok(&store),
        offset: 0,
        file: 0,
        writable: true,
    };
    let how = flags::PRIVATE | flags::FIXED;
    for (place, pages) in [(14, 2), (2, 4)] {
        let (place, length) = (place * PAGE, pages * PAGE);
        let mapped = world.space().mmap_object(place, length, RW, how, &opened);
        assert_eq!(mapped, Ok(place));
    }
    for page in 2..6 {
        world.cpu().store_file(page * PAGE, COPY).unwrap();
    }
    let reader = world.run(2, |cpu| {
        (2..6).for_each(|page| assert_eq!(cpu.load_file(page * PAGE), Ok(COPY)));
    });
    reader.join().unwrap();
    (world, store)
}

fn are_gone(cpu: &Processor<'_>) {
    for page in 2..6 {
        let seen = cpu.load_file(page * PAGE);
        assert_ne!(seen, Ok(COPY), "a copy is left that was truncated");
    }
}

fn beside(policy: Policy, way: fn(&Processor<'_>)) {
    let (world, store) = copied(policy);
    let zapper = world.run(1, move |cpu| way(cpu));
    let cutter = world.run(2, move |cpu| {
        store.truncate(0).unwrap();
        are_gone(cpu);
    });
    zapper.join().unwrap();
    cutter.join().unwrap();
    are_gone(&world.cpu());
    world.finish();
}

#[test]
fn whatever_takes_them_away() {
    explore_under(Policy::ALL, 200, |policy| {
        WAYS.into_iter().for_each(|way| beside(policy, way));
    });
}

/// The zap is stopped in its flush. The truncation waits for it, and no other operation waits for the
/// truncation.
fn stopped(policy: Policy, way: fn(&Processor<'_>)) {
    let (world, store) = copied(policy);
    let machine = world.space().memory().machine();
    machine.shut_gate(1);
    let zapper = world.run(1, move |cpu| way(cpu));
    machine.await_gate();
    let opened = Arc::new(AtomicBool::new(false));
    let cutter = {
        let opened = opened.clone();
        world.run(2, move |cpu| {
            store.truncate(0).unwrap();
            are_gone(cpu);
            assert!(opened.load(Relaxed), "it was not waited for");
        })
    };
    let child = world.space().fork().unwrap();
    world.map(9, 1, RW);
    world.cpu().store(9 * PAGE, 1).unwrap();
    world.space().munmap(9 * PAGE, PAGE).unwrap();
    opened.store(true, Relaxed);
    machine.open_gate();
    zapper.join().unwrap();
    cutter.join().unwrap();
    are_gone(&world.cpu());
    world.finish_with(vec![child]);
}

/// The zap's flush is slow, while the truncation runs: the truncation may have seen the mapping before the
/// zap.
fn slow(policy: Policy, way: fn(&Processor<'_>)) {
    let (world, store) = copied(policy);
    let machine = world.space().memory().machine();
    machine.shut_gate(1);
    let is_cut = Arc::new(AtomicBool::new(false));
    let zapper = world.run(1, move |cpu| way(cpu));
    let cutter = {
        let is_cut = is_cut.clone();
        world.run(2, move |cpu| {
            store.truncate(0).unwrap();
            are_gone(cpu);
            is_cut.store(true, Relaxed);
        })
    };
    for _ in 0..200 {
        if is_cut.load(Relaxed) {
            break;
        }
        shuttle::thread::yield_now();
    }
    machine.open_gate();
    zapper.join().unwrap();
    cutter.join().unwrap();
    are_gone(&world.cpu());
    world.finish();
}

fn each_slow(policy: Policy) {
    WAYS.into_iter().for_each(|way| slow(policy, way));
}

#[test]
fn a_slow_cpu_is_waited_for() {
    explore_under(&[Policy::Speculative], 200, each_slow);
}

/// The ways with no flush but a zap's.
fn each_stopped(policy: Policy) {
    WAYS[..6].iter().for_each(|&way| stopped(policy, way));
}

#[test]
fn a_stopped_process_is_waited_for() {
    explore_under(&[Policy::Speculative], 100, each_stopped);
}

#[test]
#[should_panic(expected = "a copy is left that was truncated")]
fn broken_departures_not_awaited() {
    with_flaw(Mutant::DeparturesNotAwaited, || {
        explore_under(&[Policy::Speculative], 100, each_stopped);
    });
}

/// Copies move behind a neighbour, pages 0 and 1, which the walk of the object's mappings may have passed.
/// They join its mapping in some `way`; their final place is `to`.
fn merged_behind_a_walk(policy: Policy, prot: u32, way: fn(&Space), to: u64) {
    let world = World::new(2, policy);
    let store = MemoryObject::new(world.space().memory(), 8 * PAGE, None, 0).unwrap();
    let space = world.space();
    let map = |at: u64, first: u64, prot: u32| {
        let opened = Opened {
            store: Ok(&store),
            offset: first * PAGE,
            file: 0,
            writable: true,
        };
        let how = flags::PRIVATE | flags::FIXED;
        let mapped = space.mmap_object(at * PAGE, 2 * PAGE, prot, how, &opened);
        assert_eq!(mapped, Ok(at * PAGE));
    };
    map(0, 0, prot);
    if prot == RW {
        // An older soft-dirty epoch keeps this mapping distinct from the next, otherwise equal one.
        space.clear_soft_dirty();
    }
    map(40, 2, RW);
    (40..42).for_each(|page| world.cpu().store_file(page * PAGE, COPY).unwrap());
    let cutter = world.run(1, move |_| store.truncate(0).unwrap());
    let moved = space.mremap(40 * PAGE, 2 * PAGE, 2 * PAGE, MOVE, 2 * PAGE);
    assert_eq!(moved, Ok(2 * PAGE));
    way(space);
    cutter.join().unwrap();
    for page in to..to + 2 {
        let seen = world.cpu().load_file(page * PAGE);
        assert_ne!(seen, Ok(COPY), "a copy is left that was truncated");
    }
    world.finish();
}

/// Protects the copies alone; mprotect looks at their neighbours.
fn protect_them(space: &Space) {
    space.mprotect(2 * PAGE, 2 * PAGE, PROT_READ).unwrap();
}

/// Protects both mappings; the first has that protection already.
fn protect_both(space: &Space) {
    space.mprotect(0, 4 * PAGE, PROT_READ).unwrap();
}

/// Makes both mappings equal, and moves them together.
fn move_both(space: &Space) {
    space.clear_soft_dirty();
    let moved = space.mremap(0, 4 * PAGE, 4 * PAGE, MOVE, 20 * PAGE);
    assert_eq!(moved, Ok(20 * PAGE));
}

#[test]
fn what_is_merged_behind_a_walk_goes() {
    explore_under(&[Policy::Speculative], 2000, |policy| {
        merged_behind_a_walk(policy, PROT_READ, protect_them, 2);
        merged_behind_a_walk(policy, PROT_READ, protect_both, 2);
        merged_behind_a_walk(policy, RW, move_both, 22);
    });
}

#[test]
#[should_panic(expected = "a copy is left that was truncated")]
fn broken_not_linked_again() {
    with_flaw(Mutant::NotLinkedAgain, || {
        explore_under(&[Policy::Speculative], 4000, |policy| {
            merged_behind_a_walk(policy, PROT_READ, protect_both, 2);
        });
    });
}
