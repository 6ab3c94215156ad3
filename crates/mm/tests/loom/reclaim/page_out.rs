//! Loom models of pages that are swapped out (`MADV_PAGEOUT`). A store beside it is not lost, and what else
//! happens to the page leaves no slot behind.
//!
//! At most three preemptions in the quick form.

use crate::model::{PAGE, Processor, RW, Space, World, explore};
use faultless_mm::{Policy, advice};
use faultless_sync::{Mutant, with_flaw};

const OLD: u64 = 7;
const NEW: u64 = 9;

fn page_out(space: &Space) {
    space.memory().machine().step();
    space.madvise(0, PAGE, advice::PAGEOUT).unwrap();
}

/// CPU 1 stores, with the page in its TLB, while CPU 0 swaps the page out.
fn a_store(policy: Policy) {
    explore(Some(3), move || {
        let world = World::new(2, policy);
        world.swap(2);
        world.map(0, 1, RW);
        Processor::new(world.space(), 1).store(0, OLD).unwrap();
        let writer = world.run(1, |cpu| cpu.store(0, NEW).unwrap());
        page_out(world.space());
        writer.join().unwrap();
        assert_eq!(world.cpu().load(0), Ok(NEW), "a store is lost");
        world.finish();
    });
}

#[test]
fn a_store_beside_a_page_out_stays() {
    Policy::ALL.iter().for_each(|&policy| a_store(policy));
}

#[test]
#[should_panic(expected = "a TLB holds a frame that is freed")]
fn broken_swapped_without_a_flush() {
    with_flaw(Mutant::SwappedWithoutFlush, || a_store(Policy::Speculative));
}

/// CPU 1 swaps the page out while CPU 0 does something else with it.
fn beside(policy: Policy, change: fn(&World) -> Option<Space>) {
    explore(Some(3), move || {
        let world = World::new(2, policy);
        world.swap(2);
        world.map(0, 1, RW);
        world.cpu().store(0, OLD).unwrap();
        let out = world.run(1, |cpu| page_out_mapped(cpu.space()));
        let child = change(&world);
        out.join().unwrap();
        if let Ok(word) = world.cpu().load(0) {
            assert!(word == OLD || word == 0, "{word}");
        }
        world.finish_with(child.into_iter().collect());
    });
}

/// Swaps the page out, if it is mapped.
fn page_out_mapped(space: &Space) {
    space.memory().machine().step();
    let _ = space.madvise(0, PAGE, advice::PAGEOUT);
}

#[test]
fn beside_munmap() {
    beside(Policy::Speculative, |world| {
        world.space().munmap(0, PAGE).unwrap();
        None
    });
}

#[test]
fn beside_dontneed() {
    beside(Policy::Speculative, |world| {
        world.space().madvise(0, PAGE, advice::DONTNEED).unwrap();
        None
    });
}

#[test]
fn beside_fork() {
    beside(Policy::Speculative, |world| {
        Some(world.space().fork().unwrap())
    });
}
