//! Writers in shards, outside them, and across their boundaries, in random interleavings; and shards that are
//! created meanwhile.
//!
//! Pages of no writer stay, unmapped pages are gone, and all invariants hold at the end (`World::finish`).
//!
//! A node holds eight slots here, and is a shard: pages 48 to 55 and 56 to 63.

use std::sync::Arc;

use crate::model::{FIXED, PAGE, Processor, RW, Space, World, explore_under};
use faultless_mm::{PROT_READ, Policy, flags, remap_flags};
use faultless_sync::{Mutant, with_flaw};

const POLICIES: &[Policy] = &[Policy::Speculative];
const ANYWHERE: u32 = flags::PRIVATE | flags::ANONYMOUS;
const MOVE: u32 = remap_flags::MAYMOVE | remap_flags::FIXED;
/// The boundary of the two shards.
const MIDDLE: u64 = 56;

fn spread() -> Arc<World> {
    let world = World::with_frames(200, 3, 0, Policy::Speculative);
    assert!(world.space().shard());
    world
}

/// Maps, uses and unmaps pages that no other writer uses.
fn use_own(cpu: &Processor<'_>, page: u64) {
    let (space, at) = (cpu.space(), page * PAGE);
    for round in 1..3 {
        space.mmap(at, 2 * PAGE, RW, FIXED).unwrap();
        assert_eq!(cpu.load(at), Ok(0), "a page of another writer");
        cpu.store(at + PAGE, round).unwrap();
        space.mprotect(at, PAGE, PROT_READ).unwrap();
        assert_eq!(cpu.load(at + PAGE), Ok(round));
        space.munmap(at, 2 * PAGE).unwrap();
        assert!(cpu.load(at + PAGE).is_err(), "what was unmapped is there");
    }
}

/// Two writers, each in a shard of its own, and one across both shards.
#[test]
fn each_in_its_own_part() {
    explore_under(POLICIES, 600, |_| {
        let world = spread();
        let others = [(1, 50), (2, 58)]
            .map(|(number, page)| world.run(number, move |cpu| use_own(cpu, page)));
        use_own(&world.cpu(), MIDDLE - 1);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(world.finish().pages, 0);
    });
}

/// A range of one thread covers a range of another in a shard: the threads exclude each other.
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
fn across_what_is_in_a_shard() {
    across();
}

#[test]
#[should_panic]
fn broken_one_part_for_all() {
    with_flaw(Mutant::OnePartForAll, across);
}

/// Shards are created where writers are about to map; the writers use them immediately.
fn opened_beside(open: fn(&Space)) {
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
    open(world.space());
    inside.join().unwrap();
    beside.join().unwrap();
    world.space().munmap(0, 64 * PAGE).unwrap();
    assert_eq!(world.finish().pages, 0);
}

fn opened_meanwhile() {
    explore_under(POLICIES, 1000, |_| {
        opened_beside(|space| {
            space.shard();
        });
    });
}

fn opened_around() {
    explore_under(POLICIES, 1000, |_| opened_beside(spread_around));
}

/// Creates a shard around existing mappings, which a writer may be unmapping.
fn spread_around(space: &Space) {
    space.shard_around(MIDDLE * PAGE);
}

#[test]
fn opened_where_a_thread_maps() {
    opened_meanwhile();
}

#[test]
fn opened_around_what_is_worked_at() {
    opened_around();
}

#[test]
#[should_panic]
fn broken_part_chosen_once() {
    with_flaw(Mutant::PartChosenOnce, opened_meanwhile);
}

#[test]
#[should_panic]
fn broken_part_chosen_once_around() {
    with_flaw(Mutant::PartChosenOnce, opened_around);
}

/// Pages are zapped in a range that becomes a shard, and then mapped anew there.
fn around_what_is_taken_away() {
    explore_under(POLICIES, 1000, |_| {
        let world = World::with_frames(200, 2, 0, Policy::Speculative);
        let pages = MIDDLE + 1..MIDDLE + 5;
        world.map(pages.start, 4, RW);
        let touch = |page| world.cpu().store(page * PAGE, 1).unwrap();
        pages.clone().for_each(touch);
        let away = world.run(1, |cpu| {
            cpu.space().munmap((MIDDLE + 1) * PAGE, 4 * PAGE).unwrap();
        });
        spread_around(world.space());
        for at in pages.rev().map(|page| page * PAGE) {
            let how = ANYWHERE | flags::FIXED_NOREPLACE;
            if world.space().lookup(at).is_none() {
                assert_eq!(world.space().mmap(at, PAGE, RW, how), Ok(at));
                assert_eq!(world.cpu().load(at), Ok(0), "an old page in a new mapping");
                world.cpu().store(at, 2).unwrap();
                assert_eq!(world.cpu().load(at), Ok(2), "a new page was taken away");
            }
        }
        away.join().unwrap();
        world.space().munmap(0, 64 * PAGE).unwrap();
        assert_eq!(world.finish().pages, 0);
    });
}

