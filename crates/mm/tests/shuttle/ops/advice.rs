//! Guards and lazily freed pages beside stores, in random interleavings of whole operations, with forks among
//! them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::model::{PAGE, RW, World, explore, with_lazy_tlbs};
use faultless_mm::{Policy, SegvCode, advice, flags};
use faultless_sync::{Mutant, with_flaw};

/// Pages on both sides of a table's end.
const FIRST: u64 = 3;
const PAGES: u64 = 3;

/// CPU 0 installs and removes guards over all pages, while the other CPUs store. No store gets past a guard.
fn guards_beside_stores(policy: Policy) {
    let world = World::new(3, policy);
    world.map(FIRST, PAGES, RW);
    // Counts changes of the guards; odd while all guards are certainly there.
    let round = Arc::new(AtomicU64::new(0));
    let threads = [1u32, 2].map(|number| {
        let round = round.clone();
        world.run(number, move |cpu| {
            for turn in 0..6u64 {
                let address = (FIRST + turn % PAGES) * PAGE;
                let before = round.load(Relaxed);
                let stored = cpu.set_bits(address, 1 << (8 * number) << turn);
                if before % 2 == 1 && round.load(Relaxed) == before {
                    assert_eq!(stored, Err(SegvCode::MapErr), "a guard is passed");
                }
                if let Err(code) = stored {
                    assert_eq!(code, SegvCode::MapErr);
                }
            }
        })
    });
    let space = world.space();
    for _ in 0..2 {
        let advise = |what| space.madvise(FIRST * PAGE, PAGES * PAGE, what).unwrap();
        advise(advice::GUARD_INSTALL);
        round.fetch_add(1, Relaxed);
        if policy == Policy::Speculative {
            let child = space.fork().unwrap();
            child.verify().unwrap();
            child.destroy();
        }
        round.fetch_add(1, Relaxed);
        advise(advice::GUARD_REMOVE);
    }
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    world.finish();
}

#[test]
fn no_access_gets_past_a_guard() {
    explore(2000, guards_beside_stores);
}

#[test]
#[should_panic]
fn broken_installation_without_a_flush() {
    with_lazy_tlbs(|| explore(2000, guards_beside_stores));
}

/// CPU 0 lazily frees all pages and reclaims, repeatedly. A load by another CPU after its own store finds
/// that store, or zero if pages were lazily freed meanwhile.
fn letting_go_beside_stores(policy: Policy) {
    let world = World::new(3, policy);
    world.map(FIRST, PAGES, RW);
    // Counts the beginnings and the ends of `MADV_FREE`.
    let moves = Arc::new(AtomicU64::new(0));
    let threads = [1u32, 2].map(|number| {
        let moves = moves.clone();
        world.run(number, move |cpu| {
            // A page of its own for each CPU, in a common table.
            let address = (FIRST + u64::from(number) - 1) * PAGE;
            for turn in 1..9u64 {
                let before = moves.load(Relaxed);
                cpu.store(address, turn).unwrap();
                let word = cpu.load(address).unwrap();
                let is_quiet = before % 2 == 0 && moves.load(Relaxed) == before;
                assert!(word == turn || word == 0 && !is_quiet, "a store is lost");
            }
        })
    });
    let space = world.space();
    for _ in 0..2 {
        moves.fetch_add(1, Relaxed);
        space
            .madvise(FIRST * PAGE, PAGES * PAGE, advice::FREE)
            .unwrap();
        moves.fetch_add(1, Relaxed);
        space.take_lazyfree();
    }
    // From here on nothing is lazily freed, and every store stays.
    for _ in 0..6 {
        space.take_lazyfree();
    }
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    world.finish();
}

#[test]
fn what_is_stored_after_letting_go_stays() {
    explore(2000, letting_go_beside_stores);
}

#[test]
#[should_panic(expected = "a store is lost")]
fn broken_taken_though_written() {
    with_flaw(Mutant::TakenThoughWritten, || {
        // Few schedules show it, and the first one that does ends the model.
        explore(12_000, letting_go_beside_stores);
    });
}

/// CPU 0 maps droppable memory, replaces it with private memory, and stores to both, repeatedly. The other
/// CPUs reclaim what they can.
fn replacing_beside_taking(policy: Policy) {
    let world = World::new(3, policy);
    let threads = [1u32, 2].map(|number| {
        world.run(number, move |cpu| {
            for _ in 0..8 {
                cpu.space().take_lazyfree();
            }
        })
    });
    let space = world.space();
    let map = |kind: u32| {
        let map_flags = kind | flags::ANONYMOUS | flags::FIXED;
        space.mmap(FIRST * PAGE, PAGE, RW, map_flags).unwrap();
    };
    for turn in 1..5 {
        map(flags::DROPPABLE);
        world.cpu().store(FIRST * PAGE, 100 + turn).unwrap();
        let word = world.cpu().load(FIRST * PAGE).unwrap();
        assert!(word == 100 + turn || word == 0, "{word}");
        map(flags::PRIVATE);
        world.cpu().store(FIRST * PAGE, turn).unwrap();
        let word = world.cpu().load(FIRST * PAGE);
        assert_eq!(word, Ok(turn), "a store is lost");
    }
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    world.finish();
}

#[test]
fn what_replaces_what_may_go_stays() {
    explore(2000, replacing_beside_taking);
}

#[test]
#[should_panic(expected = "a store is lost")]
fn broken_taken_whatever_it_is() {
    with_flaw(Mutant::TakenThoughWritten, || {
        explore(2000, replacing_beside_taking);
    });
}
