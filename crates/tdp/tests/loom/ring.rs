//! Dirty rings: the ring itself, and stores of a guest beside its harvest and reset. A store that begins after a reset is in the
//! ring again.
//!
//! At most three preemptions in the quick form.

use std::sync::Arc;

use faultless_mm::{AtomicU32, Policy, advice};
use faultless_sync::atomic::Ordering::Relaxed;
use faultless_sync::{Mutant, with_flaw};
use faultless_tdp::{DirtyRing, SlotFlags};

use crate::model::{PAGE, RW, World, explore};
use crate::vcpu::{ModelGuest, Vcpu, finish, guest, reset, ring, set};

/// A guest with rings, with one page of guest memory at page 1.
fn ringed(world: &Arc<World>, flags: SlotFlags) -> Arc<ModelGuest> {
    world.map(0, 2, RW);
    let guest = guest(world);
    guest.use_rings().unwrap();
    set(&guest, 0, [1, 1, 0], flags);
    guest
}

/// CPU 1 stores while CPU 0 harvests, resets, and harvests again. `change` comes before the first harvest.
fn stored_beside(change: fn(&World)) {
    explore(Some(3), move || {
        let world = World::new(2, Policy::default());
        let guest = ringed(&world, SlotFlags::LOG_DIRTY_PAGES);
        let (ring, mut next) = (ring(4), 0);
        Vcpu::with_ring(&guest, 1, &ring).store(1, 7).unwrap();
        let is_clean = Arc::new(AtomicU32::new(0));
        let runner = {
            let (guest, ring, is_clean) = (guest.clone(), ring.clone(), is_clean.clone());
            world.run(1, move |_| {
                let late = is_clean.load(Relaxed) == 1;
                Vcpu::with_ring(&guest, 1, &ring).store(1, 9).unwrap();
                late
            })
        };
        world.space().memory().machine().step();
        change(&world);
        assert_eq!(reset(&guest, &ring, &mut next), 1, "it was stored to");
        is_clean.store(1, Relaxed);
        let copy = world.cpu().load(0).unwrap();
        let late = runner.join().unwrap();
        let second = harvest(&ring, &mut next);
        let last = world.cpu().load(0).unwrap();
        assert!(copy == last || second, "a store is missed");
        assert!(!late || second, "a late store is missed");
        finish(guest, world);
    });
}

/// Whether the page is in the ring once more.
fn harvest(ring: &DirtyRing<'_>, next: &mut u64) -> bool {
    let mut is_there = false;
    while let Some(page) = ring.harvest(next) {
        assert_eq!(page, (0, 0), "a page that was not pushed");
        is_there = true;
    }
    is_there
}

#[test]
fn a_store_beside_a_reset_is_in_the_ring() {
    stored_beside(|_| {});
}

#[test]
fn a_store_beside_a_discard_and_a_reset_is_in_the_ring() {
    stored_beside(|world| {
        world.space().madvise(0, PAGE, advice::DONTNEED).unwrap();
    });
}

#[test]
#[should_panic(expected = "store is missed")]
fn broken_reset_without_a_flush() {
    with_flaw(Mutant::LogClearedWithoutFlush, || stored_beside(|_| {}));
}

/// The page is clean, and vCPU 1 makes it dirty, while CPU 0 harvests and resets twice.
fn made_dirty_beside() {
    explore(Some(3), || {
        let world = World::new(2, Policy::default());
        let guest = ringed(&world, SlotFlags::LOG_DIRTY_PAGES);
        let (ring, mut next) = (ring(4), 0);
        Vcpu::with_ring(&guest, 1, &ring).store(1, 7).unwrap();
        assert_eq!(reset(&guest, &ring, &mut next), 1);
        let runner = {
            let (guest, ring) = (guest.clone(), ring.clone());
            world.run(1, move |_| {
                Vcpu::with_ring(&guest, 1, &ring).store(1, 8).unwrap();
                Vcpu::with_ring(&guest, 1, &ring).store(1, 9).unwrap();
            })
        };
        world.space().memory().machine().step();
        reset(&guest, &ring, &mut next);
        let copy = world.cpu().load(0).unwrap();
        runner.join().unwrap();
        let second = harvest(&ring, &mut next);
        assert!(copy == 9 || second, "a store is missed");
        finish(guest, world);
    });
}

