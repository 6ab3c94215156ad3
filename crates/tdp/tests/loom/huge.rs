//! Huge entries of a guest: mapped, split and put in the place of a table, beside the host, the log, and vCPUs.
//!
//! A huge page has two pages here: pages 0 and 1 of the host are pages 2 and 3 of the guest. At most two preemptions in the quick
//! form.

use std::sync::Arc;

use faultless_mm::{Policy, advice};
use faultless_sync::{Mutant, with_flaw};
use faultless_tdp::{Options, SlotFlags};

use crate::model::{PAGE, RW, Space, World, explore};
use crate::vcpu::{ModelGuest, Vcpu, dirty, finish, guest_by, guest_with, reset, ring, set};

const LOGS: SlotFlags = SlotFlags::LOG_DIRTY_PAGES;

/// A host with a huge page, of the words 7 and 8.
fn host() -> Arc<World> {
    let world = World::huge(2, Policy::default());
    world.map(0, 2, RW);
    world.cpu().store(0, 7).unwrap();
    world.cpu().store(PAGE, 8).unwrap();
    world
}

fn set_slot(guest: &ModelGuest, flags: SlotFlags) {
    set(guest, 0, [2, 2, 0], flags);
}

fn verify(guest: &ModelGuest) {
    guest.verify().unwrap_or_else(|wrong| panic!("{wrong}"));
}

/// The guest shows what the host does, and nothing else.
fn agree(world: &World, guest: &ModelGuest) {
    verify(guest);
    for page in 0..2 {
        let now = world.cpu().load(page * PAGE).ok();
        let seen = Vcpu::new(guest, 1).load(2 + page);
        assert_eq!(seen, now, "the guest sees something else");
    }
    verify(guest);
}

fn discard_one(space: &Space) {
    space.madvise(0, PAGE, advice::DONTNEED).unwrap();
}

fn discard_all(space: &Space) {
    space.madvise(0, 2 * PAGE, advice::DONTNEED).unwrap();
}

fn unmap_one(space: &Space) {
    space.munmap(0, PAGE).unwrap();
}

/// A split changes nothing that is shown; a discard behind it does.
fn split(space: &Space) {
    space.madvise(PAGE, PAGE, advice::FREE).unwrap();
    discard_one(space);
}

/// CPU 1 maps the huge page for a guest while CPU 0 changes the host.
fn mapped_beside(tdp_mmu: bool, change: fn(&Space)) {
    explore(Some(2), move || {
        let world = host();
        let guest = guest_by(&world, tdp_mmu);
        set_slot(&guest, SlotFlags::empty());
        let runner = {
            let guest = guest.clone();
            world.run(1, move |_| Vcpu::new(&guest, 1).load(3))
        };
        world.space().memory().machine().step();
        change(world.space());
        let seen = runner.join().unwrap();
        assert!(matches!(seen, Some(0 | 8)), "the guest sees something else");
        agree(&world, &guest);
        finish(guest, world);
    });
}

#[test]
fn mapped_beside_the_host() {
    for tdp_mmu in [true, false] {
        for change in [discard_one, discard_all, unmap_one, split] {
            mapped_beside(tdp_mmu, change);
        }
    }
}

#[test]
#[should_panic(expected = "the guest sees something else")]
fn broken_mapped_without_a_second_look() {
    with_flaw(Mutant::HostNotValidated, || {
        mapped_beside(true, discard_all)
    });
}

#[test]
#[should_panic(expected = "a guest's entry shows a frame that its host does not")]
fn broken_guests_not_told() {
    with_flaw(Mutant::GuestsNotTold, || mapped_beside(true, discard_one));
}

/// CPU 1 begins a log, which splits the guest's entry, while CPU 0 changes the host.
fn split_beside(tdp_mmu: bool, change: fn(&Space)) {
    explore(Some(2), move || {
        let world = host();
        let guest = guest_by(&world, tdp_mmu);
        set_slot(&guest, SlotFlags::empty());
        Vcpu::new(&guest, 1).store(2, 9).unwrap();
        let logger = {
            let guest = guest.clone();
            world.run(1, move |_| set_slot(&guest, LOGS))
        };
        world.space().memory().machine().step();
        change(world.space());
        logger.join().unwrap();
        assert_eq!(guest.count_pages()[1], 0);
        agree(&world, &guest);
        finish(guest, world);
    });
}

#[test]
fn split_beside_the_host() {
    for tdp_mmu in [true, false] {
        for change in [discard_one, discard_all] {
            split_beside(tdp_mmu, change);
        }
    }
}

#[test]
#[should_panic(expected = "a guest's entry shows a frame that its host does not")]
fn broken_split_not_seen() {
    with_flaw(Mutant::GuestSplitNotSeen, || {
        split_beside(true, discard_one)
    });
}

