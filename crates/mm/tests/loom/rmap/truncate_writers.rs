//! Loom model (c), second part: a truncation, or a hole, beside a fault and a writer that unmaps or moves the
//! fault's mapping.
//!
//! Then nothing leads from the memory object to the entry. The truncation can only see that the fault has
//! counted the page.
//!
//! Two or three preemptions in the quick form.

use crate::model::{Model, PAGE, Processor, RW, Space, World, explore};
use faultless_mm::{
    MemoryObject, Opened, Outcome, PROT_READ, Policy, SegvCode, flags, remap_flags,
};
use faultless_sync::{Mutant, with_flaw};

const MOVE: u32 = remap_flags::MAYMOVE | remap_flags::FIXED;

/// Maps a page of a memory object.
fn map(space: &Space, page: u64, store: &MemoryObject<Model>, index: u64, prot: u32, how: u32) {
    let opened = Opened {
        store: Ok(store),
        offset: index * PAGE,
        file: 0,
        writable: true,
    };
    let (at, how) = (page * PAGE, how | flags::FIXED);
    let mapped = space.mmap_object(at, PAGE, prot, how, &opened);
    assert_eq!(mapped, Ok(at));
}

fn of_pages(world: &World, pages: u64) -> MemoryObject<Model> {
    MemoryObject::new(world.space().memory(), pages * PAGE, None, 0).unwrap()
}