#[test]
fn opened_around_what_is_taken_away() {
    around_what_is_taken_away();
}

#[test]
#[should_panic]
fn broken_around_beside_zaps() {
    with_flaw(Mutant::AroundBesideZaps, around_what_is_taken_away);
}

/// A shard around an existing mapping, which lies partly outside it: faults and forks go on.
#[test]
fn opened_around_what_is_mapped() {
    explore_under(POLICIES, 600, |_| {
        let world = World::with_frames(200, 3, 0, Policy::Speculative);
        world.map(MIDDLE - 4, 10, RW);
        let faults = world.run(1, |cpu| {
            for page in MIDDLE - 2..MIDDLE + 2 {
                cpu.store(page * PAGE, page).unwrap();
                assert_eq!(cpu.load(page * PAGE), Ok(page));
            }
        });
        let writes = world.run(2, |cpu| {
            let at = (MIDDLE + 2) * PAGE;
            cpu.space().mprotect(at, PAGE, PROT_READ).unwrap();
            assert!(cpu.store(at, 1).is_err(), "what was protected is not");
            cpu.space().munmap(at + PAGE, PAGE).unwrap();
            assert!(cpu.load(at + PAGE).is_err(), "what was unmapped is there");
        });
        spread_around(world.space());
        let child = world.space().fork().unwrap();
        faults.join().unwrap();
        writes.join().unwrap();
        // No shard is created while pages are being zapped there.
        let is_there = world.space().shard_count() == 1;
        assert_ne!(world.space().shard_around(MIDDLE * PAGE), is_there);
        child.destroy();
        world.space().munmap((MIDDLE - 4) * PAGE, 9 * PAGE).unwrap();
        let last = (MIDDLE + 5) * PAGE;
        assert_eq!(world.cpu().load(last), Ok(0));
        let census = world.finish();
        assert_eq!(census.mappings, 1);
    });
}

/// Addresses chosen by mmap: no two mappings get the same, each range is empty, and the whole space can be
/// mapped.
#[test]
fn chosen_addresses() {
    explore_under(POLICIES, 600, |_| {
        let world = spread();
        let choose = |cpu: &Processor<'_>| {
            for _ in 0..4 {
                let own = u64::from(cpu.number()) + 1;
                let at = cpu.space().mmap(0, 2 * PAGE, RW, ANYWHERE).unwrap();
                assert_eq!(cpu.load(at), Ok(0), "a page of another writer");
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

/// A mapping lies in two shards, and writers of both unmap it concurrently: it is retired once.
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
    with_flaw(Mutant::PagesCountedPlainly, in_two_parts);
}

/// A writer across a shard waits for a replacement there, and keeps no operation out of the rest
/// of the space.
#[test]
fn a_waiter_across_domains_keeps_no_fork_out() {
    explore_under(POLICIES, 300, |_| {
        let world = spread();
        let at = (MIDDLE + 2) * PAGE;
        world.map(MIDDLE - 2, 6, RW);
        (MIDDLE - 2..MIDDLE + 4).for_each(|page| world.cpu().store(page * PAGE, 7).unwrap());
        let machine = world.space().memory().machine();
        machine.shut_gate(1);
        let mapper = world.run(1, move |cpu| {
            assert_eq!(cpu.space().mmap(at, PAGE, RW, FIXED), Ok(at));
        });
        machine.await_gate();
        let waiter = world.run(2, move |cpu| {
            let (from, length) = ((MIDDLE - 2) * PAGE, 6 * PAGE);
            cpu.space().mprotect(from, length, PROT_READ).unwrap();
            cpu.load(at)
        });
        let child = world.space().fork().unwrap();
        assert_eq!(world.word_of(&child, MIDDLE + 2), 0);
        assert_eq!(world.word_of(&child, MIDDLE + 3), 7);
        machine.open_gate();
        mapper.join().unwrap();
        assert_eq!(waiter.join().unwrap(), Ok(0));
        world.finish_with(vec![child]);
    });
}
