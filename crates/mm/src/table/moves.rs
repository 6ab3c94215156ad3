//! A record of the moves that have begun, for an operation that walks pages without a range.
//!
//! A move holds the ranges of both its places until it has ended. Writers, forks and every operation that
//! takes a range wait for it. `MADV_DONTNEED` takes none, and a move can carry a page from ahead of its walk
//! to behind it. After its walk, it therefore compares the moves that have begun with those that had been
//! shown before it.
//!
//! * `begun` goes up before the slots of either place change, under the edit that changes them. `shown`
//!   follows after the edit's stores, once no other move is between the two.
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
    /// All moves with lower numbers are shown.
    shown: AtomicU64,
    last: SpinLock<LastMoves>,
}

struct LastMoves {
    /// Source and target of the latest moves, by their numbers.
    places: [[Pages; 2]; LAST_MOVES],
    /// Moves that have begun and are not shown: one in each lock domain.
    open: u64,
}

/// The number of moves that had been shown at some moment.
#[derive(Clone, Copy)]
pub(crate) struct MovesShown(u64);

impl Moves {
    /// Begins with no moves.
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

    /// Records that a move is about to be shown, under an edit.
    pub(crate) fn begin_show<W: Wait + ?Sized>(&self, source: Pages, target: Pages, machine: &W) {
        let mut last = self.last.lock(machine);
        let number = self.begun.load(Ordering::Relaxed);
        last.places[number as usize % LAST_MOVES] = [source, target];
        last.open += 1;
        // Partner: the fence in `is_unchanged`. A walk that has seen a later store to a slot, or an entry
        // with a moved page, sees this store after that fence: the slots are stored with release.
        self.begun.store(number + 1, Ordering::Relaxed);
    }

    /// Records that the move is shown, under the same edit.
    pub(crate) fn end_show<W: Wait + ?Sized>(&self, machine: &W) {
        let mut last = self.last.lock(machine);
        last.open -= 1;
        // Moves in two lock domains overlap and end in any order. Too low a number costs a walk; too high a
        // number misses a page.
        if last.open == 0 || mutant(Mutant::ShownThoughOthersAreNot) {
            let begun = self.begun.load(Ordering::Relaxed);
            // Release: pairs with the acquire in `shown`. A walk that begins afterwards sees the slots, also
            // those of moves that held the lock before.
            self.shown.store(begun, Ordering::Release);
        }
    }

    /// Returns how many moves have been shown. A walk that begins now sees their changes.
    pub(crate) fn shown(&self) -> MovesShown {
        MovesShown(self.shown.load(Ordering::Acquire))
    }

    /// Whether every move that concerns `pages`, and of which the caller can have seen a change, had been
    /// shown at `then`.
    pub(crate) fn is_unchanged<W: Wait + ?Sized>(
        &self,
        then: MovesShown,
        pages: Pages,
        machine: &W,
    ) -> bool {
        // Partner: the release stores of slots that follow `begin_show`.
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
