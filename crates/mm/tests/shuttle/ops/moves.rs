//! A move beside forks, faults, discards and truncations: a fork waits for it, the child has what moves at one of
//! both places, as it was at one moment. Tables move whole where source and target lie alike in them.

use std::sync::Arc;

use crate::model::{FIXED, PAGE, Processor, RW, Space, World, explore, explore_under};
use faultless_mm::{
    Errno, MemoryObject, Opened, Policy, SegvCode, Taken, advice, flags, lock_all_flags,
    remap_flags,
};
use faultless_sync::{Mutant, with_flaw};

/// Under the others a fork waits for a move, as in Linux.
const POLICIES: &[Policy] = &[Policy::Speculative];
const MOVE: u32 = remap_flags::MAYMOVE | remap_flags::FIXED;
const COPY: u32 = MOVE | remap_flags::DONTUNMAP;

/// Pages of tables that go to where they lie otherwise in them.
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

/// CPU 1 moves pages, and is stopped in its first flush: of what has moved, or of what was at the target. A fault
/// at the target waits, and a fork does, too: the child has everything where it goes.
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

/// What was at the target is not the child's.
#[test]
fn a_fork_waits_for_a_move_over_something_else() {
    explore_under(POLICIES, 300, |_| {
        let world = world();
        world.map(TO - 1, COUNT + 2, RW);
        (TO - 1..TO + COUNT + 1).for_each(|page| world.cpu().store(page * PAGE, 7).unwrap());
        stopped(MOVE, world);
    });
}

