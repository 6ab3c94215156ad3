//! All pairs of writers, on ranges that overlap or not, beside loads, stores, or a fork, in random
//! interleavings of whole operations.
//!
//! Pages of no writer stay; what an operation has removed does not come back; all invariants hold at the end
//! (`World::finish`).

use crate::model::{FIXED, PAGE, Processor, RW, World, explore};
use faultless_mm::{PROT_READ, Policy, advice, flags, lock_all_flags, lock_flags, remap_flags};

const ANYWHERE: u32 = flags::PRIVATE | flags::ANONYMOUS;
const MOVE: u32 = remap_flags::MAYMOVE | remap_flags::FIXED;
/// The initial content of every page.
const OLD: u64 = 1;

/// A writer: it may change pages `at..at + 4`, and uses pages of its own from 24 on. Errors are effects of
/// the other writer; a success takes effect immediately.
type Writer = fn(&Processor<'_>, u64);

const WRITERS: &[Writer] = &[
    // munmap, then a new mapping in its place.
    |cpu, at| {
        cpu.space().munmap(at * PAGE, 3 * PAGE).unwrap();
        cpu.space().mmap(at * PAGE, 2 * PAGE, RW, FIXED).unwrap();
    },
    // MAP_FIXED over.
    |cpu, at| {
        let replaced = cpu.space().mmap((at + 1) * PAGE, 2 * PAGE, RW, FIXED);
        assert_eq!(replaced, Ok((at + 1) * PAGE));
    },
    // mmap anywhere, use, munmap.
    |cpu, _| {
        let new = cpu.space().mmap(0, 2 * PAGE, RW, ANYWHERE).unwrap();
        assert_eq!(cpu.load(new), Ok(0), "a page of another writer");
        cpu.store(new + PAGE, 9).unwrap();
        assert_eq!(cpu.load(new + PAGE), Ok(9));
        cpu.space().munmap(new, 2 * PAGE).unwrap();
    },
    // mprotect there and back.
    |cpu, at| {
        for prot in [PROT_READ, RW] {
            let _ = cpu.space().mprotect(at * PAGE, 3 * PAGE, prot);
        }
    },
    // A move away, and back.
    |cpu, at| {
        let to = (24 + 4 * u64::from(cpu.number())) * PAGE;
        let space = cpu.space();
        if space.mremap((at + 1) * PAGE, PAGE, PAGE, MOVE, to).is_ok() {
            let seen = cpu.load(to).unwrap();
            let moved = space.mremap(to, PAGE, PAGE, MOVE, (at + 1) * PAGE);
            assert_eq!(moved, Ok((at + 1) * PAGE));
            assert!([0, OLD].contains(&seen), "a page that was never here");
        }
    },
    // A mapping shrinks and grows again.
    |cpu, at| {
        let (space, at) = (cpu.space(), at * PAGE);
        let _ = space.mremap(at, 3 * PAGE, PAGE, 0, 0);
        let _ = space.mremap(at, PAGE, 2 * PAGE, 0, 0);
    },
    // Advice that changes no mapping, and advice that does.
    |cpu, at| {
        let _ = cpu.space().madvise(at * PAGE, 2 * PAGE, advice::DONTNEED);
        let _ = cpu.space().madvise(at * PAGE, 3 * PAGE, advice::DONTDUMP);
    },
    // mlock and munlock.
    |cpu, at| {
        let _ = cpu.space().mlock(at * PAGE, 3 * PAGE, lock_flags::ONFAULT);
        let _ = cpu.space().munlock(at * PAGE, 3 * PAGE);
    },
    // The heap, on both sides of its start.
    |cpu, _| {
        let space = cpu.space();
        let (_, end) = space.heap();
        space.brk(end + 2 * PAGE);
        space.brk(end + PAGE);
    },
    // mlockall and munlockall.
    |cpu, _| {
        let current = lock_all_flags::CURRENT | lock_all_flags::ONFAULT;
        let _ = cpu.space().mlockall(current);
        cpu.space().munlockall();
    },
    // fork.
    |cpu, at| {
        let child = cpu.space().fork().unwrap();
        let _ = child.munmap(at * PAGE, PAGE);
        child.destroy();
    },
];

/// The activity beside a pair of writers.
#[derive(Clone, Copy)]
enum Beside {
    Loads,
    Objects,
    Fork,
}

/// The pages that are checked: the first and the last belong to no writer.
const SEEN: [u64; 4] = [0, 2, 3, 11];

fn pair(policy: Policy, one: Writer, other: Writer, distance: u64, beside: Beside) {
    let world = World::new(3, policy);
    world.map(0, 12, RW);
    (0..12).for_each(|page| world.cpu().store(page * PAGE, OLD).unwrap());
    world.space().set_brk(40 * PAGE);
    let first = world.run(1, move |cpu| one(cpu, 1));
    let second = world.run(2, move |cpu| other(cpu, 1 + distance));
    let mut children = Vec::new();
    match beside {
        Beside::Loads => {}
        // A hole or a read-only mapping refuses them.
        Beside::Objects => SEEN.iter().for_each(|page| {
            let stored = world.cpu().store(page * PAGE, OLD);
            assert!(stored.is_ok() || ![0, 11].contains(page), "untouched");
        }),
        Beside::Fork => children.push(world.space().fork().unwrap()),
    }
    let looks = |cpu: &Processor<'_>| {
        for page in SEEN {
            // Old content, a new page, or a fault's error in a hole.
            if let Ok(seen) = cpu.load(page * PAGE) {
                assert!([0, OLD].contains(&seen), "page {page} holds {seen}");
            }
        }
    };
    looks(&world.cpu());
    first.join().unwrap();
    second.join().unwrap();
    for child in &children {
        for page in [0, 11] {
            assert_eq!(world.word_of(child, page), OLD, "the child has lost a page");
        }
        for page in [2, 3] {
            assert!([0, OLD].contains(&world.word_of(child, page)));
        }
    }
    for page in [0, 11] {
        assert_eq!(world.cpu().load(page * PAGE), Ok(OLD), "an untouched page");
    }
    world.space().munmap(0, 12 * PAGE).unwrap();
    world.map(0, 12, RW);
    assert_eq!(world.cpu().load(2 * PAGE), Ok(0));
    world.finish_with(children);
}

/// Each pair is drawn dozens of times.
fn all_pairs(policy: Policy, distance: u64) {
    use shuttle::rand::Rng;
    let mut draw = shuttle::rand::thread_rng();
    let beside = [Beside::Loads, Beside::Objects, Beside::Fork][draw.gen_range(0..3)];
    let mut writer = || WRITERS[draw.gen_range(0..WRITERS.len())];
    let (one, other) = (writer(), writer());
    pair(policy, one, other, distance, beside);
}

#[test]
fn on_the_same_range() {
    explore(3000, |policy| all_pairs(policy, 0));
}

#[test]
fn on_ranges_that_overlap() {
    explore(3000, |policy| all_pairs(policy, 2));
}

#[test]
fn on_ranges_beside_each_other() {
    explore(3000, |policy| all_pairs(policy, 4));
}
