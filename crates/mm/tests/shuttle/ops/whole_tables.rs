//! Whole tables that move, beside faults, stores, discards and forks. A claim in such a table stays with its
//! claimer. No operation stores, keeps a claim, or looks for a page at the table's old place.

use std::sync::Arc;

use crate::model::{PAGE, RW, World, explore, explore_under};
use faultless_mm::{Errno, Policy, SegvCode, advice, remap_flags};
use faultless_sync::{Mutant, with_flaw};

/// Under the other policies the mmap lock makes a discard wait for a move, as in Linux.
const POLICIES: &[Policy] = &[Policy::Speculative];
const MOVE: u32 = remap_flags::MAYMOVE | remap_flags::FIXED;
const COPY: u32 = MOVE | remap_flags::DONTUNMAP;

/// Whole tables move while a fault and a discard are at work in them. Their claims stay theirs. No page is
/// lost, and none is left at the old place.
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
    // The first touch of a page that may be at either place.
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

/// The claim of a discard moves with the table, and is not found at the old place.
#[test]
#[should_panic]
fn broken_whole_table_with_claims() {
    with_flaw(Mutant::ClaimedTableMoved, || explore(2000, whole_tables));
}

/// A discard begins in a table where its pages are empty, and has claims in the next table. A move of both
/// tables must not wait for these claims with the first table hidden, because the discard looks there before
/// it releases them.
fn discards_from_an_empty_part(policy: Policy) {
    let world = World::new(3, policy);
    // A move waits for the claim of a huge page before it is shown, and that is what opens the gate.
    world.keep_small();
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

/// Opens the gate once a move to page 32 is shown, or a little later.
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

/// The move and the discard wait for each other.
#[test]
#[should_panic(expected = "exceeded max_steps")]
fn broken_move_that_waits_with_tables_hidden() {
    with_flaw(Mutant::WaitsWithTablesHidden, || {
        explore_under(POLICIES, 1000, discards_from_an_empty_part);
    });
}

/// A table moves away, and its source stays mapped. A discard that waited for an entry of the table finds the
/// next one at its new place. The discard keeps no claim there, because it would never release it.
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

/// A claim stays where no operation releases it.
#[test]
#[should_panic(expected = "exceeded max_steps")]
fn broken_discard_of_a_table_that_left() {
    with_flaw(Mutant::PlaceNotValidated, || {
        explore_under(POLICIES, 1000, discards_where_a_table_was);
    });
}

/// A CPU with the old translation does not store through it once the page has moved.
fn stores_by_the_old_address(policy: Policy) {
    let world = World::new(2, policy);
    // The remaining pages keep the upper tables, so that no flush for those covers this move.
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
