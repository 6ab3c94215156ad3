//! A slot's end beside a fault: once the call returns, no vCPU reaches the slot's memory. Its tables are freed beside
//! faults of a neighbour.
//!
//! At most two preemptions in the quick form.

use faultless_mm::{Policy, advice};
use faultless_sync::{Mutant, with_flaw};
use faultless_tdp::{Slot, SlotFlags};

use crate::model::{PAGE, RW, World, explore};
use crate::vcpu::{Vcpu, dirty, finish, guest_by, set};

/// CPU 1 stores to guest page `touched` while CPU 0 deletes slot 0, which has page 0. Page 1 has the same table, and is
/// logged. `has_page`: page 0 is mapped before. With the TDP MMU or the legacy one.
fn deleted(tdp_mmu: bool, touched: u64, has_page: bool) {
    explore(Some(2), move || {
        let world = World::new(2, Policy::default());
        world.map(0, 2, RW);
        let guest = guest_by(&world, tdp_mmu);
        set(&guest, 1, [0, 1, 0], SlotFlags::empty());
        set(&guest, 0, [1, 1, 1], SlotFlags::LOG_DIRTY_PAGES);
        if has_page {
            Vcpu::new(&guest, 0).store(0, 7).unwrap();
        }
        let runner = {
            let guest = guest.clone();
            world.run(1, move |_| Vcpu::new(&guest, 1).store(touched, 9))
        };
        world.space().memory().machine().step();
        guest.set_slot(1, &Slot::default()).unwrap();
        let stored = runner.join().unwrap();
        assert_eq!(
            Vcpu::new(&guest, 1).load(0),
            None,
            "a slot is reached after its end"
        );
        if touched == 1 {
            assert_eq!(stored, Some(()));
            assert_eq!(dirty(&guest, false), 1, "a neighbour's store is lost");
            assert_eq!(Vcpu::new(&guest, 1).load(1), Some(9));
        }
        finish(guest, world);
    });
}

#[test]
fn its_own_page() {
    for tdp_mmu in [true, false] {
        deleted(tdp_mmu, 0, false);
        deleted(tdp_mmu, 0, true);
    }
}

#[test]
fn its_neighbours_page() {
    for tdp_mmu in [true, false] {
        deleted(tdp_mmu, 1, false);
        deleted(tdp_mmu, 1, true);
    }
}

#[test]
#[should_panic(expected = "a slot is reached after its end")]
fn broken_slots_not_validated() {
    with_flaw(Mutant::SlotsNotValidated, || deleted(true, 0, false));
}

#[test]
#[should_panic(expected = "a neighbour's store is lost")]
fn broken_table_not_scanned() {
    with_flaw(Mutant::TableNotScanned, || deleted(true, 1, true));
}

/// CPU 1 deletes the slot of a page that a vCPU has cached, while CPU 0 discards the page. Whichever takes the guest's entry
/// away, the page is not freed before it is flushed.
fn deleted_beside_the_host() {
    explore(Some(2), || {
        let world = World::new(2, Policy::default());
        world.map(0, 1, RW);
        let guest = guest_by(&world, true);
        set(&guest, 0, [0, 1, 0], SlotFlags::empty());
        Vcpu::new(&guest, 1).store(0, 7).unwrap();
        let deleter = {
            let guest = guest.clone();
            world.run(1, move |_| {
                guest.set_slot(0, &Slot::default()).unwrap();
            })
        };
        world.space().memory().machine().step();
        world.space().madvise(0, PAGE, advice::DONTNEED).unwrap();
        deleter.join().unwrap();
        finish(guest, world);
    });
}

#[test]
fn beside_a_discard_by_the_host() {
    deleted_beside_the_host();
}

#[test]
#[should_panic(expected = "a TLB holds a frame that is freed")]
fn broken_others_not_flushed() {
    with_flaw(Mutant::OthersNotFlushed, deleted_beside_the_host);
}

#[test]
#[should_panic(expected = "a TLB holds a frame that is freed")]
fn broken_leaving_not_followed() {
    with_flaw(Mutant::LeavingNotFollowed, deleted_beside_the_host);
}
