//! A move beside forks, faults, discards and truncations. A fork waits for it, and the child has the moved
//! pages at one of the two places, as they were at one moment.
//!
//! Here the offsets of the pages within their tables change; `whole_tables.rs` has the other case.

use std::sync::Arc;

use crate::model::{FIXED, PAGE, Processor, RW, Space, World, explore, explore_under};
use faultless_mm::{
    MemoryObject, Opened, Policy, SegvCode, Taken, advice, flags, lock_all_flags, remap_flags,
};
use faultless_sync::{Mutant, with_flaw};

/// Under the other policies the mmap lock makes a fork wait for a move, as in Linux.
const POLICIES: &[Policy] = &[Policy::Speculative];
const MOVE: u32 = remap_flags::MAYMOVE | remap_flags::FIXED;
const COPY: u32 = MOVE | remap_flags::DONTUNMAP;

/// Pages that move to other offsets within their tables.
const FROM: u64 = 0;
const COUNT: u64 = 16;
const TO: u64 = 34;

fn move_them(cpu: &Processor<'_>, how: u32) {
    let (from, length, to) = (FROM * PAGE, COUNT * PAGE, TO * PAGE);
    assert_eq!(cpu.space().mremap(from, length, length, how, to), Ok(to));
}

fn world() -> Arc<World> {
    let world = World::new(4, Policy::Speculative);
    world.map(0, 24, RW);
    (0..24).for_each(|page| world.cpu().store(page * PAGE, 100 + page).unwrap());
    world
}

/// CPU 1 moves pages, and is stopped in its first flush: of the moved pages, or of the old pages at the
/// target. A fault at the target waits, and so does a fork: the child has all pages at the target.
fn stopped(how: u32, world: Arc<World>) {
    let machine = world.space().memory().machine();
    machine.shut_gate(1);
    let mover = world.run(1, move |cpu| move_them(cpu, how));
    machine.await_gate();
    let waiter = world.run(2, |cpu| {
        let (first, last) = (TO * PAGE, (TO + COUNT - 1) * PAGE);
        (cpu.load(first), cpu.set_bits(last, 1 << 20))
    });
    let opener = world.run(3, |cpu| cpu.space().memory().machine().open_gate());
    let child = world.space().fork().unwrap();
    opener.join().unwrap();
    mover.join().unwrap();
    assert_eq!(waiter.join().unwrap(), (Ok(100 + FROM), Ok(())));
    world.cpu().store(TO * PAGE, 1).unwrap();
    for page in 0..COUNT {
        let set = if page == COUNT - 1 { 1 << 20 } else { 0 };
        let word = world.word_of(&child, TO + page) & !set;
        assert_eq!(word, 100 + FROM + page);
    }
    assert_eq!(world.word_of(&child, FROM + COUNT), 100 + FROM + COUNT);
    let before = match how == COPY {
        true => Ok(0),
        false => Err(SegvCode::MapErr),
    };
    assert_eq!(world.cpu().load(FROM * PAGE), before);
    assert_eq!(child.lookup(FROM * PAGE).is_some(), how == COPY);
    world.finish_with(vec![child]);
}

#[test]
fn a_fork_waits_for_a_move() {
    explore_under(POLICIES, 300, |_| stopped(MOVE, world()));
}

#[test]
fn a_fork_waits_for_a_move_that_leaves_its_source_mapped() {
    explore_under(POLICIES, 300, |_| stopped(COPY, world()));
}

/// The child has nothing of the old pages at the target.
#[test]
fn a_fork_waits_for_a_move_over_something_else() {
    explore_under(POLICIES, 300, |_| {
        let world = world();
        world.map(TO - 1, COUNT + 2, RW);
        (TO - 1..TO + COUNT + 1).for_each(|page| world.cpu().store(page * PAGE, 7).unwrap());
        stopped(MOVE, world);
    });
}

