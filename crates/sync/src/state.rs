//! A state word that only moves forward, for validation against the life of an object.
//!
//! In `faultless-mm` the slots of the mapping tree hold that state (`docs/decisions/0002-state-in-slots.md`).
//! The models of the entry protocol use this word instead of a mapping.

use crate::atomic::{AtomicU32, Ordering, fence};

/// The phase in the life of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Phase {
    /// In use.
    Live = 0,
    /// A writer is changing it; other operations wait or withdraw.
    Changing = 1,
    /// Replaced or gone, permanently.
    Dead = 2,
}

/// A word that moves `live → changing → dead` and never back.
#[derive(Debug)]
pub struct State(AtomicU32);

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    /// Returns the state of a live object.
    pub fn new() -> Self {
        Self(AtomicU32::new(Phase::Live as u32))
    }

    /// Returns the current phase. Acquire: pairs with the release in [`State::advance`].
    #[inline]
    pub fn phase(&self) -> Phase {
        match self.0.load(Ordering::Acquire) {
            0 => Phase::Live,
            1 => Phase::Changing,
            _ => Phase::Dead,
        }
    }

    /// Moves to a later phase, followed by a full fence. Rule R1: a validation after a claim either sees the
    /// new phase, or its claim is seen.
    ///
    /// Returns whether this call moved it: `false` if the word was already in that phase or a later one.
    pub fn advance(&self, to: Phase) -> bool {
        let before = self.0.fetch_max(to as u32, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        before < to as u32
    }
}