/// A fault on CPU 1, a truncation on CPU 0, and an unmap on CPU 2: the frame is freed once, by its last user.
fn truncated_and_unmapped(
    preemptions: usize,
    (prot, how): (u32, u32),
    access: fn(&Processor<'_>) -> Result<u64, Outcome>,
) {
    explore(Some(preemptions), move || {
        let world = World::new(3, Policy::Speculative);
        let store = of_pages(&world, 1);
        map(world.space(), 0, &store, 0, prot, how);
        drop(store.page_to_write(0).unwrap());
        let fault = world.run(1, move |cpu| access(cpu));
        let unmapping = world.run(2, |cpu| cpu.space().munmap(0, PAGE).unwrap());
        store.truncate(0).unwrap();
        let seen = fault.join().unwrap();
        unmapping.join().unwrap();
        let is_expected = matches!(
            seen,
            Ok(0 | 1) | Err(Outcome::Bus | Outcome::Segv(SegvCode::MapErr))
        );
        assert!(is_expected, "{seen:?}");
        assert_eq!(store.pages(), 0);
        drop(store);
        world.finish();
    });
}

#[test]
fn a_page_that_is_mapped_while_its_mapping_goes_is_freed_once() {
    truncated_and_unmapped(2, (PROT_READ, flags::SHARED), |cpu| cpu.load_file(0));
}

#[test]
fn a_page_that_is_copied_while_its_mapping_goes_is_freed_once() {
    truncated_and_unmapped(2, (RW, flags::PRIVATE), |cpu| {
        cpu.store_file(0, 1).map(|()| 1)
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_counted_too_late() {
    with_flaw(Mutant::CountedTooLate, || {
        truncated_and_unmapped(3, (PROT_READ, flags::SHARED), |cpu| cpu.load_file(0));
    });
}

/// A fault on CPU 1 may come too late for a truncation on CPU 0. CPU 0 then writes the page anew and extends
/// the object: the written content stays.
fn truncated_and_written() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        let store = of_pages(&world, 1);
        map(world.space(), 0, &store, 0, PROT_READ, flags::SHARED);
        let fault = world.run(1, |cpu| cpu.load_file(0));
        store.truncate(0).unwrap();
        let machine = world.space().memory().machine();
        loop {
            let page = store.page_to_write(0).unwrap();
            machine.set_word(page.frame(), 4);
            if store.extend_with(PAGE, 0, &page) {
                break;
            }
        }
        let seen = fault.join().unwrap();
        assert!(matches!(seen, Ok(0 | 4) | Err(Outcome::Bus)), "{seen:?}");
        assert_eq!(world.cpu().load_file(0), Ok(4), "what was written is lost");
        drop(store);
        world.finish();
    });
}

#[test]
fn what_is_written_behind_the_end_stays() {
    truncated_and_written();
}

/// A fault removes its page again and does not see that the object has been extended.
#[test]
#[should_panic(expected = "what was written is lost")]
fn broken_size_not_validated() {
    with_flaw(Mutant::SizeNotValidated, truncated_and_written);
}

/// A fault copies a page that is punched out, while its mapping moves. The copy has the content of the page,
/// not of the frame's next use.
#[test]
fn a_copy_that_moves_is_of_its_page() {
    explore(Some(2), || {
        let world = World::new(3, Policy::Speculative);
        let store = of_pages(&world, 1);
        map(world.space(), 0, &store, 0, RW, flags::PRIVATE);
        let frame = store.page_to_write(0).unwrap().frame();
        world.space().memory().machine().set_word(frame, 4);
        let fault = world.run(1, |cpu| cpu.set_bits_file(0, 1));
        let moving = world.run(2, |cpu| {
            let moved = cpu.space().mremap(0, PAGE, PAGE, MOVE, 2 * PAGE);
            assert_eq!(moved, Ok(2 * PAGE));
        });
        store.punch(0..PAGE).unwrap();
        let done = fault.join().unwrap();
        moving.join().unwrap();
        let seen = world.cpu().load_file(2 * PAGE).unwrap();
        match done {
            Ok(()) => assert!(matches!(seen, 1 | 5), "a copy of something else: {seen:#x}"),
            // The mapping may have moved before the store.
            Err(_) => assert!(matches!(seen, 0 | 4), "a copy of something else: {seen:#x}"),
        }
        drop(store);
        world.finish();
    });
}

/// A private copy moves to a neighbour's mapping, which the truncation's walk has already passed.
fn moved_to_a_neighbour() {
    explore(Some(2), || {
        let world = World::new(2, Policy::Speculative);
        let store = of_pages(&world, 2);
        // The neighbour is first in the object's list of mappings.
        map(world.space(), 3, &store, 1, RW, flags::PRIVATE);
        map(world.space(), 0, &store, 0, RW, flags::PRIVATE);
        world.cpu().store_file(0, 1).unwrap();
        let moving = world.run(1, |cpu| {
            let moved = cpu.space().mremap(0, PAGE, PAGE, MOVE, 2 * PAGE);
            assert_eq!(moved, Ok(2 * PAGE));
        });
        store.truncate(0).unwrap();
        moving.join().unwrap();
        let left = world.space().translate(2 * PAGE);
        assert_eq!(left, None, "a copy is left that was truncated");
        drop(store);
        world.finish();
    });
}

#[test]
fn a_copy_that_moves_to_a_neighbour_goes() {
    moved_to_a_neighbour();
}

#[test]
#[should_panic(expected = "a copy is left that was truncated")]
fn broken_not_linked_again() {
    with_flaw(Mutant::NotLinkedAgain, moved_to_a_neighbour);
}

/// CPU 0 has a private copy in its TLB. A move of another mapping of the same page replaces the copy, and the
/// source stays mapped. The copy is a pending unmap, and the truncation walks once more: either is enough.
#[test]
fn a_copy_goes_that_the_same_is_moved_over() {
    explore(Some(3), || {
        let world = World::new(3, Policy::Speculative);
        let store = of_pages(&world, 2);
        // The walk reaches the source first. The moved page joins the mapping of page 1, so that the list has
        // only one other mapping.
        map(world.space(), 3, &store, 0, RW, flags::PRIVATE);
        map(world.space(), 0, &store, 0, RW, flags::PRIVATE);
        map(world.space(), 1, &store, 1, RW, flags::PRIVATE);
        world.cpu().store_file(0, 7).unwrap();
        let moving = world.run(1, |cpu| {
            let how = MOVE | remap_flags::DONTUNMAP;
            assert_eq!(cpu.space().mremap(3 * PAGE, PAGE, PAGE, how, 0), Ok(0));
        });
        let cutter = world.run(2, move |_| store.truncate(0).unwrap());
        cutter.join().unwrap();
        let seen = world.cpu().load_file(0);
        assert_ne!(seen, Ok(7), "a copy is left that was truncated");
        moving.join().unwrap();
        world.finish();
    });
}

/// A private copy in a new mapping, which a fault finds before the truncation can reach the mapping.
#[test]
fn a_copy_in_a_new_mapping_goes() {
    explore(Some(3), || {
        let world = World::new(3, Policy::Speculative);
        let store = of_pages(&world, 2);
        drop(store.page_to_write(1).unwrap());
        let mapping = {
            let store = store.clone();
            world.run(2, move |cpu| {
                map(cpu.space(), 1, &store, 1, RW, flags::PRIVATE)
            })
        };
        let fault = world.run(1, |cpu| cpu.store_file(PAGE, 1));
        store.truncate(0).unwrap();
        let _ = fault.join().unwrap();
        mapping.join().unwrap();
        let left = world.space().translate(PAGE);
        assert_eq!(left, None, "a copy is left that was truncated");
        drop(store);
        world.finish();
    });
}
