//! Loom models of userfaultfds: a fault that waits for its handler is woken, whatever the handler has done when; and
//! what the handler asks for does not outlast the registration, or the mapping.
//!
//! At most three preemptions in the quick form.

use std::sync::Arc;

use crate::model::{Model, PAGE, Processor, RW, Space, World, explore};
use faultless_mm::{
    AgingMode, Frame, MemoryObject, Opened, Pages, Policy, Userfault, flags, userfault,
};
use faultless_sync::{Mutant, with_flaw};

const OLD: u64 = 7;
const NEW: u64 = 9;

fn page(number: u64) -> Pages {
    Pages::new(number, number + 1)
}

/// A userfaultfd, with which page 0 is registered.
fn registered(world: &World, features: u64, modes: u64) -> Arc<Userfault<Model>> {
    let to = Userfault::new(world.space().memory(), 0).unwrap();
    to.set_features(features);
    world.space().register(&to, page(0), modes).unwrap();
    Arc::new(to)
}

/// Copies a page of this word to page 0. Returns whether there was none.
fn copy(space: &Space, by: &Userfault<Model>, word: u64, protected: bool) -> bool {
    let machine = space.memory().machine();
    let filled = space.userfault_copy(by, page(0), protected, &mut |_, frame: Frame| {
        machine.set_word(frame, word);
        Ok(())
    });
    filled.error.is_none()
}

fn end(world: Arc<World>, to: Arc<Userfault<Model>>) {
    world.space().close_userfault(&to);
    let machine = world.space().memory().machine();
    assert!(!machine.has_left_behind(), "a fault is not woken");
    drop(to);
    world.finish();
}

/// CPU 1 loads a missing page, while CPU 0 brings it and wakes what waits.
fn a_fault_is_woken(policy: Policy) {
    explore(Some(3), move || {
        let world = World::new(2, policy);
        world.map(0, 2, RW);
        world.cpu().store(PAGE, OLD).unwrap();
        let to = registered(&world, 0, userfault::MISSING);
        let reader = world.run(1, |cpu| cpu.load(0).unwrap());
        assert!(copy(world.space(), &to, NEW, false));
        to.wake(page(0));
        // Wakes what the request has not woken.
        to.close();
        assert_eq!(reader.join().unwrap(), NEW);
        end(world, to);
    });
}

#[test]
fn a_fault_that_waits_is_woken() {
    let all = Policy::ALL.iter();
    all.for_each(|&policy| a_fault_is_woken(policy));
}

/// CPU 1 stores to a protected page, while CPU 0 ends the protection and wakes what waits.
fn a_store_is_woken() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 1, RW);
        world.cpu().store(0, OLD).unwrap();
        let to = registered(&world, 0, userfault::WRITE_PROTECT);
        world.space().userfault_protect(&to, page(0), true).unwrap();
        let writer = world.run(1, |cpu| cpu.store(0, NEW).unwrap());
        world
            .space()
            .userfault_protect(&to, page(0), false)
            .unwrap();
        to.wake(page(0));
        to.close();
        writer.join().unwrap();
        assert_eq!(world.cpu().load(0), Ok(NEW));
        end(world, to);
    });
}

#[test]
fn a_store_that_waits_is_woken() {
    a_store_is_woken();
}

#[test]
#[should_panic(expected = "a fault is not woken")]
fn broken_not_looked_again() {
    with_flaw(Mutant::NotLookedAgain, a_store_is_woken);
}

/// The handler goes while a fault begins to wait.
#[test]
fn a_handler_that_goes_leaves_no_fault_behind() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 2, RW);
        world.cpu().store(PAGE, OLD).unwrap();
        let to = registered(&world, 0, userfault::MISSING);
        let writer = world.run(1, |cpu| cpu.store(0, NEW).unwrap());
        world.space().close_userfault(&to);
        writer.join().unwrap();
        assert_eq!(world.cpu().load(0), Ok(NEW));
        drop(to);
        world.finish();
    });
}

/// CPU 1 places a page of which stores are to be reported, while CPU 0 ends the registration.
fn the_registration_ends() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 2, RW);
        world.cpu().store(PAGE, OLD).unwrap();
        let modes = userfault::MISSING | userfault::WRITE_PROTECT;
        let to = registered(&world, 0, modes);
        let by = to.clone();
        let placer = world.run(1, move |cpu| copy(cpu.space(), &by, NEW, true));
        world.space().unregister(&to, page(0)).unwrap();
        let is_placed = placer.join().unwrap();
        let state = world.space().page_state(0);
        assert!(
            !state.reports_writes,
            "protection outlasts the registration"
        );
        let expected = if is_placed { NEW } else { 0 };
        assert_eq!(world.cpu().load(0), Ok(expected));
        world.cpu().store(0, OLD).unwrap();
        end(world, to);
    });
}

#[test]
fn protection_ends_with_the_registration() {
    the_registration_ends();
}

#[test]
#[should_panic(expected = "protection outlasts the registration")]
fn broken_unregistered_beside_claims() {
    with_flaw(Mutant::UnregisteredBesideClaims, the_registration_ends);
}

