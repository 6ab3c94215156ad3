//! Loom models of owned translations (`faultless_paging::holders`).
//!
//! One CPU's fault has installed a page or a table, which is zapped, write-protected, or aged while another
//! CPU loads it. A CPU that gets no flush request holds no translation.
//!
//! At most three preemptions; the owner is CPU 0, the thread that runs the model.

use std::sync::Arc;

use crate::model::{PAGE, RW, Space, World, explore, with_marks};
use faultless_mm::{AgingMode, AtomicU32, Policy, SegvCode, advice};
use faultless_sync::atomic::Ordering::Relaxed;
use faultless_sync::{Mutant, with_flaw};

const OLD: u64 = 7;
const NEW: u64 = 9;

fn remote_flushes(world: &World) -> u64 {
    world.space().memory().machine().remote_flushes()
}

/// CPU 0 unmaps, or discards, its page while CPU 1 loads it.
fn a_page_and_a_load(discards: bool) {
    explore(Some(3), move || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 2, RW);
        // A second page keeps the table.
        world.cpu().store(PAGE, OLD).unwrap();
        world.cpu().store(0, OLD).unwrap();
        let other = world.run(1, |cpu| cpu.load(0));
        if discards {
            world.space().madvise(0, PAGE, advice::DONTNEED).unwrap();
        } else {
            world.space().munmap(0, PAGE).unwrap();
        }
        let expected = match discards {
            true => [Ok(OLD), Ok(0)],
            false => [Ok(OLD), Err(SegvCode::MapErr)],
        };
        assert!(expected.contains(&other.join().unwrap()));
        world.finish();
    });
}

#[test]
fn a_page_goes_beside_a_load() {
    with_marks(|| {
        a_page_and_a_load(false);
        a_page_and_a_load(true);
    });
}

#[test]
#[should_panic(expected = "a TLB holds a frame that is freed")]
fn broken_load_not_marked() {
    with_marks(|| with_flaw(Mutant::LoadNotMarked, || a_page_and_a_load(false)));
}

/// No other CPU has loaded the page or the table, so no other CPU is asked to flush.
#[test]
fn owned_pages_interrupt_no_cpu() {
    with_marks(|| {
        explore(None, || {
            let world = World::new(2, Policy::Speculative);
            for _ in 0..2 {
                world.map(0, 1, RW);
                world.cpu().store(0, OLD).unwrap();
                world.space().munmap(0, PAGE).unwrap();
            }
            assert_eq!(remote_flushes(&world), 0);
            world.finish();
        });
    });
}

/// CPU 0 unmaps a table's only page while CPU 1 walks the table for another page.
fn a_table_and_a_walk() {
    explore(Some(3), || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 1, RW);
        world.cpu().store(0, OLD).unwrap();
        let walker = world.run(1, |cpu| {
            for page in [1, 0] {
                let loaded = cpu.load(page * PAGE);
                assert!([Ok(OLD), Err(SegvCode::MapErr)].contains(&loaded));
            }
        });
        world.space().munmap(0, PAGE).unwrap();
        walker.join().unwrap();
        for _ in 0..4 {
            world.space().memory().expedite();
        }
        assert_eq!(world.space().memory().deferred(), 0);
        assert_eq!(world.finish().pages, 0);
    });
}

#[test]
fn a_table_goes_beside_a_walk() {
    with_marks(a_table_and_a_walk);
}

#[test]
#[should_panic(expected = "that is freed")]
fn broken_walk_not_marked() {
    with_marks(|| with_flaw(Mutant::LoadNotMarked, a_table_and_a_walk));
}

/// CPU 1 has loaded a page and discards it, while CPU 0 clears its accessed bit by `clear`. CPU 0 may hold the page
/// itself.
fn beside_a_discard(clear: fn(&Space)) {
    explore(Some(3), move || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 2, RW);
        world.cpu().store(PAGE, OLD).unwrap();
        world.cpu().store(0, OLD).unwrap();
        let other = world.run(1, |cpu| {
            cpu.load(0).unwrap();
            cpu.space().madvise(0, PAGE, advice::DONTNEED).unwrap();
        });
        clear(world.space());
        other.join().unwrap();
        world.finish();
    });
}

fn clearing_beside_a_discard() {
    beside_a_discard(|space| space.clear_accessed(AgingMode::All));
}

fn cooling_beside_a_discard() {
    beside_a_discard(|space| space.madvise(0, PAGE, advice::COLD).unwrap());
}

#[test]
fn a_bit_is_cleared_beside_a_discard() {
    with_marks(clearing_beside_a_discard);
}

#[test]
fn a_page_is_made_cold_beside_a_discard() {
    with_marks(cooling_beside_a_discard);
}

#[test]
#[should_panic(expected = "a TLB holds a frame that is freed")]
fn broken_owner_not_taken_away_from_a_cold_page() {
    with_marks(|| with_flaw(Mutant::OwnerNotTakenAway, cooling_beside_a_discard));
}

#[test]
#[should_panic(expected = "a TLB holds a frame that is freed")]
fn broken_owner_not_taken_away() {
    with_marks(|| with_flaw(Mutant::OwnerNotTakenAway, clearing_beside_a_discard));
}

/// CPU 1 stores to a page for the first time while CPU 0 clears soft-dirty bits.
fn watching_beside_a_store() {
    explore(Some(4), || {
        let world = World::new(2, Policy::Speculative);
        world.map(0, 1, RW);
        world.cpu().store(0, OLD).unwrap();
        // An atomic of loom's, so that it explores both orders of this and the store.
        let is_clear = Arc::new(AtomicU32::new(0));
        let writer = {
            let is_clear = is_clear.clone();
            world.run(1, move |cpu| {
                cpu.store(0, NEW).unwrap();
                let late = is_clear.load(Relaxed) == 1;
                cpu.store(0, NEW).unwrap();
                late
            })
        };
        world.space().memory().machine().step();
        world.space().clear_soft_dirty();
        is_clear.store(1, Relaxed);
        let late = writer.join().unwrap();
        let counts = world.space().page_state(0).soft_dirty;
        assert!(counts || !late, "a store is missed");
        world.finish();
    });
}

#[test]
fn a_page_is_watched_beside_a_store() {
    with_marks(watching_beside_a_store);
}

#[test]
#[should_panic(expected = "a store is missed")]
fn broken_holders_of_the_first_look() {
    with_marks(|| with_flaw(Mutant::HoldersOfFirstLook, watching_beside_a_store));
}
