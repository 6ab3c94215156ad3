//! Loom models of huge pages of memory objects.
//!
//! * A fault that maps one, or adds one, beside a hole in its other half, and beside a truncation (rule R6): no entry shows what
//!   has left, and no entry shows as a whole what is not whole any more.
//! * Of two faults that add one, one does, and both map the same.
//! * One that is mapped twice: split in one place beside a fault in the other, there is a table for each entry.
//! * A page of one that moves to another frame.
//!
//! A huge page has two pages here. The object is mapped at pages 0 and 1, and in some models at 2 and 3 too. At most three
//! preemptions.

use std::sync::Arc;

use crate::model::{Model, PAGE, Processor, RW, World, explore};
use faultless_mm::{
    Cpu, FrameSource, HugeMode, MemoryObject, Mover, Opened, Outcome, PROT_READ, Policy, flags,
};
use faultless_sync::{Mutant, with_flaw};

/// A world with an object of one huge page, mapped at page 0.
fn begin() -> (Arc<World>, MemoryObject<Model>) {
    let world = World::new(2, Policy::Speculative);
    world
        .space()
        .memory()
        .set_shared_huge_mode(HugeMode::Always);
    let object = MemoryObject::new(world.space().memory(), 2 * PAGE, None, 0).unwrap();
    map(&world, &object, 0);
    (world, object)
}

fn map(world: &World, object: &MemoryObject<Model>, page: u64) {
    let opened = Opened {
        store: Ok(object),
        offset: 0,
        file: 0,
        writable: true,
    };
    let (at, how) = (page * PAGE, flags::SHARED | flags::FIXED);
    let mapped = world.space().mmap_object(at, 2 * PAGE, RW, how, &opened);
    assert_eq!(mapped, Ok(at));
}

/// How many huge pages the object has, and how many entries map them.
fn counts(world: &World) -> (u64, u64) {
    world.space().memory().object_huge_pages()
}

/// CPU 1 stores to page 0, while CPU 0 punches a hole for page 1. `is_there`: the object has the huge page before.
fn beside_a_hole(is_there: bool) {
    explore(Some(3), move || {
        let (world, object) = begin();
        if is_there {
            world.cpu().store_file(0, 7).unwrap();
            world
                .space()
                .madvise(0, 2 * PAGE, faultless_mm::advice::DONTNEED)
                .unwrap();
            assert_eq!(counts(&world), (1, 0));
        }
        let fault = world.run(1, |cpu| cpu.store_file(0, 9));
        world.space().memory().machine().step();
        object.punch(PAGE..2 * PAGE).unwrap();
        assert_eq!(fault.join().unwrap(), Ok(()));
        assert_eq!(world.cpu().load_file(0), Ok(9), "a store is lost");
        assert_eq!(world.cpu().load_file(PAGE), Ok(0));
        let (pages, maps) = counts(&world);
        assert!(maps <= pages, "what is not whole is mapped as a whole");
        drop(object);
        world.finish();
    });
}

#[test]
fn a_fault_that_maps_it_beside_a_hole() {
    beside_a_hole(true);
}

#[test]
fn a_fault_that_adds_it_beside_a_hole() {
    beside_a_hole(false);
}

#[test]
#[should_panic(expected = "what is not whole is mapped as a whole")]
fn broken_whole_not_asked() {
    with_flaw(Mutant::WholeNotAsked, || beside_a_hole(true));
}

// The fault tries to map it forever.
#[test]
#[should_panic(expected = "maximum number of branches")]
fn broken_whole_not_ended() {
    with_flaw(Mutant::WholeNotEnded, || beside_a_hole(true));
}

#[test]
#[should_panic(expected = "maximum number of branches")]
fn broken_whole_not_validated() {
    with_flaw(Mutant::WholeNotValidated, || beside_a_hole(false));
}