/// A fork in any moment of a move, beside stores to what moves, wherever it is. The child has the first of
/// two stores if it has the second, and all of it at one of both places.
fn in_any_moment(policy: Policy) -> (Arc<World>, Space) {
    let world = World::new(4, policy);
    world.map(0, 24, RW);
    // One in each table, between two that stay.
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

/// Two moves and two forks, and memory that runs out.
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

/// What is pinned is copied, from wherever it is; a guard is one in the child, too.
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
        // By the parent's pin nothing reaches the child.
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

/// A file's pages and private copies of them: a truncation takes them from the child, too, wherever
/// they were when it was made.
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

/// The source continues what another replaces beside it, and everything is locked.
#[test]
fn two_who_replace_beside_each_other() {
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

/// Pages are discarded in order while one of the last goes to before the first, and another away and back. The
/// first was there all the while; and if all were, so was the second.
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

/// What is stored once a page was seen to be discarded stays, whatever moves elsewhere.
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

/// Whole tables move while a fault, a discard and a truncation are at work in them: what they have claimed stays
/// theirs, and nothing is lost or kept that must not be.
fn whole_tables(policy: Policy) {
    let world = World::new(3, policy);
    world.map(0, 16, RW);
    for page in 0..16 {
        if page != 5 {
            world.cpu().store(page * PAGE, 100 + page).unwrap();
        }
    }
    let discarding = world.run(1, |cpu| {
        let _ = cpu.space().madvise(0, 8 * PAGE, advice::DONTNEED);
    });
    // First touch of a page that may be at either place.
    let toucher = world.run(2, |cpu| {
        while ![5, 37].iter().any(|page| cpu.store(page * PAGE, 7).is_ok()) {
            shuttle::thread::yield_now();
        }
    });
    let moved = world
        .space()
        .mremap(0, 16 * PAGE, 16 * PAGE, MOVE, 32 * PAGE);
    assert_eq!(moved, Ok(32 * PAGE));
    discarding.join().unwrap();
    toucher.join().unwrap();
    for page in 0..16 {
        let word = world.cpu().load((32 + page) * PAGE).unwrap();
        let kept = if page == 5 { 7 } else { 100 + page };
        let may_be = word == kept || word == 0 && page < 8;
        assert!(may_be, "page {page} holds {word}");
        assert_eq!(
            world.cpu().load(page * PAGE),
            Err(SegvCode::MapErr),
            "left behind"
        );
        world.cpu().store((32 + page) * PAGE, 1).unwrap();
    }
    world.finish();
}

#[test]
fn whole_tables_move_beside_claims() {
    explore(2000, whole_tables);
}

/// The claim of a discard goes with the table, and is not found where it was.
#[test]
#[should_panic]
fn broken_whole_table_with_claims() {
    with_flaw(Mutant::ClaimedTableMoved, || explore(2000, whole_tables));
}

/// A discard begins in a table of which its part is empty, and has claims in the next one. A move of both tables
/// does not wait for these with the first one hidden: the discard looks there before it gives them up.
fn discards_from_an_empty_part(policy: Policy) {
    let world = World::new(3, policy);
    world.map(0, 8, RW);
    let touched = || (0..2).chain(4..8);
    for page in touched() {
        world.cpu().store(page * PAGE, 100 + page).unwrap();
    }
    let machine = world.space().memory().machine();
    machine.shut_gate(1);
    let discarding = world.run(1, |cpu| {
        let result = cpu.space().madvise(2 * PAGE, 6 * PAGE, advice::DONTNEED);
        assert!([Ok(()), Err(Errno::ENOMEM)].contains(&result));
    });
    machine.await_gate();
    open_late(&world, 2);
    let moved = world.space().mremap(0, 8 * PAGE, 8 * PAGE, MOVE, 32 * PAGE);
    assert_eq!(moved, Ok(32 * PAGE));
    discarding.join().unwrap();
    for page in touched() {
        let word = world.cpu().load((32 + page) * PAGE).unwrap();
        let may_be = word == 100 + page || word == 0 && page >= 4;
        assert!(may_be, "page {page} holds {word}");
    }
    world.finish();
}

/// Lets flushes go on once a move to page 32 is shown, or a little later.
fn open_late(world: &Arc<World>, cpu: u32) {
    world.run(cpu, |cpu| {
        while cpu.space().lookup(32 * PAGE).is_none() {
            shuttle::thread::yield_now();
        }
        (0..30).for_each(|_| shuttle::thread::yield_now());
        cpu.space().memory().machine().open_gate();
    });
}

#[test]
fn a_move_waits_with_nothing_hidden() {
    explore_under(POLICIES, 1000, discards_from_an_empty_part);
}

/// Each waits for the other.
#[test]
#[should_panic(expected = "exceeded max_steps")]
fn broken_move_that_waits_with_tables_hidden() {
    with_flaw(Mutant::WaitsWithTablesHidden, || {
        explore_under(POLICIES, 1000, discards_from_an_empty_part);
    });
}

/// A table moves away, and what it was taken from is mapped as before. A discard that waits for an entry of it
/// meanwhile finds the next one at its new place: it keeps no claim there, as it would not give it up.
fn discards_where_a_table_was(policy: Policy) {
    let world = World::new(4, policy);
    world.map(0, 8, RW);
    (0..8).for_each(|page| world.cpu().store(page * PAGE, 100 + page).unwrap());
    let machine = world.space().memory().machine();
    machine.shut_gate(1);
    let first = world.run(1, |cpu| {
        assert_eq!(cpu.space().madvise(0, PAGE, advice::DONTNEED), Ok(()));
    });
    machine.await_gate();
    let all = world.run(2, |cpu| {
        assert_eq!(cpu.space().madvise(0, 8 * PAGE, advice::DONTNEED), Ok(()));
    });
    open_late(&world, 3);
    let moved = world.space().mremap(0, 8 * PAGE, 8 * PAGE, COPY, 32 * PAGE);
    assert_eq!(moved, Ok(32 * PAGE));
    first.join().unwrap();
    all.join().unwrap();
    for page in 0..8 {
        assert_eq!(world.cpu().load(page * PAGE), Ok(0));
        let word = world.cpu().load((32 + page) * PAGE).unwrap();
        assert!([0, 100 + page].contains(&word), "page {page} holds {word}");
        world.cpu().store((32 + page) * PAGE, 1).unwrap();
    }
    world.finish();
}

#[test]
fn a_discard_claims_nothing_of_a_table_that_left() {
    explore_under(POLICIES, 1000, discards_where_a_table_was);
}

/// A claim is kept where nothing releases it.
#[test]
#[should_panic(expected = "exceeded max_steps")]
fn broken_discard_of_a_table_that_left() {
    with_flaw(Mutant::PlaceNotValidated, || {
        explore_under(POLICIES, 1000, discards_where_a_table_was);
    });
}

/// A CPU that has the old translation does not store by it when the page is elsewhere.
fn stores_by_the_old_address(policy: Policy) {
    let world = World::new(2, policy);
    // What stays keeps the tables above, so that no flush for their sake takes this in.
    world.map(0, 24, RW);
    world.cpu().store(PAGE, 1).unwrap();
    let writer = world.run(1, |cpu| {
        for _ in 0..6 {
            let _ = cpu.store(PAGE, 7);
            shuttle::thread::yield_now();
        }
    });
    let moved = world.space().mremap(0, 8 * PAGE, 8 * PAGE, MOVE, 32 * PAGE);
    assert_eq!(moved, Ok(32 * PAGE));
    world.cpu().store(33 * PAGE, 9).unwrap();
    writer.join().unwrap();
    assert_eq!(
        world.cpu().load(33 * PAGE),
        Ok(9),
        "stored by the old address"
    );
    world.finish();
}

#[test]
fn no_store_goes_by_the_old_address() {
    explore(2000, stores_by_the_old_address);
}

#[test]
#[should_panic(expected = "stored by the old address")]
fn broken_whole_table_without_flush() {
    with_flaw(Mutant::TableMovedWithoutFlush, || {
        explore(2000, stores_by_the_old_address);
    });
}

/// Pages of a table that has moved whole are shared by a fork, copied, and moved again.
#[test]
fn what_has_moved_whole_is_found_again() {
    explore_under(POLICIES, 300, |_| {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 8, RW);
        (0..8).for_each(|page| world.cpu().store(page * PAGE, 100 + page).unwrap());
        let mover = world.run(1, |cpu| {
            let moved = cpu.space().mremap(0, 8 * PAGE, 8 * PAGE, MOVE, 16 * PAGE);
            assert_eq!(moved, Ok(16 * PAGE));
        });
        let child = world.space().fork().unwrap();
        mover.join().unwrap();
        let at = if child.lookup(0).is_some() { 0 } else { 16 };
        (16..20).for_each(|page| world.cpu().store(page * PAGE, 1).unwrap());
        (0..8).for_each(|page| assert_eq!(world.word_of(&child, at + page), 100 + page));
        let again = world.space().mremap(16 * PAGE, 8 * PAGE, 8 * PAGE, MOVE, 0);
        assert_eq!(again, Ok(0));
        assert_eq!(world.cpu().load(0), Ok(1));
        assert_eq!(world.cpu().load(7 * PAGE), Ok(107));
        world.finish_with(vec![child]);
    });
}
