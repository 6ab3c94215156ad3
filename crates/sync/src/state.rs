//! A state word that only moves forward.
//!
//! For whoever needs to validate against the life of an object of its own. In
//! `faultless-mm` the slots of the mapping tree hold that state
//! (`docs/decisions/0002-state-in-slots.md`); the models of the entry protocol
//! use this word in a mapping's place.

use crate::atomic::{AtomicU32, Ordering, fence};

/// Where in its life an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u32)]
pub enum Phase {
    /// In use.
    Live = 0,
    /// A writer is at work on it; others wait or withdraw.
    Changing = 1,
    /// Replaced or gone, for ever.
    Dead = 2,
}

/// A word that goes `live → changing → dead` and never back.
#[derive(Debug)]
pub struct State(AtomicU32);

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

impl State {
    /// A live object.
    pub fn new() -> Self {
        Self(AtomicU32::new(Phase::Live as u32))
    }

    /// The phase now. Acquire: pairs with the release in [`State::advance`].
    #[inline]
    pub fn phase(&self) -> Phase {
        match self.0.load(Ordering::Acquire) {
            0 => Phase::Live,
            1 => Phase::Changing,
            _ => Phase::Dead,
        }
    }

    /// Moves to a later phase, then a full fence (rule R1: whoever validates
    /// after its own claim either sees the new phase or has its claim seen).
    ///
    /// Returns whether this call did it: `false` when the word was already there or beyond.
    pub fn advance(&self, to: Phase) -> bool {
        let before = self.0.fetch_max(to as u32, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        before < to as u32
    }
}