/// CPU 1 stores to page 0, while CPU 0 truncates the object: to nothing, or by a page.
fn beside_a_truncation(to: u64, is_there: bool) {
    explore(Some(3), move || {
        let (world, object) = begin();
        if is_there {
            world.cpu().store_file(0, 7).unwrap();
        }
        let fault = world.run(1, |cpu| cpu.store_file(0, 9));
        world.space().memory().machine().step();
        object.truncate(to).unwrap();
        let seen = fault.join().unwrap();
        match to {
            0 => assert!(matches!(seen, Ok(()) | Err(Outcome::Bus)), "{seen:?}"),
            _ => assert_eq!(seen, Ok(())),
        }
        assert_eq!(object.pages(), to / PAGE);
        assert_eq!(
            world.space().translate(PAGE),
            None,
            "a page is left that was truncated"
        );
        assert_eq!(counts(&world), (0, 0));
        assert_eq!(world.cpu().load_file(PAGE), Err(Outcome::Bus));
        drop(object);
        world.finish();
    });
}

#[test]
fn a_truncation_of_all() {
    beside_a_truncation(0, true);
    beside_a_truncation(0, false);
}

#[test]
fn a_truncation_of_a_part() {
    beside_a_truncation(PAGE, true);
    beside_a_truncation(PAGE, false);
}

/// CPU 1 and CPU 0 store to the two mappings of the object.
#[test]
fn two_faults_add_one() {
    explore(Some(3), || {
        let (world, object) = begin();
        map(&world, &object, 2);
        let other = world.run(1, |cpu| cpu.store_file(2 * PAGE, 9));
        world.cpu().store_file(PAGE, 7).unwrap();
        assert_eq!(other.join().unwrap(), Ok(()));
        assert_eq!(world.cpu().load_file(0), Ok(9), "a store is lost");
        assert_eq!(world.cpu().load_file(3 * PAGE), Ok(7), "a store is lost");
        assert_eq!(counts(&world), (1, 2));
        drop(object);
        world.finish();
    });
}

/// CPU 1 stores to one mapping, while CPU 0 protects, unmaps or discards a page of the other.
fn beside_a_split(split: fn(&Processor<'_>)) {
    explore(Some(3), move || {
        let (world, object) = begin();
        map(&world, &object, 2);
        world.cpu().store_file(0, 7).unwrap();
        assert_eq!(counts(&world), (1, 1));
        let other = world.run(1, |cpu| cpu.store_file(3 * PAGE, 9));
        split(&world.cpu());
        assert_eq!(other.join().unwrap(), Ok(()));
        assert_eq!(counts(&world), (1, 1));
        assert_eq!(world.cpu().load_file(2 * PAGE), Ok(7));
        drop(object);
        world.finish();
    });
}

#[test]
fn a_fault_beside_a_split_elsewhere() {
    beside_a_split(|cpu| cpu.space().munmap(PAGE, PAGE).unwrap());
    beside_a_split(|cpu| cpu.space().mprotect(0, PAGE, PROT_READ).unwrap());
}

/// CPU 1 stores to page 0, while CPU 0 moves page 1 to another frame.
#[test]
fn a_fault_beside_a_move() {
    explore(Some(3), || {
        let (world, object) = begin();
        world.cpu().store_file(PAGE, 7).unwrap();
        let (space, memory) = (world.space(), world.space().memory());
        let from = space.translate(PAGE).unwrap();
        space
            .madvise(0, 2 * PAGE, faultless_mm::advice::DONTNEED)
            .unwrap();
        let fault = world.run(1, |cpu| cpu.store_file(0, 9));
        let machine = memory.machine();
        let to = machine.allocate(Cpu(0)).unwrap();
        let moved = Mover::new(memory).unwrap().migrate(from, to).is_ok();
        machine.free(Cpu(0), if moved { from } else { to });
        assert_eq!(fault.join().unwrap(), Ok(()));
        assert_eq!(world.cpu().load_file(PAGE), Ok(7));
        let (pages, maps) = counts(&world);
        assert!(pages == u64::from(!moved) && maps <= pages);
        drop(object);
        world.finish();
    });
}
