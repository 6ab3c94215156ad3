//! Loom models of faults on swapped pages: whatever else happens to the page and its slot, a load sees what the
//! page held at some moment since it began (rule R4), and no use of a slot is lost.
//!
//! At most three preemptions in the quick form.

use crate::model::{PAGE, RW, World, explore};
use faultless_mm::{Policy, advice};
use faultless_sync::{Mutant, with_flaw};

const OLD: u64 = 7;
const NEW: u64 = 9;

/// CPU 1 loads a swapped page, while CPU 0 brings it back, changes it, and swaps it out again: to the same slot,
/// the only one, if that is free.
fn the_slot_is_used_again(policy: Policy) {
    explore(Some(3), move || {
        let world = World::new(2, policy);
        world.swap(1);
        world.map(0, 1, RW);
        world.cpu().store(0, OLD).unwrap();
        world.space().madvise(0, PAGE, advice::PAGEOUT).unwrap();
        let reader = world.run(1, |cpu| cpu.load(0).unwrap());
        world.cpu().store(0, NEW).unwrap();
        world.space().madvise(0, PAGE, advice::PAGEOUT).unwrap();
        let seen = reader.join().unwrap();
        assert!(seen == OLD || seen == NEW, "{seen}");
        assert_eq!(world.cpu().load(0), Ok(NEW), "old content is back");
        world.finish();
    });
}

#[test]
fn a_slot_that_is_used_again_brings_no_old_content() {
    let all = Policy::ALL.iter();
    all.for_each(|&policy| the_slot_is_used_again(policy));
}

#[test]
#[should_panic]
fn broken_slot_not_held() {
    with_flaw(Mutant::SlotNotHeld, || {
        the_slot_is_used_again(Policy::Speculative);
    });
}

/// Both CPUs load a swapped page, and one stores.
#[test]
fn two_faults_bring_it_back_once() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        world.swap(2);
        world.map(0, 1, RW);
        world.cpu().store(0, OLD).unwrap();
        world.space().madvise(0, PAGE, advice::PAGEOUT).unwrap();
        let writer = world.run(1, |cpu| cpu.store(0, NEW).unwrap());
        let seen = world.cpu().load(0).unwrap();
        assert!(seen == OLD || seen == NEW, "{seen}");
        writer.join().unwrap();
        assert_eq!(world.cpu().load(0), Ok(NEW), "a store is lost");
        world.finish();
    });
}

/// A fork beside a fault on a swapped page: the child has its content.
#[test]
fn beside_fork() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        world.swap(2);
        world.map(0, 1, RW);
        world.cpu().store(0, OLD).unwrap();
        world.space().madvise(0, PAGE, advice::PAGEOUT).unwrap();
        let writer = world.run(1, |cpu| cpu.store(0, NEW).unwrap());
        let child = world.space().fork().unwrap();
        writer.join().unwrap();
        assert_eq!(world.cpu().load(0), Ok(NEW), "a store is lost");
        world.finish_with(vec![child]);
    });
}

/// A world with a page that the device did not take.
fn kept() -> std::sync::Arc<World> {
    let world = World::with_others(2, 1, Policy::Speculative);
    world.swap(2).refuse();
    world.map(0, 1, RW);
    world.cpu().store(0, OLD).unwrap();
    world.space().madvise(0, PAGE, advice::PAGEOUT).unwrap();
    world
}

/// Both CPUs store to a page that the device did not take, and load it.
#[test]
fn a_kept_page_is_brought_back_once() {
    explore(Some(3), || {
        let world = kept();
        let writer = world.run(1, |cpu| cpu.store(0, NEW).unwrap());
        let seen = world.cpu().load(0).unwrap();
        assert!(seen == OLD || seen == NEW, "{seen}");
        writer.join().unwrap();
        assert_eq!(world.cpu().load(0), Ok(NEW), "a store is lost");
        world.finish();
    });
}

/// A fork beside a store to such a page, which may take the frame. Both sides have the page.
fn kept_beside_fork() {
    explore(Some(3), || {
        let world = kept();
        let writer = world.run(1, |cpu| cpu.store(0, NEW).unwrap());
        let child = world.space().fork().unwrap();
        writer.join().unwrap();
        assert_eq!(world.cpu().load(0), Ok(NEW), "a store is lost");
        let child = std::sync::Arc::new(child);
        let seen = world.run_in(&child, 2, |cpu| cpu.load(0).unwrap());
        let seen = seen.join().unwrap();
        assert!(seen == OLD || seen == NEW, "{seen}");
        let child = std::sync::Arc::into_inner(child).unwrap();
        world.finish_with(vec![child]);
    });
}

#[test]
fn a_kept_page_beside_fork() {
    kept_beside_fork();
}

#[test]
#[should_panic]
fn broken_kept_frame_shared() {
    with_flaw(Mutant::KeptFrameShared, kept_beside_fork);
}

/// CPU 0 loads a page of a slow device, and reads the page behind it ahead, while CPU 1 does something with that.
fn reading_ahead_beside(
    change: impl Fn(&crate::model::Processor<'_>) + Clone + Send + Sync + 'static,
    after: Result<u64, faultless_mm::SegvCode>,
) {
    explore(Some(2), move || {
        let world = World::new(2, Policy::Speculative);
        world.swap(2).slow_down();
        world.map(0, 2, RW);
        world.cpu().store(0, OLD).unwrap();
        world.cpu().store(PAGE, OLD).unwrap();
        let space = world.space();
        space.madvise(0, 2 * PAGE, advice::PAGEOUT).unwrap();
        let change = change.clone();
        let other = world.run(1, move |cpu| change(cpu));
        assert_eq!(world.cpu().load(0), Ok(OLD));
        other.join().unwrap();
        assert_eq!(world.cpu().load(PAGE), after);
        world.finish();
    });
}

#[test]
fn reading_ahead_beside_a_store() {
    reading_ahead_beside(|cpu| cpu.store(PAGE, NEW).unwrap(), Ok(NEW));
}

#[test]
fn reading_ahead_beside_munmap() {
    let gone = Err(faultless_mm::SegvCode::MapErr);
    reading_ahead_beside(|cpu| cpu.space().munmap(PAGE, PAGE).unwrap(), gone);
}

/// The slot is used again for another content meanwhile.
fn the_slot_read_ahead_is_used_again() {
    let change = |cpu: &crate::model::Processor<'_>| {
        cpu.store(PAGE, NEW).unwrap();
        cpu.space().madvise(PAGE, PAGE, advice::PAGEOUT).unwrap();
    };
    reading_ahead_beside(change, Ok(NEW));
}

#[test]
fn a_slot_read_ahead_that_is_used_again_brings_no_old_content() {
    the_slot_read_ahead_is_used_again();
}

#[test]
#[should_panic]
fn broken_slot_read_ahead_not_held() {
    with_flaw(Mutant::SlotNotHeld, the_slot_read_ahead_is_used_again);
}
