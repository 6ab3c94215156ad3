//! Loom model (b) on whole operations: `munmap` frees a table (rule R5).
//!
//! Meanwhile a neighbour's fault looks into the table, and may have to install the next one. In other models
//! a fault, or a table walk, still has the table.
//!
//! At most three preemptions in the quick form.

use crate::model::{FIXED, PAGE, RW, World, explore};
use faultless_mm::{Access, Outcome, Policy, SegvCode, Taken, flags};
use faultless_sync::{Mutant, with_flaw};

const MAP_ERR: Outcome = Outcome::Segv(SegvCode::MapErr);

/// Pages 0 and 1 share a table. Page 0 is touched and unmapped while a stack grows into page 1.
///
/// No other mapping can appear there during a zap, and tables under a mapping stay. The model `free.rs` of
/// `faultless-paging` shows that a fault validates the link. Here the second look at what is mapped, after
/// the claim, would save the page.
fn a_neighbours_first_touch() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 1, RW);
        let stack = FIXED | flags::GROWSDOWN;
        world.space().mmap(2 * PAGE, 2 * PAGE, RW, stack).unwrap();
        assert_eq!(world.space().fault(0, Access::Write), Outcome::Resolved);
        let neighbour = world.run(1, |cpu| cpu.space().fault(PAGE, Access::Write));
        world.space().munmap(0, PAGE).unwrap();
        let pages = match neighbour.join().unwrap() {
            // Page 0 was in the stack's guard gap.
            MAP_ERR => 0,
            outcome => {
                assert_eq!(outcome, Outcome::Resolved);
                1
            }
        };
        assert_eq!(world.finish().pages, pages, "the neighbour's page is lost");
    });
}

#[test]
fn a_table_is_freed_beside_a_first_touch() {
    a_neighbours_first_touch();
}

#[test]
#[should_panic(expected = "was not counted right")]
fn broken_table_not_scanned() {
    with_flaw(Mutant::TableNotScanned, a_neighbours_first_touch);
}

/// The table is freed as soon as its readers allow, while a late fault still looks for it. The fault must not
/// look into a free frame.
fn a_table_and_a_late_fault() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 1, RW);
        assert_eq!(world.space().fault(0, Access::Write), Outcome::Resolved);
        let late = world.run(1, |cpu| cpu.space().fault(0, Access::Read));
        world.space().munmap(0, PAGE).unwrap();
        world.space().memory().expedite();
        let outcome = late.join().unwrap();
        assert!([Outcome::Resolved, MAP_ERR].contains(&outcome));
        assert_eq!(world.finish().pages, 0);
    });
}

#[test]
fn a_table_outlives_a_fault_that_looks_into_it() {
    a_table_and_a_late_fault();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_table_not_retired() {
    with_flaw(Mutant::TableNotRetired, a_table_and_a_late_fault);
}

/// A CPU loads from both pages of a table, and has the table in its walk cache. Meanwhile the last page and
/// the table are freed: no walk cache holds the table by then.
fn a_table_and_a_walk() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 1, RW);
        assert_eq!(world.space().fault(0, Access::Write), Outcome::Resolved);
        let walker = world.run(1, |cpu| {
            for page in [1, 0] {
                let loaded = cpu.load(page * PAGE);
                assert!([Ok(0), Err(SegvCode::MapErr)].contains(&loaded));
            }
        });
        world.space().munmap(0, PAGE).unwrap();
        walker.join().unwrap();
        for _ in 0..4 {
            world.space().memory().expedite();
        }
        assert_eq!(world.space().memory().deferred(), 0);
        assert_eq!(world.finish().pages, 0);
    });
}

#[test]
fn a_table_is_in_no_walk_cache_when_it_is_free() {
    a_table_and_a_walk();
}

#[test]
#[should_panic(expected = "a walk cache holds a table that is freed")]
fn broken_table_not_flushed() {
    with_flaw(Mutant::TableNotFlushed, a_table_and_a_walk);
}

/// Two CPUs unmap one page each, and each may find the table empty. `pinned` pages stay in the table until
/// the flush, where the other CPU sees them.
fn two_that_empty_a_table(pinned: bool) {
    explore(Some(if pinned { 2 } else { 3 }), move || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 1, RW);
        world.map(1, 1, RW);
        assert_eq!(world.space().fault(0, Access::Write), Outcome::Resolved);
        assert_eq!(world.space().fault(PAGE, Access::Write), Outcome::Resolved);
        let pins = pinned
            .then(|| [0, PAGE].map(|page| world.space().pin(page, Taken::ToRead).ok().unwrap()));
        let other = world.run(1, |cpu| cpu.space().munmap(PAGE, PAGE));
        world.space().munmap(0, PAGE).unwrap();
        other.join().unwrap().unwrap();
        drop(pins);
        let census = world.finish();
        assert_eq!((census.pages, census.mapped), (0, 0));
        assert_eq!(census.tables, 1, "a table is left");
    });
}

#[test]
fn the_last_of_two_frees_their_table() {
    two_that_empty_a_table(false);
}

#[test]
fn the_last_of_two_that_have_kept_their_pages_frees_their_table() {
    two_that_empty_a_table(true);
}

#[test]
#[should_panic(expected = "a table is left")]
fn broken_not_looked_again() {
    with_flaw(Mutant::TablesLookedAtOnce, || two_that_empty_a_table(true));
}

#[test]
#[should_panic(expected = "a table is left")]
fn broken_looked_without_a_fence() {
    with_flaw(Mutant::TablesLookedAtWithoutFence, || {
        two_that_empty_a_table(false)
    });
}
