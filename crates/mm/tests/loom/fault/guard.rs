//! Loom models of guards beside faults on the same page. Once a guard is installed, every access faults,
//! whatever a TLB holds, and no fault puts a page over the guard.
//!
//! At most four preemptions with two CPUs, two with three.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::model::{PAGE, Processor, RW, Space, World, explore, with_lazy_tlbs};
use faultless_mm::{Access, Outcome, Policy, SegvCode, advice};
use faultless_sync::{Mutant, with_flaw};

const BARRED: Outcome = Outcome::Segv(SegvCode::MapErr);
const OLD: u64 = 7;

fn install(space: &Space) {
    space.madvise(0, PAGE, advice::GUARD_INSTALL).unwrap();
}

fn remove(space: &Space) {
    space.madvise(0, PAGE, advice::GUARD_REMOVE).unwrap();
}

/// A first touch of a page, with or without a page table, while a guard is installed.
fn a_first_touch(policy: Policy, has_table: bool) {
    explore(Some(4), move || {
        let world = World::new(2, policy);
        world.map(0, 2, RW);
        if has_table {
            world.cpu().store(PAGE, OLD).unwrap();
        }
        let fault = world.run(1, |cpu| cpu.space().fault(0, Access::Write));
        install(world.space());
        let outcome = fault.join().unwrap();
        assert!(
            [Outcome::Resolved, BARRED].contains(&outcome),
            "{outcome:?}"
        );
        let again = world.space().fault(0, Access::Read);
        assert_eq!(again, BARRED, "a guard is missing");
        let census = world.finish();
        assert_eq!(census.pages, u64::from(has_table));
    });
}

#[test]
fn a_first_touch_beside_installation() {
    for &policy in Policy::ALL {
        a_first_touch(policy, true);
    }
    a_first_touch(Policy::Speculative, false);
}

#[test]
#[should_panic(expected = "a guard is missing")]
fn broken_claims_not_awaited() {
    with_flaw(Mutant::ClaimsNotAwaited, || {
        a_first_touch(Policy::Speculative, true);
    });
}

/// CPU 1 has the page in its TLB. A child shares the frame, so that it is not freed.
fn what_a_tlb_holds() {
    explore(Some(4), || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 1, RW);
        Processor::new(world.space(), 1).store(0, OLD).unwrap();
        let child = world.space().fork().unwrap();
        Processor::new(world.space(), 1).load(0).unwrap();
        let installed = Arc::new(AtomicBool::new(false));
        let reader = {
            let installed = installed.clone();
            world.run(1, move |cpu| {
                let late = installed.load(Relaxed);
                let loaded = cpu.load(0);
                assert!(!late || loaded.is_err(), "a guard is passed");
                assert!([Ok(OLD), Err(SegvCode::MapErr)].contains(&loaded));
            })
        };
        install(world.space());
        installed.store(true, Relaxed);
        reader.join().unwrap();
        assert_eq!(world.word_of(&child, 0), OLD);
        world.finish_with(vec![child]);
    });
}

#[test]
fn no_access_gets_past_a_guard() {
    what_a_tlb_holds();
}

#[test]
#[should_panic(expected = "a guard is passed")]
fn broken_installation_without_a_flush() {
    with_lazy_tlbs(what_a_tlb_holds);
}

/// A store while the guard is removed either faults or survives.
#[test]
fn a_store_beside_removal() {
    for &policy in Policy::ALL {
        explore(Some(4), move || {
            let world = World::new(2, policy);
            world.map(0, 1, RW);
            install(world.space());
            let writer = world.run(1, |cpu| cpu.store(0, 5).is_ok());
            remove(world.space());
            let stored = writer.join().unwrap();
            let expected = if stored { 5 } else { 0 };
            assert_eq!(world.cpu().load(0), Ok(expected));
            world.finish();
        });
    }
}

/// Two CPUs install guards; each may meet an entry that the other has claimed.
#[test]
fn two_installations() {
    explore(Some(2), || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 2, RW);
        world.cpu().store(PAGE, OLD).unwrap();
        let other = world.run(1, |cpu| {
            let space = cpu.space();
            space.madvise(0, 2 * PAGE, advice::GUARD_INSTALL).unwrap();
        });
        let space = world.space();
        space.madvise(0, 2 * PAGE, advice::GUARD_INSTALL).unwrap();
        other.join().unwrap();
        for page in 0..2 {
            assert_eq!(space.fault(page * PAGE, Access::Write), BARRED);
        }
        assert_eq!(world.finish().pages, 0);
    });
}
