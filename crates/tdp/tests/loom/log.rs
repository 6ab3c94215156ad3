//! The dirty log beside stores: a store that begins after the log was cleared is in the next one.
//!
//! At most three preemptions in the quick form.

use std::sync::Arc;

use faultless_mm::{AtomicU32, Policy, advice};
use faultless_sync::atomic::Ordering::Relaxed;
use faultless_sync::{Mutant, with_flaw};
use faultless_tdp::SlotFlags;

use crate::model::{PAGE, RW, World, explore};
use crate::vcpu::{ModelGuest, Vcpu, dirty, finish, guest, set};

fn cleared(has_page: bool, clear: fn(&ModelGuest) -> u64) {
    explore(Some(3), move || {
        let world = World::new(2, Policy::default());
        world.map(0, 1, RW);
        let guest = guest(&world);
        set(&guest, 0, [1, 1, 0], SlotFlags::LOG_DIRTY_PAGES);
        if has_page {
            Vcpu::new(&guest, 1).store(1, 7).unwrap();
        }
        let is_clear = Arc::new(AtomicU32::new(0));
        let runner = {
            let (guest, is_clear) = (guest.clone(), is_clear.clone());
            world.run(1, move |_| {
                let late = is_clear.load(Relaxed) == 1;
                Vcpu::new(&guest, 1).store(1, 9).unwrap();
                late
            })
        };
        world.space().memory().machine().step();
        let first = clear(&guest);
        is_clear.store(1, Relaxed);
        let late = runner.join().unwrap();
        let second = dirty(&guest, true);
        assert!(first | second == 1, "a store is in no log");
        assert!(!late || second == 1, "a store is missed");
        assert_eq!(world.cpu().load(0), Ok(9));
        finish(guest, world);
    });
}

fn get(guest: &ModelGuest) -> u64 {
    dirty(guest, true)
}

/// As a hypervisor with manual protection does it.
fn get_and_clear(guest: &ModelGuest) -> u64 {
    let bits = dirty(guest, false);
    guest
        .clear_dirty_log(0, 0, 1, &mut || Ok(bits))
        .expect("it is logged");
    bits
}

#[test]
fn a_store_is_logged() {
    for clear in [get, get_and_clear] {
        cleared(true, clear);
        cleared(false, clear);
    }
}

#[test]
#[should_panic(expected = "a store is missed")]
fn broken_cleared_without_a_flush() {
    with_flaw(Mutant::LogClearedWithoutFlush, || cleared(true, get));
}

/// CPU 0 discards a page that the guest has written, while CPU 1 clears the log and then stores again. The guest's entry is then
/// the same as before. `clear` may also begin another log.
fn discarded_beside(clear: fn(&ModelGuest)) {
    explore(Some(3), move || {
        let world = World::new(2, Policy::default());
        world.map(0, 1, RW);
        let guest = guest(&world);
        set(&guest, 0, [1, 1, 0], SlotFlags::LOG_DIRTY_PAGES);
        Vcpu::new(&guest, 1).store(1, 7).unwrap();
        let runner = {
            let guest = guest.clone();
            world.run(1, move |_| {
                clear(&guest);
                Vcpu::new(&guest, 1).store(1, 9).unwrap();
                assert_eq!(dirty(&guest, false), 1, "a store is missed at once");
            })
        };
        world.space().memory().machine().step();
        world.space().madvise(0, PAGE, advice::DONTNEED).unwrap();
        runner.join().unwrap();
        assert_eq!(dirty(&guest, false), 1, "a store is missed");
        finish(guest, world);
    });
}

fn clear(guest: &ModelGuest) {
    dirty(guest, true);
}

fn begin_anew(guest: &ModelGuest) {
    set(guest, 0, [1, 1, 0], SlotFlags::empty());
    set(guest, 0, [1, 1, 0], SlotFlags::LOG_DIRTY_PAGES);
}

#[test]
fn a_store_is_logged_beside_a_discard() {
    discarded_beside(clear);
    discarded_beside(begin_anew);
}

#[test]
#[should_panic(expected = "a store is missed")]
fn broken_mark_moved_without_a_claim() {
    with_flaw(Mutant::MarkMovedWithoutClaim, || discarded_beside(clear));
}

#[test]
#[should_panic(expected = "a store is missed")]
fn broken_mark_moved_to_an_old_log() {
    with_flaw(Mutant::MarkMovedToOldLog, || discarded_beside(begin_anew));
}
