//! Which moves of pages have begun, for an operation that goes through pages with no range.
//!
//! A move holds the ranges of both its places until it has ended, so that writers, forks and everything that
//! takes a range wait for it. `MADV_DONTNEED` takes none: a move can carry a page from ahead of its walk to
//! behind it. It therefore compares what had been shown before its walk with what has begun after it.
//!
//! * `begun` goes up before the slots of either place change, under the edit that changes them. `shown` follows
//!   after that, once no other move is between the two.
//!
//! *Writes*: a move, under its edit.
//!
//! *Models*: loom `table/moves.rs`, `ops/remap.rs`, shuttle `ops/moves.rs`.

use faultless_paging::Pages;
use faultless_sync::atomic::{AtomicU64, Ordering, fence};
use faultless_sync::{Mutant, SpinLock, Wait, mutant};

use crate::tune::LAST_MOVES;

/// The moves of an address space.
pub(crate) struct Moves {
    begun: AtomicU64,
    /// All before this one are shown.
    shown: AtomicU64,
    last: SpinLock<LastMoves>,
}

struct LastMoves {
    /// Source and target of those that began last, by their numbers.
    places: [[Pages; 2]; LAST_MOVES],
    /// Those that are not shown yet: one in each part of the space.
    open: u64,
}

/// How many moves had been shown at some moment.
#[derive(Clone, Copy)]
pub(crate) struct MovesShown(u64);

impl Moves {
    /// None.
    pub(crate) fn new() -> Self {
        Self {
            begun: AtomicU64::new(0),
            shown: AtomicU64::new(0),
            last: SpinLock::new(LastMoves {
                places: [[Pages::new(0, 0); 2]; LAST_MOVES],
                open: 0,
            }),
        }
    }

    /// A move is about to be shown, under an edit.
    pub(crate) fn begin_show<W: Wait + ?Sized>(&self, source: Pages, target: Pages, machine: &W) {
        let mut last = self.last.lock(machine);
        let number = self.begun.load(Ordering::Relaxed);
        last.places[number as usize % LAST_MOVES] = [source, target];
        last.open += 1;
        // Partner: the fence in `is_unchanged`. A walk that has seen a slot written from now on, or an entry
        // whose page has moved, sees this behind that fence: the slots are stored with release.
        self.begun.store(number + 1, Ordering::Relaxed);
    }

    /// It is shown, under the same edit.
    pub(crate) fn end_show<W: Wait + ?Sized>(&self, machine: &W) {
        let mut last = self.last.lock(machine);
        last.open -= 1;
        // Moves in two parts are shown side by side, and end in any order: too low a number costs a walk, one that
        // is too high a page.
        if last.open == 0 || mutant(Mutant::ShownThoughOthersAreNot) {
            let begun = self.begun.load(Ordering::Relaxed);
            // Release, with the acquire in `shown`: a walk that begins then sees the slots, also of those that
            // had the lock before.
            self.shown.store(begun, Ordering::Release);
        }
    }

    /// How many have been shown: a walk that begins now sees what these have changed.
    pub(crate) fn shown(&self) -> MovesShown {
        MovesShown(self.shown.load(Ordering::Acquire))
    }

    /// Whether no move that has to do with `pages` has begun that had not been shown then, as far as the caller
    /// can have seen anything of it.
    pub(crate) fn is_unchanged<W: Wait + ?Sized>(
        &self,
        then: MovesShown,
        pages: Pages,
        machine: &W,
    ) -> bool {
        // Partner: what follows `begin_show`.
        fence(Ordering::SeqCst);
        let MovesShown(shown) = then;
        if self.begun.load(Ordering::Relaxed) == shown {
            return true;
        }
        let last = self.last.lock(machine);
        let begun = self.begun.load(Ordering::Relaxed);
        let is_apart = |places: [Pages; 2]| places.iter().all(|place| pages.and(*place).is_empty());
        begun - shown <= LAST_MOVES as u64
            && (shown..begun).all(|number| is_apart(last.places[number as usize % LAST_MOVES]))
    }
}
