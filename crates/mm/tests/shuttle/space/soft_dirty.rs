//! Clearing of soft-dirty bits beside stores, with changes of protection, an unmap and a fork among them, in
//! random interleavings of whole operations.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::model::{PAGE, RW, World, explore, with_lazy_tlbs};
use faultless_mm::{PROT_READ, Policy, flags};
use faultless_sync::{Mutant, with_flaw};

/// Pages on both sides of a table's end.
const FIRST: u64 = 3;
const PAGES: u64 = 2;
/// A neighbouring page, which is protected and unmapped meanwhile.
const BESIDE: u64 = FIRST + PAGES;

/// CPU 0 clears repeatedly. CPUs 1 and 2 store, each to a page of its own, and check the bit. CPU 2 also
/// changes the neighbouring page and the protection of its own page.
fn stores(policy: Policy, kind: u32) {
    let world = World::new(3, policy);
    let kind = kind | flags::ANONYMOUS | flags::FIXED;
    let all = (FIRST * PAGE, (PAGES + 1) * PAGE);
    world.space().mmap(all.0, all.1, RW, kind).unwrap();
    // Counts the beginnings and the ends of clearings.
    let soft_dirty_epoch = Arc::new(AtomicU64::new(0));
    let threads = [1u32, 2].map(|number| {
        let soft_dirty_epoch = soft_dirty_epoch.clone();
        world.run(number, move |cpu| {
            let page = FIRST + u64::from(number) - 1;
            let address = page * PAGE;
            let space = cpu.space();
            for turn in 1..6u64 {
                if number == 2 {
                    let beside = BESIDE * PAGE;
                    match turn {
                        1 => cpu.store_file(beside, turn).unwrap(),
                        2 => space.mprotect(beside, PAGE, PROT_READ).unwrap(),
                        3 => space.munmap(beside, PAGE).unwrap(),
                        _ => {
                            space.mprotect(address, PAGE, PROT_READ).unwrap();
                            space.mprotect(address, PAGE, RW).unwrap();
                        }
                    }
                }
                let before = soft_dirty_epoch.load(Relaxed);
                cpu.store_file(address, turn).unwrap();
                let counts = space.page_state(address).soft_dirty;
                let is_quiet = before % 2 == 0 && soft_dirty_epoch.load(Relaxed) == before;
                assert!(counts || !is_quiet, "a store is missed");
                assert_eq!(cpu.load_file(address), Ok(turn), "a store is lost");
            }
        })
    });
    let mut child = None;
    for round in 0..3 {
        soft_dirty_epoch.fetch_add(1, Relaxed);
        world.space().clear_soft_dirty();
        soft_dirty_epoch.fetch_add(1, Relaxed);
        if round == 1 {
            child = Some(world.space().fork().unwrap());
        }
    }
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    world.space().clear_soft_dirty();
    for page in FIRST..FIRST + PAGES {
        assert!(!world.space().page_state(page * PAGE).soft_dirty);
    }
    world.finish_with(child.into_iter().collect());
}

fn private(policy: Policy) {
    stores(policy, flags::PRIVATE);
}

fn shared(policy: Policy) {
    stores(policy, flags::SHARED);
}

#[test]
fn no_store_to_private_memory_is_missed() {
    explore(2000, private);
}

#[test]
fn no_store_to_shared_memory_is_missed() {
    explore(2000, shared);
}

#[test]
#[should_panic]
fn broken_tlbs_that_flush_late() {
    with_lazy_tlbs(|| explore(2000, private));
}

#[test]
#[should_panic(expected = "a store is missed")]
fn broken_watched_without_a_flush() {
    with_flaw(Mutant::WatchedWithoutFlush, || explore(2000, private));
}
