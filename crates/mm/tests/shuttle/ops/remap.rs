//! `mremap` beside stores to both places, in random interleavings of whole operations.
//!
//! Stored content moves along. After the move no access reaches a page by its old address, whatever a TLB
//! holds. A fault at a destination where something else was mapped waits, and does not end in SIGSEGV.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::model::{PAGE, RW, World, explore, with_lazy_tlbs};
use faultless_mm::{MemoryObject, Opened, Policy, SegvCode, flags, remap_flags};

const FIXED: u32 = remap_flags::MAYMOVE | remap_flags::FIXED;
/// The target of pages 0 and 1, in another table.
const TO: u64 = 8 * PAGE;

fn a_move_beside_stores(policy: Policy) {
    let world = World::new(3, policy);
    world.map(0, 3, RW);
    let returned = Arc::new(AtomicBool::new(false));
    let threads = [1u32, 2].map(|number| {
        let returned = returned.clone();
        world.run(number, move |cpu| {
            let mut written = [0; 2];
            for round in 0..8 {
                let page = round as usize % 2;
                let bit = 1u64 << (8 * number + round);
                let late = returned.load(Relaxed);
                match cpu.set_bits(page as u64 * PAGE, bit) {
                    Ok(()) => {
                        assert!(!late, "a store outlived the move");
                        written[page] |= bit;
                    }
                    Err(code) => assert_eq!(code, SegvCode::MapErr),
                }
            }
            written
        })
    });
    let moved = world.space().mremap(0, 2 * PAGE, 2 * PAGE, FIXED, TO);
    assert_eq!(moved, Ok(TO));
    returned.store(true, Relaxed);
    let seen = [0, 1].map(|page| world.cpu().load(TO + page * PAGE).unwrap());
    let written = threads.map(|thread| thread.join().unwrap());
    for page in 0..2 {
        let expected = written[0][page] | written[1][page];
        assert_eq!(
            seen[page], expected,
            "a store outlived the move, or was lost"
        );
    }
    assert_eq!(world.cpu().load(0), Err(SegvCode::MapErr));
    world.finish();
}

#[test]
fn what_was_stored_goes_along() {
    explore(3000, a_move_beside_stores);
}

#[test]
#[should_panic(expected = "a store outlived the move")]
fn broken_move_without_a_flush() {
    with_lazy_tlbs(|| explore(3000, a_move_beside_stores));
}

/// A CPU keeps storing at the destination, where something else was mapped. It stores to the old page or to
/// the new one, and never gets SIGSEGV.
#[test]
fn a_destination_is_never_unmapped() {
    explore(3000, |policy| {
        let world = World::new(2, policy);
        world.map(0, 1, RW);
        world.map(TO / PAGE, 2, RW);
        world.cpu().store(0, 1 << 40).unwrap();
        let thread = world.run(1, move |cpu| {
            for round in 0..6 {
                cpu.set_bits(TO, 1 << round).expect("always mapped");
            }
        });
        let moved = world.space().mremap(0, PAGE, PAGE, FIXED, TO);
        assert_eq!(moved, Ok(TO));
        let seen = world.cpu().load(TO).unwrap();
        assert_eq!(seen >> 40, 1, "the page has moved");
        thread.join().unwrap();
        world.finish();
    });
}

/// A mapping grows in place towards a stack that grows down: one of the two succeeds.
#[test]
fn a_mapping_and_a_stack_grow_towards_each_other() {
    explore(3000, |policy| {
        let world = World::new(2, policy);
        let space = world.space();
        // A mapping without any access keeps no stack away.
        world.map(10, 2, 0);
        let stack = crate::model::FIXED | faultless_mm::flags::GROWSDOWN;
        space.mmap(20 * PAGE, PAGE, RW, stack).unwrap();
        let thread = world.run(1, move |cpu| cpu.store(15 * PAGE, 1));
        let grown = space.mremap(10 * PAGE, 2 * PAGE, 8 * PAGE, 0, 0);
        match thread.join().unwrap() {
            Ok(()) => {
                assert_eq!(grown, Err(faultless_mm::Errno::ENOMEM));
                assert_eq!(world.cpu().load(15 * PAGE), Ok(1));
            }
            Err(_) => assert_eq!(grown, Ok(10 * PAGE)),
        }
        world.finish();
    });
}

/// A move fails for lack of memory while its neighbour's page is unmapped: no unused table is left.
#[test]
fn a_move_that_fails_leaves_no_table() {
    explore(3000, |policy| {
        let world = World::new(2, policy);
        for page in [0, 16] {
            world.map(page, 1, RW);
            world.cpu().store(page * PAGE, 1).unwrap();
        }
        let machine = world.space().memory().machine();
        machine.fail_one_in(3);
        let neighbour = world.run(
            1,
            |cpu| while cpu.space().munmap(16 * PAGE, PAGE).is_err() {},
        );
        let to = 18 * PAGE;
        let moved = world.space().mremap(0, PAGE, PAGE, FIXED, to);
        neighbour.join().unwrap();
        machine.fail_one_in(0);
        assert_eq!(world.cpu().load(moved.unwrap_or(0)), Ok(1));
        // One table of each level, wherever the page is.
        assert_eq!(world.finish().tables, 3, "a table is left");
    });
}

/// The same where `mremap` maps shared memory a second time.
#[test]
fn a_second_mapping_that_fails_leaves_no_table() {
    explore(3000, |policy| {
        let world = World::new(2, policy);
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
        world.cpu().store_file(0, 1).unwrap();
        // The new mapping will be placed beside this one.
        let beside = world
            .space()
            .mmap(0, PAGE, RW, flags::PRIVATE | flags::ANONYMOUS)
            .unwrap();
        world.cpu().store(beside, 1).unwrap();
        let machine = world.space().memory().machine();
        machine.fail_one_in(3);
        let neighbour = world.run(
            1,
            move |cpu| {
                while cpu.space().munmap(beside, PAGE).is_err() {}
            },
        );
        let made = world.space().mremap(0, 0, PAGE, remap_flags::MAYMOVE, 0);
        neighbour.join().unwrap();
        machine.fail_one_in(0);
        if let Ok(made) = made {
            world.space().munmap(made, PAGE).unwrap();
        }
        drop(store);
        assert_eq!(world.finish().tables, 3, "a table is left");
    });
}
