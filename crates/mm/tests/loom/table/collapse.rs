//! Collapse of small pages beside what uses them meanwhile.
//!
//! * No store is lost: it is in the page before the copy, or in the huge page.
//! * No TLB holds a page that is freed.
//! * A page that appears, goes or is shared meanwhile is either in the huge page, or keeps the span as it is.
//!
//! A huge page has two pages here: 0 and 1. At most three preemptions in the quick form.

use std::sync::Arc;

use crate::model::{PAGE, RW, Space, World, explore, with_lazy_tlbs, with_marks};
use faultless_mm::{Counter, HugeMode, Policy, Taken, advice};
use faultless_sync::{Mutant, with_flaw};

/// Small pages with the words 1 and 2, written by CPU 0.
fn written(cpus: u32) -> std::sync::Arc<World> {
    let world = World::huge(cpus, Policy::Speculative);
    world.space().memory().set_huge_mode(HugeMode::Never);
    world.map(0, 2, RW);
    world.cpu().store(0, 1).unwrap();
    world.cpu().store(PAGE, 2).unwrap();
    world
}

/// Collapses both pages. Returns whether they are a huge page then.
fn collapse(space: &Space) -> bool {
    space.madvise(0, 2 * PAGE, advice::COLLAPSE).is_ok()
}

/// CPU 1 stores to one page and loads the other.
fn a_collapse_beside_stores() {
    explore(Some(3), || {
        let world = written(2);
        let thread = world.run(1, |cpu| {
            cpu.set_bits(PAGE, 8).unwrap();
            assert_eq!(cpu.load(0), Ok(1));
        });
        collapse(world.space());
        thread.join().unwrap();
        assert_eq!(world.cpu().load(PAGE), Ok(10), "a store is lost");
        assert_eq!(world.cpu().load(0), Ok(1));
        assert_eq!(world.finish().pages, 2);
    });
}

#[test]
fn beside_stores() {
    a_collapse_beside_stores();
}

#[test]
#[should_panic]
fn broken_collapse_without_a_flush() {
    with_lazy_tlbs(a_collapse_beside_stores);
}

/// CPU 1 stores to a page for the first time.
#[test]
fn beside_a_first_store() {
    explore(Some(3), || {
        let world = World::huge(2, Policy::Speculative);
        world.space().memory().set_huge_mode(HugeMode::Never);
        world.map(0, 2, RW);
        world.cpu().store(0, 1).unwrap();
        let thread = world.run(1, |cpu| cpu.store(PAGE, 2).unwrap());
        collapse(world.space());
        thread.join().unwrap();
        assert_eq!(
            [0, 1].map(|page| world.cpu().load(page * PAGE)),
            [Ok(1), Ok(2)]
        );
        assert_eq!(world.finish().pages, 2);
    });
}

/// CPU 1 discards a page.
fn a_collapse_beside_a_discard() {
    explore(Some(3), || {
        let world = written(2);
        let thread = world.run(1, |cpu| {
            cpu.space().madvise(PAGE, PAGE, advice::DONTNEED).unwrap();
        });
        collapse(world.space());
        thread.join().unwrap();
        assert_eq!(world.cpu().load(0), Ok(1));
        assert_eq!(world.cpu().load(PAGE), Ok(0));
        world.finish();
    });
}

#[test]
fn beside_a_discard() {
    a_collapse_beside_a_discard();
}

#[test]
#[should_panic]
fn broken_table_emptied() {
    with_flaw(Mutant::CollapsedTableEmptied, a_collapse_beside_a_discard);
}

#[test]
#[should_panic]
fn broken_claims_not_looked_for() {
    with_flaw(Mutant::CollapsedBesideClaims, a_collapse_beside_a_discard);
}

/// CPU 1 unmaps a page.
#[test]
fn beside_an_unmap() {
    explore(Some(2), || {
        let world = written(2);
        let thread = world.run(1, |cpu| cpu.space().munmap(PAGE, PAGE).unwrap());
        collapse(world.space());
        thread.join().unwrap();
        assert_eq!(world.cpu().load(0), Ok(1));
        assert!(world.cpu().load(PAGE).is_err());
        assert_eq!(world.finish().pages, 1);
    });
}

/// CPU 1 collapses the same pages.
#[test]
fn two_collapses() {
    explore(Some(2), || {
        let world = written(2);
        let thread = world.run(1, |cpu| collapse(cpu.space()));
        let is_done = collapse(world.space());
        assert!(thread.join().unwrap() || is_done);
        assert_eq!(
            [0, 1].map(|page| world.cpu().load(page * PAGE)),
            [Ok(1), Ok(2)]
        );
        assert_eq!(world.space().memory().total(Counter::ThpCollapse), 1);
        assert_eq!(world.finish().pages, 2);
    });
}

#[test]
fn beside_stores_where_walks_mark_what_they_load() {
    with_marks(a_collapse_beside_stores);
}

/// A pinned page keeps its frame; what is stored through the pin is seen.
#[test]
fn a_collapse_beside_a_pin() {
    explore(Some(3), || {
        let world = written(2);
        let thread = world.run(1, |cpu| {
            let pin = cpu.space().pin(0, Taken::ToWrite).ok().unwrap();
            let machine = cpu.space().memory().machine();
            machine.set_word(pin.frame(), 5);
            machine.step();
            assert_eq!(cpu.load(0), Ok(5), "the pin is of another page");
        });
        collapse(world.space());
        thread.join().unwrap();
        assert_eq!(
            [0, 1].map(|page| world.cpu().load(page * PAGE)),
            [Ok(5), Ok(2)]
        );
        world.finish();
    });
}

/// A child shares the pages, and keeps them.
#[test]
fn a_collapse_beside_a_child() {
    explore(Some(3), || {
        let world = World::with_others(1, 1, Policy::Speculative);
        world.map(0, 2, RW);
        world.cpu().store(0, 1).unwrap();
        world.cpu().store(PAGE, 2).unwrap();
        let child = Arc::new(world.space().fork().unwrap());
        // Something can be written.
        world.cpu().set_bits(PAGE, 8).unwrap();
        let thread = world.run_in(&child, 1, |cpu| {
            cpu.set_bits(0, 8).unwrap();
            assert_eq!([0, 1].map(|page| cpu.load(page * PAGE)), [Ok(9), Ok(2)]);
        });
        assert!(collapse(world.space()));
        world.cpu().set_bits(PAGE, 4).unwrap();
        assert_eq!(
            [0, 1].map(|page| world.cpu().load(page * PAGE)),
            [Ok(1), Ok(14)]
        );
        thread.join().unwrap();
        let child = Arc::into_inner(child).unwrap();
        world.finish_with(vec![child]);
    });
}
