//! Loom models of operations beside a zap: a fork, a fault, another zap, and a move of pages. The pages move
//! into a table that the zap of a neighbour would free (rule R5).
//!
//! At most two preemptions in the quick form.

use crate::model::{PAGE, RW, World, explore};
use faultless_mm::{Policy, SegvCode, remap_flags};
use faultless_sync::{Mutant, with_flaw};

const MOVE: u32 = remap_flags::MAYMOVE | remap_flags::FIXED;

/// Pages 0 and 1 share a table. Page 0 is unmapped while page 2 moves to page 1: the table is needed,
/// although it is briefly empty.
fn moved_beside_a_zap(preemptions: usize) {
    explore(Some(preemptions), || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 1, RW);
        world.map(2, 1, RW);
        world.cpu().store(0, 4).unwrap();
        world.cpu().store(2 * PAGE, 5).unwrap();
        let zapper = world.run(1, |cpu| cpu.space().munmap(0, PAGE));
        let moved = world.space().mremap(2 * PAGE, PAGE, PAGE, MOVE, PAGE);
        assert_eq!(moved, Ok(PAGE));
        assert_eq!(
            world.cpu().load(PAGE),
            Ok(5),
            "a page is lost that was moved"
        );
        zapper.join().unwrap().unwrap();
        assert_eq!(world.cpu().load(0), Err(SegvCode::MapErr));
        assert_eq!(world.finish().pages, 1);
    });
}

#[test]
fn a_page_moves_to_a_table_that_a_zap_has_emptied() {
    moved_beside_a_zap(2);
}

#[test]
#[should_panic]
fn broken_vacancy_not_asked_again() {
    with_flaw(Mutant::VacancyNotAskedAgain, || moved_beside_a_zap(3));
}

/// A fork beside the unmap of one of two pages. The child has that mapping whole or not at all, and no mark
/// stays in either space.
#[test]
fn a_fork_beside_a_zap() {
    explore(Some(2), || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 1, RW);
        world.map(1, 1, RW);
        world.cpu().store(0, 4).unwrap();
        world.cpu().store(PAGE, 5).unwrap();
        let zapper = world.run(1, |cpu| cpu.space().munmap(0, PAGE));
        let child = world.space().fork().unwrap();
        zapper.join().unwrap().unwrap();
        assert_eq!(world.word_of(&child, 1), 5);
        let has_page = child.lookup(0).is_some();
        assert_eq!(world.word_of(&child, 0), if has_page { 4 } else { 0 });
        assert_eq!(world.space().mmap(0, PAGE, RW, crate::model::FIXED), Ok(0));
        world.finish_with(vec![child]);
    });
}

/// Two unused pages are unmapped beside the first fault on them. The zap also frees a page and tables that
/// this fault installs. Page 2 keeps the table above.
fn unused_beside_a_fault(preemptions: usize) {
    explore(Some(preemptions), || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 3, RW);
        world.cpu().store(2 * PAGE, 5).unwrap();
        let user = world.run(1, |cpu| cpu.store(0, 4));
        world.space().munmap(0, 2 * PAGE).unwrap();
        assert_eq!(world.cpu().load(0), Err(SegvCode::MapErr));
        let stored = user.join().unwrap();
        assert!(matches!(stored, Ok(()) | Err(SegvCode::MapErr)));
        assert_eq!(world.cpu().load(2 * PAGE), Ok(5));
        assert_eq!(world.finish().pages, 1);
    });
}

#[test]
fn what_was_never_used_goes_beside_a_fault() {
    unused_beside_a_fault(3);
}

#[test]
#[should_panic]
fn broken_looked_for_before_it_is_settled() {
    with_flaw(Mutant::ValidationWithoutFence, || unused_beside_a_fault(3));
}

/// Two unused neighbours under one table are unmapped concurrently: the last unmap frees the table.
#[test]
fn of_two_that_were_never_used_one_takes_the_table() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 2, RW);
        world.map(2, 2, RW);
        let other = world.run(1, |cpu| cpu.space().munmap(2 * PAGE, 2 * PAGE));
        world.space().munmap(0, 2 * PAGE).unwrap();
        other.join().unwrap().unwrap();
        assert_eq!(world.finish().pages, 0);
    });
}
