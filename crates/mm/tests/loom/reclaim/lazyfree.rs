//! Loom models of lazily freed pages (`MADV_FREE`) and their reclaim. A store after `MADV_FREE` is never
//! lost. A concurrent fork, mprotect or munmap finds the page, or finds it gone.
//!
//! At most three preemptions in the quick form.

use std::sync::Arc;

use crate::model::{PAGE, Processor, RW, Space, World, explore};
use faultless_mm::{AtomicU32, PROT_READ, Policy, advice};
use faultless_sync::atomic::Ordering::Relaxed;
use faultless_sync::{Mutant, with_flaw};

const OLD: u64 = 7;
const NEW: u64 = 9;

fn let_go(space: &Space) {
    space.madvise(0, PAGE, advice::FREE).unwrap();
}

fn take(space: &Space) {
    // Loom reorders only conflicting accesses; this one conflicts with the beginning of a store.
    space.memory().machine().step();
    space.take_lazyfree();
}

/// CPU 1 stores, with the page in its TLB, while CPU 0 lazily frees and reclaims it.
fn a_store(policy: Policy) {
    explore(Some(3), move || {
        let world = World::new(2, policy);
        world.map(0, 1, RW);
        Processor::new(world.space(), 1).store(0, OLD).unwrap();
        // An atomic of loom's, so that it explores both orders of this and the store.
        let is_free = Arc::new(AtomicU32::new(0));
        let writer = {
            let is_free = is_free.clone();
            world.run(1, move |cpu| {
                let late = is_free.load(Relaxed) == 1;
                cpu.store(0, NEW).unwrap();
                late
            })
        };
        let_go(world.space());
        is_free.store(1, Relaxed);
        take(world.space());
        let late = writer.join().unwrap();
        let word = world.cpu().load(0).unwrap();
        assert!(word == NEW || word == 0 && !late, "a store is lost: {word}");
        world.finish();
    });
}

#[test]
fn a_store_after_letting_go_stays() {
    Policy::ALL.iter().for_each(|&policy| a_store(policy));
}

/// The same for a page that was lazily freed before.
fn a_store_beside_the_taking(policy: Policy) {
    explore(Some(3), move || {
        let world = World::new(2, policy);
        world.map(0, 1, RW);
        Processor::new(world.space(), 1).store(0, OLD).unwrap();
        let_go(world.space());
        let writer = world.run(1, |cpu| cpu.store(0, NEW).unwrap());
        take(world.space());
        writer.join().unwrap();
        assert_eq!(world.cpu().load(0), Ok(NEW), "a store is lost");
        world.finish();
    });
}

#[test]
fn a_store_beside_the_taking_stays() {
    let all = Policy::ALL.iter();
    all.for_each(|&policy| a_store_beside_the_taking(policy));
}

#[test]
#[should_panic(expected = "a store is lost")]
fn broken_let_go_without_a_flush() {
    with_flaw(Mutant::LetGoWithoutFlush, || a_store(Policy::Speculative));
}

#[test]
#[should_panic(expected = "a store is lost")]
fn broken_taken_though_written() {
    with_flaw(Mutant::TakenThoughWritten, || {
        a_store_beside_the_taking(Policy::Speculative);
    });
}

/// CPU 1 reclaims a lazily freed page while CPU 0 changes its mapping. With `read_only` the reclaim sees no
/// effect of `change` on the entry.
fn taken_beside(policy: Policy, read_only: bool, change: fn(&Space) -> Option<Space>) {
    explore(Some(3), move || {
        let world = World::new(2, policy);
        world.map(0, 2, RW);
        world.cpu().store(0, OLD).unwrap();
        world.cpu().store(PAGE, OLD).unwrap();
        let_go(world.space());
        if read_only {
            world.space().mprotect(0, PAGE, PROT_READ).unwrap();
        }
        let taker = world.run(1, |cpu| cpu.space().take_lazyfree());
        let child = change(world.space());
        let taken = taker.join().unwrap();
        if let Ok(word) = world.cpu().load(0) {
            assert!(word == OLD || word == 0 && taken, "{word}");
        }
        assert_eq!(world.cpu().load(PAGE), Ok(OLD));
        if let Some(child) = &child {
            let word = world.word_of(child, 0);
            assert!(word == OLD || word == 0 && taken, "{word}");
            assert_eq!(world.word_of(child, 1), OLD);
        }
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

#[test]
fn taken_beside_a_fork() {
    for &policy in Policy::ALL {
        taken_beside(policy, false, fork);
        taken_beside(policy, true, fork);
    }
}

#[test]
fn taken_beside_writers() {
    for &policy in Policy::ALL {
        taken_beside(policy, false, protect);
        taken_beside(policy, false, unmap);
    }
}

/// The child would map a free frame.
#[test]
#[should_panic]
fn broken_taken_without_validation() {
    with_flaw(Mutant::LinkNotValidated, || {
        taken_beside(Policy::Speculative, true, fork);
    });
}