/// A fork at any moment of a move, beside stores to the moving pages at either place. The child has the first
/// of two stores if it has the second, and has all pages at the same one of the two places.
fn in_any_moment(policy: Policy) -> (Arc<World>, Space) {
    let world = World::new(4, policy);
    world.map(0, 24, RW);
    // Moving pages in different tables, between two pages that stay.
    const PAGES: [u64; 4] = [20, FROM, FROM + COUNT - 1, 21];
    for page in PAGES {
        world.cpu().store(page * PAGE, 1).unwrap();
    }
    let goes_to = |page: u64| match page {
        20 | 21 => page,
        _ => page - FROM + TO,
    };
    let writer = world.run(2, move |cpu| {
        for round in 2..5 {
            for page in PAGES {
                let at = [page * PAGE, goes_to(page) * PAGE];
                while !at.iter().any(|at| cpu.store(*at, round).is_ok()) {
                    shuttle::thread::yield_now();
                }
            }
        }
    });
    let mover = world.run(1, |cpu| move_them(cpu, MOVE));
    let child = world.space().fork().unwrap();
    writer.join().unwrap();
    mover.join().unwrap();
    let has_moved = child.lookup(TO * PAGE).is_some();
    assert_eq!(child.lookup(FROM * PAGE).is_none(), has_moved);
    let words = PAGES.map(|page| match has_moved {
        true => world.word_of(&child, goes_to(page)),
        false => world.word_of(&child, page),
    });
    let in_order = words.is_sorted_by(|a, b| a >= b);
    assert!(in_order && words[3] >= 1, "a store without an earlier one");
    for page in PAGES {
        assert_eq!(world.cpu().load(goes_to(page) * PAGE), Ok(4));
        world.cpu().store(goes_to(page) * PAGE, 5).unwrap();
    }
    let again = PAGES.map(|page| match has_moved {
        true => world.word_of(&child, goes_to(page)),
        false => world.word_of(&child, page),
    });
    assert_eq!(again, words, "the child sees what its parent does");
    (world, child)
}

#[test]
fn the_child_has_what_moves_as_it_was_at_one_moment() {
    explore(2000, |policy| {
        let (world, child) = in_any_moment(policy);
        world.finish_with(vec![child]);
    });
}

/// Two moves and two forks, which may run out of memory.
#[test]
fn forks_that_fail_leave_a_move_as_it_was() {
    explore(1000, |policy| {
        let world = World::new(4, policy);
        world.map(0, 24, RW);
        (0..24).for_each(|page| world.cpu().store(page * PAGE, 100 + page).unwrap());
        let mover = world.run(1, |cpu| move_them(cpu, MOVE));
        let other = world.run(2, |cpu| {
            let (from, length) = (16 * PAGE, 3 * PAGE);
            let moved = cpu.space().mremap(from, length, length, COPY, 50 * PAGE);
            assert_eq!(moved, Ok(50 * PAGE));
        });
        let forker = world.run(3, |cpu| cpu.space().fork().ok());
        let children = [world.space().fork().ok(), forker.join().unwrap()];
        mover.join().unwrap();
        other.join().unwrap();
        let children: Vec<_> = children.into_iter().flatten().collect();
        for child in &children {
            for (from, to) in [(FROM, TO), (FROM + 9, TO + 9), (16, 50), (18, 52)] {
                let words = [from, to].map(|page| match child.lookup(page * PAGE) {
                    Some(_) => world.word_of(child, page),
                    None => 0,
                });
                assert_eq!(words.iter().sum::<u64>(), 100 + from, "{words:?}");
            }
        }
        world.finish_with(children);
    });
}

/// A pinned page is copied for the child, wherever it is; a guard is a guard in the child, too.
#[test]
fn what_is_pinned_or_a_guard_goes_along() {
    explore(1000, |policy| {
        let world = World::new(2, policy);
        world.map(0, 24, RW);
        (0..24).for_each(|page| world.cpu().store(page * PAGE, 100 + page).unwrap());
        let guard = FROM + 9;
        let space = world.space();
        space
            .madvise(guard * PAGE, PAGE, advice::GUARD_INSTALL)
            .unwrap();
        let pin = space.pin(FROM * PAGE, Taken::ToWrite).ok().unwrap();
        let mover = world.run(1, |cpu| move_them(cpu, MOVE));
        let child = world.space().fork().unwrap();
        mover.join().unwrap();
        let has_moved = child.lookup(TO * PAGE).is_some();
        let at = |page: u64| if has_moved { page - FROM + TO } else { page };
        // A store seen through the parent's pin does not reach the child.
        world.cpu().store(TO * PAGE, 7).unwrap();
        assert_eq!(world.word_of(&child, at(FROM)), 100 + FROM);
        let guarded = Processor::new(&child, 0).load(at(guard) * PAGE);
        assert_eq!(guarded, Err(SegvCode::MapErr), "the guard is lost");
        let machine = world.space().memory().machine();
        assert_eq!(machine.word(pin.frame()), 7);
        drop(pin);
        world.finish_with(vec![child]);
    });
}

