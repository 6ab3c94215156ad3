//! Loom model (b) on whole operations: `munmap` frees a table while a neighbour's
//! fault looks into it, and may have to install the next one.
//!
//! At most three preemptions in the quick form.
#![cfg(loom)]

mod model;

use faultless_mm::{Access, Outcome, Policy, SegvCode, flags};
use faultless_sync::{Flaw, with_flaw};
use model::{FIXED, PAGE, RW, World, explore};

/// Pages 0 and 1 share a table. Page 0 is touched and unmapped; a stack grows
/// into page 1 meanwhile. (No other mapping can appear there during a zap, and
/// tables under a mapping are left alone.)
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
            // Page 0 was in the guard gap.
            Outcome::Segv(SegvCode::MapErr) => 0,
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
#[should_panic(expected = "frames were lost")]
fn broken_link_not_validated() {
    with_flaw(Flaw::LinkNotValidated, a_neighbours_first_touch);
}

#[test]
#[should_panic(expected = "frames were lost")]
fn broken_table_not_scanned() {
    with_flaw(Flaw::TableNotScanned, a_neighbours_first_touch);
}

/// Both pages go, each by a CPU of its own: each may find the table empty.
#[test]
fn two_that_empty_a_table() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 1, RW);
        world.map(1, 1, RW);
        assert_eq!(world.space().fault(0, Access::Write), Outcome::Resolved);
        assert_eq!(world.space().fault(PAGE, Access::Write), Outcome::Resolved);
        let other = world.run(1, |cpu| cpu.space().munmap(PAGE, PAGE));
        world.space().munmap(0, PAGE).unwrap();
        other.join().unwrap().unwrap();
        let census = world.finish();
        assert_eq!((census.pages, census.mapped), (0, 0));
    });
}
