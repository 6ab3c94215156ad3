//! Loom model (c): a truncation, and a hole, beside faults on the removed pages (rule R6).
//!
//! After the truncation no entry shows the pages any more, and pages that a fault published before are
//! zapped. The machine notices frames that are freed too early: its TLBs must not hold them. (Beside writers:
//! `truncate_writers.rs`.)
//!
//! At most three preemptions in the quick form.

use crate::model::{Model, PAGE, Processor, RW, World, explore};
use faultless_mm::{MemoryObject, Opened, Outcome, PROT_READ, Policy, flags};
use faultless_sync::{Mutant, with_flaw};
use std::sync::Arc;

/// A memory object of one page, mapped at page 0.
fn mapped(world: &Arc<World>, prot: u32, how: u32) -> MemoryObject<Model> {
    let store = MemoryObject::new(world.space().memory(), PAGE, None, 0).unwrap();
    let opened = Opened {
        store: Ok(&store),
        offset: 0,
        file: 0,
        writable: true,
    };
    let how = how | flags::FIXED;
    assert_eq!(
        world.space().mmap_object(0, PAGE, prot, how, &opened),
        Ok(0)
    );
    store
}

/// Runs a fault on CPU 1, beside a truncation to size 0.
fn truncated(
    is_there: bool,
    prot: u32,
    how: u32,
    access: fn(&Processor<'_>) -> Result<u64, Outcome>,
) {
    explore(Some(3), move || {
        let world = World::new(2, Policy::Speculative);
        let store = mapped(&world, prot, how);
        if is_there {
            drop(store.page_to_write(0).unwrap());
        }
        let fault = world.run(1, move |cpu| access(cpu));
        store.truncate(0).unwrap();
        let seen = fault.join().unwrap();
        assert_eq!(store.pages(), 0);
        assert!(matches!(seen, Ok(_) | Err(Outcome::Bus)), "{seen:?}");
        assert_eq!(
            world.space().translate(0),
            None,
            "a page is left that was truncated"
        );
        assert_eq!(world.cpu().load_file(0), Err(Outcome::Bus));
        drop(store);
        world.finish();
    });
}

fn load(cpu: &Processor<'_>) -> Result<u64, Outcome> {
    cpu.load_file(0)
}

fn store(cpu: &Processor<'_>) -> Result<u64, Outcome> {
    cpu.store_file(0, 1).map(|()| 1)
}

#[test]
fn a_page_that_is_there_goes() {
    truncated(true, PROT_READ, flags::SHARED, load);
}

#[test]
fn a_page_that_comes_goes() {
    truncated(false, RW, flags::SHARED, store);
}

#[test]
fn a_private_copy_goes() {
    truncated(true, RW, flags::PRIVATE, store);
}

/// Two faults: one may add the page, and the other map it, before the first sees that it is behind the end.
fn added_by_another(bound: usize) {
    explore(Some(bound), || {
        let world = World::new(3, Policy::Speculative);
        let store = mapped(&world, RW, flags::SHARED);
        let faults = [1, 2].map(|cpu| world.run(cpu, |cpu| self::store(cpu)));
        store.truncate(0).unwrap();
        for fault in faults {
            let seen = fault.join().unwrap();
            assert!(matches!(seen, Ok(_) | Err(Outcome::Bus)), "{seen:?}");
        }
        assert_eq!(store.pages(), 0);
        assert_eq!(
            world.space().translate(0),
            None,
            "a page is left that was truncated"
        );
        drop(store);
        world.finish();
    });
}

#[test]
fn a_page_that_another_fault_adds_goes() {
    added_by_another(3);
}

#[test]
#[should_panic(expected = "a page is left that was truncated")]
fn broken_size_not_validated() {
    with_flaw(Mutant::SizeNotValidated, || added_by_another(4));
}

#[test]
#[should_panic(expected = "a page is left that was truncated")]
fn broken_identity_not_validated() {
    with_flaw(Mutant::IdentityNotValidated, || {
        truncated(true, PROT_READ, flags::SHARED, load);
    });
}

/// A hole beside a read: an entry that is left maps the object's current page.
fn punched() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        let store = mapped(&world, PROT_READ, flags::SHARED);
        drop(store.page_to_write(0).unwrap());
        let fault = world.run(1, |cpu| cpu.load_file(0));
        store.punch(0..PAGE).unwrap();
        assert_eq!(fault.join().unwrap(), Ok(0), "a freed page is read");
        let has = store.page(0).unwrap().map(|page| page.frame());
        let shows = world.space().translate(0);
        assert!(
            shows.is_none() || shows == has,
            "a page is left that is not the store's"
        );
        drop(store);
        world.finish();
    });
}