#[test]
#[should_panic(expected = "a guest's entry shows a frame that its host does not")]
fn broken_split_by_a_store() {
    with_flaw(Mutant::GuestSplitByStore, || {
        split_beside(true, discard_one)
    });
}

/// CPU 1 stores to page 3 while CPU 0 begins a log and copies the page: the store is in the copy, or in the log.
fn logged_beside(tdp_mmu: bool, eager_page_split: bool) {
    explore(Some(2), move || {
        let world = host();
        let guest = guest_with(
            &world,
            Options {
                tdp_mmu,
                eager_page_split,
                ..Options::default()
            },
        );
        set_slot(&guest, SlotFlags::empty());
        Vcpu::new(&guest, 1).store(2, 9).unwrap();
        let runner = {
            let guest = guest.clone();
            world.run(1, move |_| Vcpu::new(&guest, 1).store(3, 10).unwrap())
        };
        world.space().memory().machine().step();
        set_slot(&guest, LOGS);
        let copy = world.cpu().load(PAGE).unwrap();
        runner.join().unwrap();
        let bits = dirty(&guest, true);
        assert!(copy == 10 || bits == 2, "a store is not logged");
        assert_eq!(bits & 1, 0, "page 2 was not written");
        agree(&world, &guest);
        finish(guest, world);
    });
}

#[test]
fn logged_beside_a_store() {
    for (tdp_mmu, is_eager) in [(true, true), (true, false), (false, true), (false, false)] {
        logged_beside(tdp_mmu, is_eager);
    }
}

#[test]
#[should_panic(expected = "a store is not logged")]
fn broken_log_begins_without_a_flush() {
    with_flaw(Mutant::LogClearedWithoutFlush, || logged_beside(true, true));
}

/// A log that begins full: CPU 0 clears page 2 in it while CPU 1 stores to both pages, or discards one.
fn full_log(is_eager: bool, discards: bool) {
    explore(Some(2), move || {
        let world = host();
        let guest = guest_with(
            &world,
            Options {
                eager_page_split: is_eager,
                ..Options::default()
            },
        );
        set_slot(&guest, SlotFlags::empty());
        Vcpu::new(&guest, 1).store(2, 9).unwrap();
        set_slot(&guest, LOGS | SlotFlags::LOG_BEGINS_FULL);
        let other = {
            let guest = guest.clone();
            world.run(1, move |cpu| match discards {
                true => discard_one(cpu.space()),
                false => Vcpu::new(&guest, 1).store(2, 10).unwrap(),
            })
        };
        world.space().memory().machine().step();
        guest.clear_dirty_log(0, 0, 2, &mut || Ok(1)).unwrap();
        let copy = world.cpu().load(0).unwrap();
        other.join().unwrap();
        let bits = dirty(&guest, true);
        assert_eq!(bits & 2, 2, "page 3 was not cleared");
        let is_stored = discards || copy == 10 || bits & 1 == 1;
        assert!(is_stored, "a store is not logged");
        assert_eq!(dirty(&guest, true), 0);
        agree(&world, &guest);
        finish(guest, world);
    });
}

#[test]
fn cleared_in_a_full_log() {
    for is_eager in [true, false] {
        for discards in [true, false] {
            full_log(is_eager, discards);
        }
    }
}

/// A log ends: a huge entry takes the place of the table, while CPU 1 uses both pages, or changes the host.
fn replaced_beside(tdp_mmu: bool, discards: bool) {
    explore(Some(2), move || {
        let world = host();
        let guest = guest_by(&world, tdp_mmu);
        set_slot(&guest, LOGS);
        Vcpu::new(&guest, 1).store(2, 9).unwrap();
        assert_eq!(guest.count_pages()[1], 0);
        let other = {
            let guest = guest.clone();
            world.run(1, move |cpu| match discards {
                true => discard_one(cpu.space()),
                false => {
                    let vcpu = Vcpu::new(&guest, 1);
                    vcpu.store(2, 10).unwrap();
                    assert_eq!(vcpu.load(3), Some(8));
                }
            })
        };
        world.space().memory().machine().step();
        set_slot(&guest, SlotFlags::empty());
        // The table is freed now, if no reader keeps it. A vCPU's walk is none.
        (0..3).for_each(|_| world.space().memory().expedite());
        other.join().unwrap();
        if !discards {
            assert_eq!(guest.count_pages(), [0, 1]);
        }
        agree(&world, &guest);
        finish(guest, world);
    });
}

#[test]
fn replaced_beside_others() {
    for tdp_mmu in [true, false] {
        for discards in [true, false] {
            replaced_beside(tdp_mmu, discards);
        }
    }
}

