//! Loom models of soft-dirty bits: a store that begins after a clearing is noticed, whatever TLBs hold and
//! whichever fault runs beside it. The store and the clearing never wait for each other.
//!
//! At most three preemptions in the quick form; beside a writer two.

use std::sync::Arc;

use crate::model::{PAGE, Processor, RW, Space, World, explore};
use faultless_mm::{AtomicU32, PROT_READ, Policy, flags};
use faultless_sync::atomic::Ordering::Relaxed;
use faultless_sync::{Mutant, with_flaw};

const OLD: u64 = 7;
const NEW: u64 = 9;

/// Clears soft-dirty bits, then sets `is_clear`.
fn clear(space: &Space, is_clear: &AtomicU32) {
    // Loom reorders only conflicting accesses; this one conflicts with the beginning of a store.
    space.memory().machine().step();
    space.clear_soft_dirty();
    is_clear.store(1, Relaxed);
}

/// CPU 1 stores, after `before`, while CPU 0 clears. `kind`: flags of the mapping.
fn a_store(policy: Policy, kind: u32, before: fn(&Processor<'_>)) {
    explore(Some(3), move || {
        let world = World::new(2, policy);
        let kind = kind | flags::ANONYMOUS | flags::FIXED;
        world.space().mmap(0, PAGE, RW, kind).unwrap();
        before(&Processor::new(world.space(), 1));
        // An atomic of loom's, so that it explores both orders of this and the store.
        let is_clear = Arc::new(AtomicU32::new(0));
        let writer = {
            let is_clear = is_clear.clone();
            world.run(1, move |cpu| {
                let late = is_clear.load(Relaxed) == 1;
                cpu.store_file(0, NEW).unwrap();
                late
            })
        };
        clear(world.space(), &is_clear);
        let late = writer.join().unwrap();
        let counts = world.space().page_state(0).soft_dirty;
        assert!(counts || !late, "a store is missed");
        assert_eq!(world.cpu().load_file(0), Ok(NEW), "a store is lost");
        world.finish();
    });
}

/// CPU 1 has the page in its TLB.
fn has_stored(cpu: &Processor<'_>) {
    cpu.store_file(0, OLD).unwrap();
}

fn has_loaded(cpu: &Processor<'_>) {
    cpu.load_file(0).unwrap();
}

fn has_done_nothing(_: &Processor<'_>) {}

#[test]
fn a_store_is_noticed() {
    for &policy in Policy::ALL {
        for kind in [flags::PRIVATE, flags::SHARED] {
            a_store(policy, kind, has_stored);
        }
    }
}

#[test]
fn a_first_touch_is_noticed() {
    for &policy in Policy::ALL {
        for kind in [flags::PRIVATE, flags::SHARED] {
            a_store(policy, kind, has_done_nothing);
            a_store(policy, kind, has_loaded);
        }
    }
}

#[test]
#[should_panic(expected = "a store is missed")]
fn broken_watched_without_a_flush() {
    with_flaw(Mutant::WatchedWithoutFlush, || {
        a_store(Policy::Speculative, flags::PRIVATE, has_stored);
    });
}

/// A read beside the clearing of shared memory: a store that the read's entry lets through is noticed.
fn a_read_and_a_store(policy: Policy) {
    explore(Some(3), move || {
        let world = World::new(2, policy);
        let kind = flags::SHARED | flags::ANONYMOUS | flags::FIXED;
        world.space().mmap(0, PAGE, RW, kind).unwrap();
        let is_clear = Arc::new(AtomicU32::new(0));
        let writer = {
            let is_clear = is_clear.clone();
            world.run(1, move |cpu| {
                cpu.load_file(0).unwrap();
                let late = is_clear.load(Relaxed) == 1;
                cpu.store_file(0, NEW).unwrap();
                late
            })
        };
        clear(world.space(), &is_clear);
        let late = writer.join().unwrap();
        let counts = world.space().page_state(0).soft_dirty;
        assert!(counts || !late, "a store is missed");
        world.finish();
    });
}

#[test]
fn a_read_lets_no_store_through_unnoticed() {
    let all = Policy::ALL.iter();
    all.for_each(|&policy| a_read_and_a_store(policy));
}

/// CPU 1 clears while CPU 0 changes the mapping.
fn cleared_beside(policy: Policy, change: fn(&Space) -> Option<Space>) {
    explore(Some(2), move || {
        let world = World::new(2, policy);
        world.map(0, 2, RW);
        world.cpu().store(0, OLD).unwrap();
        world.cpu().store(PAGE, OLD).unwrap();
        let clearer = world.run(1, |cpu| cpu.space().clear_soft_dirty());
        let child = change(world.space());
        clearer.join().unwrap();
        world.cpu().store(PAGE, NEW).unwrap();
        assert!(world.space().page_state(PAGE).soft_dirty);
        world.finish_with(child.into_iter().collect());
    });
}

fn fork(space: &Space) -> Option<Space> {
    Some(space.fork().unwrap())
}

fn protect(space: &Space) -> Option<Space> {
    space.mprotect(0, PAGE, PROT_READ).unwrap();
    None
}

fn unmap(space: &Space) -> Option<Space> {
    space.munmap(0, PAGE).unwrap();
    None
}

fn clear_too(space: &Space) -> Option<Space> {
    space.clear_soft_dirty();
    None
}

#[test]
fn cleared_beside_writers() {
    for &policy in Policy::ALL {
        cleared_beside(policy, fork);
        cleared_beside(policy, protect);
        cleared_beside(policy, unmap);
        cleared_beside(policy, clear_too);
    }
}
