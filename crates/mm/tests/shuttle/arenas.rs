//! Writers in arenas, beside them, and across their boundaries, in random interleavings; and arenas
//! that come into being meanwhile. What nobody touches stays, what was taken away is gone, and all
//! invariants hold at the end (`World::finish`).
//!
//! A node holds eight slots here, and is an arena: pages 56 to 63 and 48 to 55.

use std::sync::Arc;

use crate::model::{FIXED, PAGE, Processor, RW, World, explore_under};
use faultless_mm::{PROT_READ, Policy, flags, remap_flags};
use faultless_sync::{Flaw, with_flaw};

const POLICIES: &[Policy] = &[Policy::Speculative];
const ANYWHERE: u32 = flags::PRIVATE | flags::ANONYMOUS;
const MOVE: u32 = remap_flags::MAYMOVE | remap_flags::FIXED;
/// The boundary of the two arenas.
const MIDDLE: u64 = 56;

fn spread() -> Arc<World> {
    let world = World::with_frames(200, 3, 0, Policy::Speculative);
    assert!(world.space().spread_writers());
    world
}

/// Maps, uses and unmaps pages where nobody else does.
fn use_own(cpu: &Processor<'_>, page: u64) {
    let (space, at) = (cpu.space(), page * PAGE);
    for round in 1..3 {
        space.mmap(at, 2 * PAGE, RW, FIXED).unwrap();
        assert_eq!(cpu.load(at), Ok(0), "somebody's page");
        cpu.store(at + PAGE, round).unwrap();
        space.mprotect(at, PAGE, PROT_READ).unwrap();
        assert_eq!(cpu.load(at + PAGE), Ok(round));
        space.munmap(at, 2 * PAGE).unwrap();
        assert!(cpu.load(at + PAGE).is_err(), "what was unmapped is there");
    }
}

/// Each in a part of his own; one across both.
#[test]
fn each_in_a_part_of_his_own() {
    explore_under(POLICIES, 600, |_| {
        let world = spread();
        let others = [(1, 50), (2, 58)]
            .map(|(number, page)| world.run(number, move |cpu| use_own(cpu, page)));
        use_own(&world.cpu(), MIDDLE - 1);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(world.finish().pages, 0);
    });
}

/// One thread's range lies across what is another's: they exclude each other.
fn across() {
    explore_under(POLICIES, 600, |_| {
        let world = spread();
        let at = (MIDDLE + 2) * PAGE;
        let inside = world.run(1, move |cpu| {
            for _ in 0..2 {
                let made = cpu.space().mmap(at, PAGE, RW, FIXED);
                assert_eq!(made, Ok(at));
                let _ = cpu.store(at, 7);
                cpu.space().mprotect(at, PAGE, PROT_READ).ok();
            }
        });
        let whole = world.run(2, move |cpu| {
            let start = (MIDDLE - 2) * PAGE;
            cpu.space().mmap(start, 6 * PAGE, RW, FIXED).unwrap();
            let _ = cpu.store(at, 8);
            let _ = cpu.space().mremap(at, PAGE, PAGE, MOVE, 20 * PAGE);
            cpu.space().munmap(start, 6 * PAGE).unwrap();
        });
        let _ = world.space().fork().map(|child| child.destroy());
        inside.join().unwrap();
        whole.join().unwrap();
        world.space().munmap(0, 64 * PAGE).unwrap();
        assert_eq!(world.finish().pages, 0);
    });
}

#[test]
fn across_what_is_in_an_arena() {
    across();
}

#[test]
#[should_panic]
fn broken_one_part_for_all() {
    with_flaw(Flaw::OnePartForAll, across);
}

/// Arenas come into being where somebody is about to map, and others work in them at once.
fn opened_meanwhile() {
    explore_under(POLICIES, 1000, |_| {
        let world = World::with_frames(200, 3, 0, Policy::Speculative);
        let at = (MIDDLE + 2) * PAGE;
        let inside = world.run(1, move |cpu| {
            for round in 0..3 {
                cpu.space().mmap(at, 2 * PAGE, RW, FIXED).unwrap();
                let _ = cpu.store(at, round);
                cpu.space().munmap(at, PAGE).unwrap();
            }
        });
        let beside = world.run(2, move |cpu| {
            for round in 0..3 {
                cpu.space().mmap(at, 2 * PAGE, RW, FIXED).unwrap();
                let _ = cpu.store(at + PAGE, round);
                cpu.space().munmap(at + PAGE, PAGE).unwrap();
            }
        });
        world.space().spread_writers();
        inside.join().unwrap();
        beside.join().unwrap();
        world.space().munmap(0, 64 * PAGE).unwrap();
        assert_eq!(world.finish().pages, 0);
    });
}

#[test]
fn opened_where_somebody_maps() {
    opened_meanwhile();
}

#[test]
#[should_panic]
fn broken_part_chosen_once() {
    with_flaw(Flaw::PartChosenOnce, opened_meanwhile);
}

/// Addresses that are chosen: two never get the same, and each is empty; all room can be had.
#[test]
fn chosen_addresses() {
    explore_under(POLICIES, 600, |_| {
        let world = spread();
        let choose = |cpu: &Processor<'_>| {
            for _ in 0..4 {
                let own = u64::from(cpu.number()) + 1;
                let at = cpu.space().mmap(0, 2 * PAGE, RW, ANYWHERE).unwrap();
                assert_eq!(cpu.load(at), Ok(0), "somebody's page");
                cpu.store(at, own).unwrap();
                cpu.store(at + PAGE, own).unwrap();
                assert_eq!(cpu.load(at), Ok(own));
                cpu.space().munmap(at, PAGE).unwrap();
                assert_eq!(cpu.load(at + PAGE), Ok(own));
            }
        };
        let others = [1, 2].map(|number| world.run(number, choose));
        choose(&world.cpu());
        others.into_iter().for_each(|other| other.join().unwrap());
        let space = world.space();
        let mut rest = 0;
        while space.mmap(0, PAGE, RW, ANYWHERE).is_ok() {
            rest += 1;
        }
        assert_eq!(rest + 12, 64, "some room cannot be had");
        space.munmap(0, 64 * PAGE).unwrap();
        assert_eq!(world.finish().pages, 0);
    });
}

/// A mapping lies in two parts, whose writers take it away at once: it goes once.
fn in_two_parts() {
    explore_under(POLICIES, 600, |_| {
        let world = spread();
        world.map(MIDDLE - 4, 8, RW);
        let take = |first: u64| {
            move |cpu: &Processor<'_>| {
                for page in [first, first + 1] {
                    cpu.space().munmap(page * PAGE, PAGE).unwrap();
                }
            }
        };
        let others = [
            world.run(1, take(MIDDLE - 4)),
            world.run(2, take(MIDDLE + 2)),
        ];
        for page in [MIDDLE - 2, MIDDLE - 1, MIDDLE, MIDDLE + 1] {
            world.space().munmap(page * PAGE, PAGE).unwrap();
        }
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(world.finish().mappings, 0);
    });
}

#[test]
fn one_mapping_in_two_parts() {
    in_two_parts();
}

#[test]
#[should_panic]
fn broken_pages_counted_plainly() {
    with_flaw(Flaw::PagesCountedPlainly, in_two_parts);
}
