//! Loom models of reclaim: a page that was not used for a round is taken while other CPUs use it, or change what is
//! mapped. No range is held, so that each claim is validated.
//!
//! At most two preemptions in the quick form.

use crate::model::{PAGE, Processor, RW, Space, World, explore};
use faultless_mm::{AgingMode, PROT_READ, Policy, remap_flags};
use faultless_sync::{Mutant, with_flaw};

const OLD: u64 = 7;
const NEW: u64 = 9;

/// A page that counts as unused. CPU 1 has it in its TLB.
fn unused_page() -> std::sync::Arc<World> {
    let world = World::new(2, Policy::Speculative);
    world.swap(2);
    world.map(0, 1, RW);
    Processor::new(world.space(), 1).store(0, OLD).unwrap();
    world.space().clear_accessed(AgingMode::All);
    world
}

fn reclaim(space: &Space) -> bool {
    space.memory().machine().be_short();
    space.memory().machine().step();
    space.memory().reclaim_some()
}

#[test]
fn a_store_beside_the_sweep_stays() {
    explore(Some(2), || {
        let world = unused_page();
        let writer = world.run(1, |cpu| cpu.store(0, NEW).unwrap());
        reclaim(world.space());
        writer.join().unwrap();
        assert_eq!(world.cpu().load(0), Ok(NEW), "a store is lost");
        world.finish();
    });
}

/// CPU 1 reclaims while CPU 0 changes something. `check` follows.
fn beside_with(change: fn(&World) -> Option<Space>, check: fn(&World)) {
    explore(Some(2), move || {
        let world = unused_page();
        let sweep = world.run(1, |cpu| reclaim(cpu.space()));
        let child = change(&world);
        sweep.join().unwrap();
        check(&world);
        if let Ok(word) = world.cpu().load(0) {
            assert!(word == OLD || word == 0, "{word}");
        }
        world.finish_with(child.into_iter().collect());
    });
}

fn beside(change: fn(&World) -> Option<Space>) {
    beside_with(change, |_| ());
}

#[test]
fn beside_munmap() {
    beside(|world| {
        world.space().munmap(0, PAGE).unwrap();
        None
    });
}

#[test]
fn beside_mprotect() {
    beside(|world| {
        world.space().mprotect(0, PAGE, PROT_READ).unwrap();
        None
    });
}

#[test]
fn beside_mremap() {
    beside(|world| {
        let to = remap_flags::MAYMOVE | remap_flags::FIXED;
        world.space().mremap(0, PAGE, PAGE, to, 2 * PAGE).unwrap();
        let moved = world.cpu().load(2 * PAGE);
        assert_eq!(moved, Ok(OLD));
        None
    });
}

/// A page that is locked when `mlock` returns stays.
fn mlock() {
    let lock = |world: &World| {
        world.space().mlock(0, PAGE, 0).unwrap();
        None
    };
    beside_with(lock, |world| {
        let is_there = world.space().translate(0).is_some();
        assert!(is_there, "a locked page is gone");
    });
}

#[test]
fn beside_mlock() {
    mlock();
}

#[test]
fn beside_fork() {
    beside(|world| Some(world.space().fork().unwrap()));
}

#[test]
#[should_panic(expected = "a locked page is gone")]
fn broken_mlock_unseen() {
    with_flaw(Mutant::SweptWithoutValidation, mlock);
}