/// CPU 1 places a page while CPU 0 unmaps it.
fn the_page_is_unmapped() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 2, RW);
        world.cpu().store(PAGE, OLD).unwrap();
        let to = registered(&world, 0, userfault::MISSING);
        let by = to.clone();
        let placer = world.run(1, move |cpu| copy(cpu.space(), &by, NEW, false));
        world.space().munmap(0, PAGE).unwrap();
        placer.join().unwrap();
        end(world, to);
    });
}

#[test]
fn no_page_is_placed_where_nothing_is_mapped() {
    the_page_is_unmapped();
}

#[test]
#[should_panic]
fn broken_mapping_not_validated() {
    with_flaw(Mutant::MappingNotValidated, the_page_is_unmapped);
}

/// CPU 1 stores, with the page in its TLB, while CPU 0 lets stores be noted.
fn a_store_is_noted() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 1, RW);
        Processor::new(world.space(), 1).store(0, OLD).unwrap();
        let to = registered(&world, userfault::WP_ASYNC, userfault::WRITE_PROTECT);
        let writer = world.run(1, |cpu| cpu.store(0, NEW).unwrap());
        world.space().userfault_protect(&to, page(0), true).unwrap();
        let seen = world.cpu().load(0).unwrap();
        writer.join().unwrap();
        if world.space().page_state(0).reports_writes {
            assert_eq!(world.cpu().load(0), Ok(seen), "a store was not noted");
        }
        assert_eq!(world.cpu().load(0), Ok(NEW), "a store is lost");
        end(world, to);
    });
}

#[test]
fn stores_after_the_protection_are_noted() {
    a_store_is_noted();
}

#[test]
#[should_panic(expected = "a store was not noted")]
fn broken_protected_without_a_flush() {
    with_flaw(Mutant::WatchedWithoutFlush, a_store_is_noted);
}

/// CPU 1 moves a page of the program to page 0, while CPU 0 stores to it.
#[test]
fn a_store_beside_a_move_stays() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 2, RW);
        Processor::new(world.space(), 0).store(PAGE, OLD).unwrap();
        let to = registered(&world, 0, userfault::MISSING);
        let by = to.clone();
        let mover = world.run(1, move |cpu| {
            let moved = cpu.space().userfault_move(&by, page(0), 1, false);
            moved.error.is_none()
        });
        world.cpu().store(PAGE, NEW).unwrap();
        assert!(mover.join().unwrap());
        let words = (world.cpu().load(0), world.cpu().load(PAGE));
        let is_sound = words == (Ok(NEW), Ok(0)) || words == (Ok(OLD), Ok(NEW));
        assert!(is_sound, "{words:?}");
        end(world, to);
    });
}

/// Reclaims, which takes a page that counts as unused.
fn reclaim(space: &Space) {
    space.memory().machine().be_short();
    space.memory().machine().step();
    space.memory().reclaim_some();
}

/// Maps an object of one page at page 0.
fn map_object(world: &World) -> MemoryObject<Model> {
    world.swap(2);
    let store = MemoryObject::new(world.space().memory(), PAGE, None, 0).unwrap();
    let opened = Opened {
        store: Ok(&store),
        offset: 0,
        file: 0,
        writable: true,
    };
    let how = flags::SHARED | flags::FIXED;
    let mapped = world.space().mmap_object(0, PAGE, RW, how, &opened);
    assert_eq!(mapped, Ok(0));
    store
}

/// CPU 0 protects a page of an object, which CPU 1 takes out.
fn a_page_leaves_beside_its_protection() {
    explore(Some(2), || {
        let world = World::new(2, Policy::Speculative);
        let store = map_object(&world);
        world.cpu().store_file(0, OLD).unwrap();
        let to = registered(&world, 0, userfault::WRITE_PROTECT);
        world.space().clear_accessed(AgingMode::All);
        let sweep = world.run(1, |cpu| reclaim(cpu.space()));
        world.space().userfault_protect(&to, page(0), true).unwrap();
        let is_protected = world.space().page_state(0).reports_writes;
        sweep.join().unwrap();
        assert!(is_protected, "the page is not protected");
        drop(store);
        end(world, to);
    });
}

#[test]
fn protection_beside_reclaim() {
    a_page_leaves_beside_its_protection();
}

#[test]
#[should_panic(expected = "the page is not protected")]
fn broken_emptied_left_unmarked() {
    with_flaw(
        Mutant::EmptiedLeftUnmarked,
        a_page_leaves_beside_its_protection,
    );
}

/// CPU 0 brings a protected page to an object, from which CPU 1 takes it out.
#[test]
fn a_protected_page_that_leaves_stays_protected() {
    explore(Some(2), || {
        let world = World::new(2, Policy::Speculative);
        let store = map_object(&world);
        let modes = userfault::MISSING | userfault::WRITE_PROTECT;
        let to = registered(&world, 0, modes);
        let sweep = world.run(1, |cpu| {
            // The first look marks a page that nothing maps as unused.
            reclaim(cpu.space());
            reclaim(cpu.space());
        });
        assert!(copy(world.space(), &to, NEW, true));
        let is_protected = world.space().page_state(0).reports_writes;
        sweep.join().unwrap();
        assert!(is_protected, "the page is not protected");
        assert_eq!(world.cpu().load_file(0), Ok(NEW));
        drop(store);
        end(world, to);
    });
}