#[test]
#[should_panic(expected = "a guest's entry shows a frame that its host does not")]
fn broken_replaced_without_a_second_look() {
    with_flaw(Mutant::HostNotValidated, || replaced_beside(true, true));
}

#[test]
#[should_panic(expected = "a walk cache holds a table that is freed")]
fn broken_replaced_without_a_flush() {
    with_flaw(Mutant::ReplacedTableNotFlushed, || {
        replaced_beside(true, false);
    });
}

/// Two vCPUs on the two pages of a span, of which the first finds the host's pages small: one maps a small entry, one a huge one.
fn small_beside_huge() {
    explore(Some(2), || {
        let world = World::huge(2, Policy::default());
        world
            .space()
            .memory()
            .set_huge_mode(faultless_mm::HugeMode::Never);
        world.map(0, 2, RW);
        world.cpu().store(0, 7).unwrap();
        world.cpu().store(PAGE, 8).unwrap();
        let guest = guest_by(&world, true);
        set_slot(&guest, SlotFlags::empty());
        Vcpu::new(&guest, 0).load(2).unwrap();
        world
            .space()
            .madvise(0, 2 * PAGE, advice::COLLAPSE)
            .unwrap();
        let other = {
            let guest = guest.clone();
            world.run(1, move |_| {
                let vcpu = Vcpu::new(&guest, 1);
                vcpu.store(2, 9).unwrap();
                vcpu.load(3)
            })
        };
        world.space().memory().machine().step();
        assert_eq!(Vcpu::new(&guest, 0).load(3), Some(8));
        assert_eq!(other.join().unwrap(), Some(8));
        assert_eq!(guest.count_pages(), [0, 1]);
        agree(&world, &guest);
        finish(guest, world);
    });
}

#[test]
fn tables_make_way_at_a_fault() {
    small_beside_huge();
}

/// With rings a store that no fault has announced is lost.
fn in_rings() {
    explore(Some(2), || {
        let world = host();
        let guest = guest_with(
            &world,
            Options {
                eager_page_split: false,
                ..Options::default()
            },
        );
        guest.use_rings().unwrap();
        let ring = ring(4);
        set_slot(&guest, SlotFlags::empty());
        Vcpu::with_ring(&guest, 1, &ring).store(2, 9).unwrap();
        set_slot(&guest, LOGS);
        let runner = {
            let (guest, ring) = (guest.clone(), ring.clone());
            world.run(1, move |_| {
                let vcpu = Vcpu::with_ring(&guest, 1, &ring);
                vcpu.store(3, 10).unwrap();
                vcpu.store(2, 10).unwrap();
            })
        };
        world.space().memory().machine().step();
        discard_one(world.space());
        runner.join().unwrap();
        let mut next = 0;
        assert_eq!(reset(&guest, &ring, &mut next), 3, "a store is in no ring");
        agree(&world, &guest);
        finish(guest, world);
    });
}

#[test]
fn stores_are_in_rings() {
    in_rings();
}

#[test]
#[should_panic(expected = "a store is in no ring")]
fn broken_huge_made_writable() {
    with_flaw(Mutant::HugeMadeWritable, in_rings);
}

/// CPU 1 stores to a page that a huge entry shows, while CPU 0 moves the slot by a part of itself. The entry is the old place's: it
/// goes as a whole.
fn moved_beside_a_store(tdp_mmu: bool) {
    explore(Some(2), move || {
        let world = host();
        let options = Options {
            tdp_mmu,
            eager_page_split: false,
            ..Options::default()
        };
        let guest = guest_with(&world, options);
        set_slot(&guest, SlotFlags::empty());
        Vcpu::new(&guest, 1).load(2).unwrap();
        set_slot(&guest, LOGS);
        assert_eq!(guest.count_pages()[1], 1);
        let runner = {
            let guest = guest.clone();
            world.run(1, move |_| Vcpu::new(&guest, 1).store(2, 9))
        };
        world.space().memory().machine().step();
        set(&guest, 0, [1, 2, 0], LOGS);
        assert_eq!(runner.join().unwrap(), Some(()));
        verify(&guest);
        for page in 0..2 {
            let now = world.cpu().load(page * PAGE).ok();
            assert_eq!(
                Vcpu::new(&guest, 1).load(1 + page),
                now,
                "the guest sees something else"
            );
        }
        finish(guest, world);
    });
}

#[test]
fn moved_by_a_part_of_itself() {
    moved_beside_a_store(true);
    moved_beside_a_store(false);
}

#[test]
#[should_panic]
fn broken_split_of_a_slot_that_leaves() {
    with_flaw(Mutant::SlotsNotValidated, || moved_beside_a_store(false));
}
