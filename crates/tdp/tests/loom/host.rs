//! A guest beside its host: what the host gives up, no vCPU uses; what the host writes, the guest sees.
//!
//! The machine checks that no vCPU has cached a frame that is freed. At most two preemptions in the quick form.

use faultless_mm::{Policy, advice};
use faultless_sync::{Mutant, with_flaw};
use faultless_tdp::SlotFlags;

use crate::model::{PAGE, RW, Space, World, explore};
use crate::vcpu::{Vcpu, dirty, finish, guest, guest_by, set};

/// CPU 1 runs a guest that touches a page while CPU 0 changes the host.
fn beside(tdp_mmu: bool, write: bool, change: fn(&Space)) {
    explore(Some(2), move || {
        let world = World::new(2, Policy::default());
        world.map(0, 1, RW);
        world.cpu().store(0, 7).unwrap();
        let guest = guest_by(&world, tdp_mmu);
        set(&guest, 0, [1, 1, 0], SlotFlags::empty());
        let runner = {
            let guest = guest.clone();
            world.run(1, move |_| {
                let vcpu = Vcpu::new(&guest, 1);
                match write {
                    true => vcpu.store(1, 9).map(|()| 9),
                    false => vcpu.load(1),
                }
            })
        };
        world.space().memory().machine().step();
        change(world.space());
        let seen = runner.join().unwrap();
        assert!(matches!(seen, None | Some(0 | 7 | 9)), "{seen:?}");
        // The guest follows, whichever came first.
        let now = world.cpu().load(0).ok();
        assert_eq!(
            Vcpu::new(&guest, 1).load(1),
            now,
            "the guest sees something else"
        );
        finish(guest, world);
    });
}

fn unmap(space: &Space) {
    space.munmap(0, PAGE).unwrap();
}

fn discard(space: &Space) {
    space.madvise(0, PAGE, advice::DONTNEED).unwrap();
}

#[test]
fn unmapped() {
    for tdp_mmu in [true, false] {
        beside(tdp_mmu, false, unmap);
        beside(tdp_mmu, true, unmap);
    }
}

#[test]
fn discarded() {
    for tdp_mmu in [true, false] {
        beside(tdp_mmu, false, discard);
        beside(tdp_mmu, true, discard);
    }
}

#[test]
#[should_panic(expected = "a TLB holds a frame that is freed")]
fn broken_without_a_second_look() {
    with_flaw(Mutant::HostNotValidated, || beside(true, true, discard));
}

#[test]
#[should_panic(expected = "a TLB holds a frame that is freed")]
fn broken_guests_not_told() {
    with_flaw(Mutant::GuestsNotTold, || beside(true, true, discard));
}

#[test]
#[should_panic(expected = "the guest sees something else")]
fn broken_claim_without_a_fence() {
    with_flaw(Mutant::ClaimWithoutFence, || beside(true, true, discard));
}

/// A fork: what the guest stores after it, the child does not see.
#[test]
fn forked() {
    explore(Some(2), || {
        let world = World::new(2, Policy::default());
        world.map(0, 1, RW);
        world.cpu().store(0, 7).unwrap();
        let guest = guest(&world);
        set(&guest, 0, [1, 1, 0], SlotFlags::empty());
        Vcpu::new(&guest, 1).store(1, 8).unwrap();
        let runner = {
            let guest = guest.clone();
            world.run(1, move |_| {
                Vcpu::new(&guest, 1).store(1, 9).unwrap();
            })
        };
        world.space().memory().machine().step();
        let child = world.space().fork().unwrap();
        let before = world.word_of(&child, 0);
        assert!(before == 8 || before == 9);
        runner.join().unwrap();
        Vcpu::new(&guest, 1).store(1, 10).unwrap();
        assert_eq!(
            world.word_of(&child, 0),
            before,
            "the child sees a later store"
        );
        assert_eq!(world.cpu().load(0), Ok(10));
        child.destroy();
        finish(guest, world);
    });
}

/// What is discarded under a guest that is logged stays in the log, if the guest has written it.
fn logged() {
    explore(Some(2), || {
        let world = World::new(2, Policy::default());
        world.map(0, 1, RW);
        let guest = guest(&world);
        set(&guest, 0, [1, 1, 0], SlotFlags::LOG_DIRTY_PAGES);
        let runner = {
            let guest = guest.clone();
            world.run(1, move |_| {
                Vcpu::new(&guest, 1).store(1, 9).unwrap();
            })
        };
        world.space().memory().machine().step();
        discard(world.space());
        runner.join().unwrap();
        assert_eq!(dirty(&guest, false), 1, "a store is not logged");
        finish(guest, world);
    });
}

#[test]
fn discarded_while_logged() {
    logged();
}

#[test]
#[should_panic(expected = "a store is not logged")]
fn broken_zapped_not_logged() {
    with_flaw(Mutant::ZappedNotLogged, logged);
}