#[test]
fn a_first_store_beside_a_reset_is_in_the_ring() {
    made_dirty_beside();
}

#[test]
#[should_panic(expected = "a store is missed")]
fn broken_pushed_before_the_claim() {
    with_flaw(Mutant::PushedBeforeClaim, made_dirty_beside);
}

/// vCPU 1 stores to a clean page of a slot whose log begins meanwhile.
fn begun_beside() {
    explore(Some(3), || {
        let world = World::new(2, Policy::default());
        let guest = ringed(&world, SlotFlags::LOG_DIRTY_PAGES);
        let (ring, mut next) = (ring(4), 0);
        Vcpu::with_ring(&guest, 1, &ring).store(1, 7).unwrap();
        assert_eq!(reset(&guest, &ring, &mut next), 1);
        // The entry stays without write access.
        set(&guest, 0, [1, 1, 0], SlotFlags::empty());
        let runner = {
            let (guest, ring) = (guest.clone(), ring.clone());
            world.run(1, move |_| {
                Vcpu::with_ring(&guest, 1, &ring).store(1, 9).unwrap();
            })
        };
        world.space().memory().machine().step();
        set(&guest, 0, [1, 1, 0], SlotFlags::LOG_DIRTY_PAGES);
        let copy = world.cpu().load(0).unwrap();
        runner.join().unwrap();
        let is_pushed = harvest(&ring, &mut next);
        assert!(copy == 9 || is_pushed, "a store is missed");
        finish(guest, world);
    });
}

#[test]
fn a_store_beside_the_beginning_of_a_log_is_in_the_ring() {
    begun_beside();
}

#[test]
#[should_panic(expected = "a store is missed")]
fn broken_slots_not_validated() {
    with_flaw(Mutant::SlotsNotValidated, begun_beside);
}

/// A vCPU makes two pages of a ring of one place dirty, in turn.
fn full_ring() {
    explore(Some(3), || {
        let world = World::new(2, Policy::default());
        world.map(0, 2, RW);
        let guest = guest(&world);
        guest.use_rings().unwrap();
        set(&guest, 0, [0, 2, 0], SlotFlags::LOG_DIRTY_PAGES);
        let (ring, mut next) = (ring(1), 0);
        let runner = {
            let (guest, ring) = (guest.clone(), ring.clone());
            world.run(1, move |_| {
                let vcpu = Vcpu::with_ring(&guest, 1, &ring);
                assert!(vcpu.store(0, 8).is_some(), "the ring is empty");
                vcpu.store(1, 9).is_some()
            })
        };
        world.space().memory().machine().step();
        let mut found = reset(&guest, &ring, &mut next);
        let has_stored = runner.join().unwrap();
        while let Some((slot, page)) = ring.harvest(&mut next) {
            assert_eq!(slot, 0);
            found |= 1 << page;
        }
        let stored = if has_stored { 3 } else { 1 };
        assert_eq!(
            found, stored,
            "what is in the ring is not what was stored to"
        );
        finish(guest, world);
    });
}

#[test]
fn a_place_is_used_again() {
    full_ring();
}

#[test]
#[should_panic(expected = "what is in the ring")]
fn broken_flag_before_the_page() {
    with_flaw(Mutant::FlagBeforePage, full_ring);
}

#[test]
#[should_panic(expected = "what is in the ring")]
fn broken_place_freed_early() {
    with_flaw(Mutant::PlaceFreedEarly, full_ring);
}
