//! The dirty log beside stores: a store that begins after the log was cleared is in the next one.
//!
//! At most three preemptions in the quick form.

use std::sync::Arc;

use faultless_mm::{AtomicU32, Policy};
use faultless_sync::atomic::Ordering::Relaxed;
use faultless_sync::{Mutant, with_flaw};
use faultless_tdp::SlotFlags;

use crate::model::{RW, World, explore};
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
