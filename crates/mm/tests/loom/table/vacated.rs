//! A huge page takes the place of an empty table, beside what works in that table meanwhile.
//!
//! * No store is lost, whichever of two faults is faster.
//! * What is unmapped meanwhile is unmapped; a fork is a snapshot.
//! * No walk cache holds a table that is freed.
//!
//! A huge page has two pages here: 0 and 1. At most three preemptions in the quick form.

use std::sync::Arc;

use crate::model::{PAGE, RW, World, explore, with_lazy_tlbs, with_marks};
use faultless_mm::{Access, Counter, HugeMode, Policy, advice};
use faultless_sync::{Mutant, with_flaw};

/// An empty table over pages 0 and 1, in which huge pages are wanted.
fn vacated(cpus: u32) -> Arc<World> {
    let world = World::huge(cpus, Policy::Speculative);
    world.space().memory().set_huge_mode(HugeMode::Never);
    world.map(0, 2, RW);
    world.cpu().store(0, 1).unwrap();
    world.space().madvise(0, PAGE, advice::DONTNEED).unwrap();
    world.space().memory().set_huge_mode(HugeMode::Always);
    world
}

fn huge_pages(world: &World) -> u64 {
    world.space().memory().total(Counter::ThpFaultAlloc)
}

/// Two CPUs store to a page each.
fn two_stores() {
    explore(Some(3), || {
        let world = vacated(2);
        let thread = world.run(1, |cpu| cpu.set_bits(0, 2).unwrap());
        world.cpu().set_bits(PAGE, 4).unwrap();
        thread.join().unwrap();
        let found = [0, 1].map(|page| world.cpu().load(page * PAGE));
        assert_eq!(found, [Ok(2), Ok(4)], "a store is lost");
        assert_eq!(world.finish().pages, 2);
    });
}

#[test]
fn a_store_alone() {
    explore(None, || {
        let world = vacated(1);
        world.cpu().set_bits(PAGE, 4).unwrap();
        assert_eq!(huge_pages(&world), 1);
        let census = world.finish();
        // The root alone.
        assert_eq!((census.pages, census.tables), (2, 1));
    });
}

#[test]
fn beside_another_store() {
    two_stores();
    with_marks(two_stores);
}

#[test]
#[should_panic]
fn broken_walk_caches_not_flushed() {
    with_lazy_tlbs(two_stores);
}

/// CPU 1 unmaps page 1, and the table, if it is empty then.
#[test]
fn beside_an_unmap() {
    explore(Some(3), || {
        let world = vacated(2);
        let thread = world.run(1, |cpu| cpu.space().munmap(PAGE, PAGE).unwrap());
        world.cpu().store(0, 2).unwrap();
        thread.join().unwrap();
        assert_eq!(world.cpu().load(0), Ok(2));
        assert!(world.cpu().load(PAGE).is_err());
        assert_eq!(world.finish().pages, 1);
    });
}

/// CPU 1 discards a page.
#[test]
fn beside_a_discard() {
    explore(Some(3), || {
        let world = vacated(2);
        let thread = world.run(1, |cpu| {
            cpu.space().madvise(PAGE, PAGE, advice::DONTNEED).unwrap();
        });
        world.cpu().store(0, 2).unwrap();
        thread.join().unwrap();
        assert_eq!(
            [0, 1].map(|page| world.cpu().load(page * PAGE)),
            [Ok(2), Ok(0)]
        );
        world.finish();
    });
}

/// CPU 1 installs a guard into an empty entry.
fn a_store_beside_a_guard() {
    explore(Some(3), || {
        let world = vacated(2);
        let thread = world.run(1, |cpu| {
            cpu.space()
                .madvise(PAGE, PAGE, advice::GUARD_INSTALL)
                .unwrap();
        });
        world.cpu().store(0, 2).unwrap();
        thread.join().unwrap();
        assert_eq!(world.cpu().load(0), Ok(2));
        assert!(world.cpu().load(PAGE).is_err(), "the guard is lost");
        world.finish();
    });
}

#[test]
fn beside_a_guard() {
    a_store_beside_a_guard();
}

#[test]
#[should_panic(expected = "the guard is lost")]
fn broken_not_looked_at_again() {
    with_flaw(Mutant::VacatedNotLookedAtAgain, a_store_beside_a_guard);
}

#[test]
#[should_panic(expected = "the guard is lost")]
fn broken_link_not_validated() {
    with_flaw(Mutant::LinkNotValidated, a_store_beside_a_guard);
}

/// CPU 1 forks: the child has the store, or not, and keeps what it has.
#[test]
fn beside_a_fork() {
    explore(Some(2), || {
        let world = vacated(2);
        let thread = world.run(1, |cpu| cpu.space().fork().unwrap());
        world.cpu().store(0, 2).unwrap();
        let child = thread.join().unwrap();
        world.cpu().store(0, 3).unwrap();
        assert_eq!(
            child.fault(0, Access::Read),
            faultless_mm::Outcome::Resolved
        );
        world.finish_with(vec![child]);
    });
}
