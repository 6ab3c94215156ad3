//! Loom model of the counts of moves. By them a walk without a range sees that a page has moved from ahead of
//! it to behind it.
//!
//! Another move is shown at the same time in another lock domain, because moves in two domains are not
//! serialised.
//!
//! At most three preemptions.

#[path = "../../../../sync/tests/model/mod.rs"]
mod model;

/// The file of the core itself, because it is not public.
#[path = "../../../src/table/moves.rs"]
#[allow(dead_code)]
mod moves;

use faultless_paging::Pages;
use faultless_sync::atomic::{AtomicU64, Ordering, fence};
use faultless_sync::{Mutant, with_flaw};
use loom::sync::Arc;
use loom::thread;
use model::{Machine, explore};
use moves::Moves;

/// Slot values.
const EMPTY: u64 = 0;
const LIVE: u64 = 1;
const MOVING: u64 = 2;

const SOURCE: usize = 1;
const TARGET: usize = 0;

/// A page of the space: its slot value, and whether it is present.
#[derive(Default)]
struct Place {
    slot: AtomicU64,
    page: AtomicU64,
}

struct Space {
    moves: Moves,
    places: [Place; 2],
    machine: Machine,
}

impl Space {
    fn new() -> Arc<Self> {
        let space = Self {
            moves: Moves::new(),
            places: Default::default(),
            machine: Machine::default(),
        };
        space.places[SOURCE].slot.store(LIVE, Ordering::Relaxed);
        space.places[SOURCE].page.store(1, Ordering::Relaxed);
        Arc::new(space)
    }

    fn show(&self, number: usize, slot: u64) {
        self.places[number].slot.store(slot, Ordering::Release);
    }

    /// Moves the page, as `mremap` does.
    fn move_page(&self) {
        let [target, source] = [TARGET, SOURCE].map(|at| Pages::new(at as u64, at as u64 + 1));
        self.moves.begin_show(source, target, &self.machine);
        self.show(SOURCE, MOVING);
        self.show(TARGET, MOVING);
        self.moves.end_show(&self.machine);
        fence(Ordering::SeqCst);
        self.places[TARGET].page.store(1, Ordering::Release);
        self.places[SOURCE].page.store(0, Ordering::Release);
        self.show(SOURCE, EMPTY);
        self.show(TARGET, LIVE);
    }

    /// Looks at a page without a range. Returns whether it was present, or `None` where the walk would wait
    /// for a writer.
    fn look(&self, number: usize) -> Option<bool> {
        let place = &self.places[number];
        let slot = place.slot.load(Ordering::Acquire);
        if slot != LIVE {
            return (slot == EMPTY).then_some(false);
        }
        let is_there = place.page.load(Ordering::Acquire) != 0;
        fence(Ordering::SeqCst);
        (place.slot.load(Ordering::Acquire) == slot).then_some(is_there)
    }
}

fn a_walk_beside_two_moves() {
    explore(Some(3), || {
        let space = Space::new();
        let elsewhere = {
            let space = space.clone();
            thread::spawn(move || {
                let places = [Pages::new(2, 3), Pages::new(3, 4)];
                let moves = &space.moves;
                moves.begin_show(places[0], places[1], &space.machine);
                moves.end_show(&space.machine);
            })
        };
        let moving = {
            let space = space.clone();
            thread::spawn(move || space.move_page())
        };
        let shown = space.moves.shown();
        let seen = space.look(TARGET).zip(space.look(SOURCE));
        let all = Pages::new(0, 2);
        if seen == Some((false, false)) {
            let is_unchanged = space.moves.is_unchanged(shown, all, &space.machine);
            assert!(!is_unchanged, "the walk has missed the page");
        }
        elsewhere.join().unwrap();
        moving.join().unwrap();
    });
}

#[test]
fn a_page_that_passes_a_walk_is_seen() {
    a_walk_beside_two_moves();
}

#[test]
#[should_panic(expected = "the walk has missed the page")]
fn broken_shown_with_another_that_is_not() {
    with_flaw(Mutant::ShownThoughOthersAreNot, a_walk_beside_two_moves);
}