/// A file's pages and private copies of them: a truncation removes them from the child, too, wherever they
/// were at the fork.
#[test]
fn a_truncation_finds_what_moved_in_the_child() {
    explore(1000, |policy| {
        let world = World::new(3, policy);
        let store = MemoryObject::new(world.space().memory(), 20 * PAGE, None, 0).unwrap();
        let opened = Opened {
            store: Ok(&store),
            offset: 0,
            file: 0,
            writable: true,
        };
        let space = world.space();
        let how = flags::PRIVATE | flags::FIXED;
        space.mmap_object(0, 20 * PAGE, RW, how, &opened).unwrap();
        (0..20).for_each(|page| world.cpu().store_file(page * PAGE, 1).unwrap());
        let mover = world.run(1, |cpu| move_them(cpu, MOVE));
        let truncating = world.run(2, move |_| store.truncate(0).unwrap());
        let child = world.space().fork().unwrap();
        mover.join().unwrap();
        truncating.join().unwrap();
        for cpu in [world.cpu(), Processor::new(&child, 0)] {
            for page in [FROM, FROM + COUNT - 1, TO, TO + COUNT - 1, 19] {
                let seen = cpu.load_file(page * PAGE);
                assert!(seen.is_err(), "page {page} outlived the truncation");
            }
        }
        world.finish_with(vec![child]);
    });
}

/// `MAP_FIXED` replaces pages next to a move's source, while `mlockall` locks everything.
#[test]
fn two_replacements_beside_each_other() {
    explore_under(POLICIES, 1000, |_| {
        let world = World::new(4, Policy::Speculative);
        world.map(0, 24, RW);
        (0..24).for_each(|page| world.cpu().store(page * PAGE, 100 + page).unwrap());
        let mapper = world.run(2, |cpu| {
            assert_eq!(cpu.space().mmap(0, 3 * PAGE, RW, FIXED), Ok(0));
        });
        let mover = world.run(1, |cpu| {
            let (from, length, to) = (3 * PAGE, 5 * PAGE, 40 * PAGE);
            assert_eq!(cpu.space().mremap(from, length, length, COPY, to), Ok(to));
        });
        let locker = world.run(3, |cpu| {
            let current = lock_all_flags::CURRENT | lock_all_flags::ONFAULT;
            cpu.space().mlockall(current).unwrap();
            cpu.load(5 * PAGE).unwrap();
        });
        [mapper, mover, locker]
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        for (page, word) in [
            (0, 0),
            (2, 0),
            (3, 0),
            (7, 0),
            (8, 108),
            (40, 103),
            (44, 107),
        ] {
            assert_eq!(world.cpu().load(page * PAGE), Ok(word), "page {page}");
        }
        world.finish();
    });
}

/// DONTNEED walks its range while a page from the end moves to the front, and another page moves away and
/// back. The first page is in the range throughout, and must be discarded. If DONTNEED found no hole, so must
/// the second.
fn discards_what_moves() {
    explore(1000, |policy| {
        let world = World::new(3, policy);
        world.map(0, 24, RW);
        for page in [8, 20] {
            world.cpu().store(page * PAGE, 7).unwrap();
        }
        let move_page = |cpu: &Processor<'_>, from: u64, to: u64| {
            let moved = cpu.space().mremap(from * PAGE, PAGE, PAGE, MOVE, to * PAGE);
            assert_eq!(moved, Ok(to * PAGE));
        };
        let mover = world.run(1, move |cpu| {
            move_page(cpu, 8, 40);
            move_page(cpu, 40, 8);
            move_page(cpu, 20, 0);
        });
        let discarded = world.space().madvise(0, 24 * PAGE, advice::DONTNEED);
        mover.join().unwrap();
        assert_eq!(
            world.cpu().load(0),
            Ok(0),
            "kept what moved ahead, {discarded:?}"
        );
        if discarded.is_ok() {
            assert_eq!(world.cpu().load(8 * PAGE), Ok(0), "kept what was away");
        }
        world.finish();
    });
}

#[test]
fn discarding_keeps_nothing_that_moves() {
    discards_what_moves();
}

#[test]
#[should_panic(expected = "kept what")]
fn broken_discarding_beside_moves() {
    with_flaw(Mutant::MovesNotCounted, discards_what_moves);
}

/// A store to a page after its discard stays, whatever moves elsewhere.
#[test]
fn discarding_is_done_once_beside_moves_elsewhere() {
    explore(700, |policy| {
        let world = World::new(3, policy);
        world.map(0, 24, RW);
        world.map(40, 4, RW);
        world.cpu().store(0, 7).unwrap();
        let mover = world.run(1, |cpu| {
            for (from, to) in [(40, 60), (60, 40)] {
                let moved = cpu.space().mremap(from * PAGE, PAGE, PAGE, MOVE, to * PAGE);
                assert_eq!(moved, Ok(to * PAGE));
            }
        });
        let writer = world.run(2, |cpu| {
            let is_zero = cpu.load(0) == Ok(0);
            if is_zero {
                cpu.store(0, 9).unwrap();
            }
            is_zero
        });
        let length = 24 * PAGE;
        assert_eq!(world.space().madvise(0, length, advice::DONTNEED), Ok(()));
        mover.join().unwrap();
        let expected = if writer.join().unwrap() { 9 } else { 0 };
        assert_eq!(world.cpu().load(0), Ok(expected));
        world.finish();
    });
}