#[test]
fn a_page_goes_into_a_hole() {
    punched();
}

#[test]
#[should_panic(expected = "a page is left that is not the store's")]
fn broken_hole_without_fence() {
    with_flaw(Mutant::TruncateWithoutFence, punched);
}

#[test]
#[should_panic(expected = "a page is left that was truncated")]
fn broken_claim_without_fence() {
    with_flaw(Mutant::ClaimWithoutFence, || {
        truncated(true, PROT_READ, flags::SHARED, load);
    });
}

/// A hole beside a read of the object by the kernel, which pins the page. The kernel reads the page as it
/// was, or none, and never a frame in another use.
#[test]
fn a_pinned_page_stays_until_it_is_read() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        let store = MemoryObject::new(world.space().memory(), PAGE, None, 0).unwrap();
        let frame = store.page_to_write(0).unwrap().frame();
        world.space().memory().machine().set_word(frame, 5);
        let reader = {
            let store = store.clone();
            world.run(1, move |_| {
                let page = store.page(0).unwrap()?;
                let word = store.memory().machine().word(page.frame());
                Some(word)
            })
        };
        store.punch(0..PAGE).unwrap();
        // The frame's next user.
        let next = store.page_to_write(0).unwrap();
        let machine = world.space().memory().machine();
        machine.set_word(next.frame(), 6);
        drop(next);
        let seen = reader.join().unwrap();
        assert!(matches!(seen, None | Some(0 | 5 | 6)), "{seen:?}");
        drop(store);
        world.finish();
    });
}

/// A truncation beside an unmap of the same page: the later of the two frees the frame, once.
#[test]
fn a_page_that_is_unmapped_meanwhile_is_freed_once() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        let store = mapped(&world, RW, flags::SHARED);
        world.cpu().store_file(0, 1).unwrap();
        let unmapping = world.run(1, |cpu| cpu.space().munmap(0, PAGE).unwrap());
        store.truncate(0).unwrap();
        unmapping.join().unwrap();
        assert_eq!(store.pages(), 0);
        drop(store);
        world.finish();
    });
}

/// A private copy, which CPU 0 has in its TLB, is unmapped or replaced while the object is truncated. No
/// count covers the copy, and the truncation's walk may not find it.
fn departs(act: fn(&Processor<'_>)) {
    explore(Some(3), move || {
        let world = World::new(2, Policy::Speculative);
        let store = mapped(&world, RW, flags::PRIVATE);
        world.cpu().store_file(0, 7).unwrap();
        let other = world.run(1, move |cpu| act(cpu));
        store.truncate(0).unwrap();
        let seen = world.cpu().load_file(0);
        assert_ne!(seen, Ok(7), "a copy is left that was truncated");
        other.join().unwrap();
        drop(store);
        world.finish();
    });
}

fn unmap(cpu: &Processor<'_>) {
    cpu.space().munmap(0, PAGE).unwrap();
}

fn replace(cpu: &Processor<'_>) {
    let how = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
    assert_eq!(cpu.space().mmap(0, PAGE, RW, how), Ok(0));
}

#[test]
fn a_copy_that_departs_goes() {
    departs(unmap);
}

#[test]
fn a_copy_that_is_replaced_goes() {
    departs(replace);
}

#[test]
#[should_panic(expected = "a copy is left that was truncated")]
fn broken_departures_not_awaited() {
    with_flaw(Mutant::DeparturesNotAwaited, || departs(unmap));
}

#[test]
#[should_panic(expected = "a copy is left that was truncated")]
fn broken_departures_of_what_is_replaced_not_awaited() {
    with_flaw(Mutant::DeparturesNotAwaited, || departs(replace));
}

/// A space ends while a truncation walks it. The exit parks until the walk has left; the truncation must not
/// touch the space after the wake-up.
#[test]
fn a_space_ends_once_no_walk_is_in_it() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        let store = mapped(&world, RW, flags::SHARED);
        let child = world.space().fork().unwrap();
        let ending = world.run(1, move |_| child.destroy());
        store.truncate(0).unwrap();
        ending.join().unwrap();
        assert_eq!(store.pages(), 0);
        drop(store);
        world.finish();
    });
}
