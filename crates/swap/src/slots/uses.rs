//! The count of a slot's uses.
//!
//! | value | meaning |
//! | --- | --- |
//! | 0 | free |
//! | 1 to [`MOST_USES`] | uses |
//! | [`FREEING`] | the last use is gone, and the content is being discarded |

use core::fmt;

use faultless_sync::atomic::{AtomicU32, Ordering};
use faultless_sync::{Mutant, mutant};

use crate::array::Zeroed;

/// The most uses of a slot.
pub const MOST_USES: u32 = 1 << 30;

const FREEING: u32 = u32::MAX;

/// The reason that a use was not added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAdded {
    /// The slot is free, or being freed.
    Free,
    /// The slot has [`MOST_USES`].
    TooMany,
}

impl fmt::Display for NotAdded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Free => "the swap slot is free",
            Self::TooMany => "the swap slot has too many uses",
        })
    }
}

impl core::error::Error for NotAdded {}

/// The count.
pub(super) struct Uses(AtomicU32);

impl Default for Uses {
    fn default() -> Self {
        Self(AtomicU32::new(0))
    }
}

// SAFETY: a word, of which zero is a value.
unsafe impl Zeroed for Uses {}

impl Uses {
    pub(super) fn get(&self) -> u32 {
        match self.0.load(Ordering::Relaxed) {
            FREEING => 0,
            uses => uses,
        }
    }

    /// Whether the slot is free, and not being freed.
    pub(super) fn is_free(&self) -> bool {
        // Acquire: pairs with `free`. The discard of the content happened before.
        self.0.load(Ordering::Acquire) == 0
    }

    /// Allocates the slot if it is free.
    pub(super) fn take(&self) -> bool {
        // Acquire: pairs with `free`. The discard of the content happens before what the caller writes.
        self.0.load(Ordering::Relaxed) == 0
            && self
                .0
                .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
    }

    pub(super) fn add(&self) -> Result<(), NotAdded> {
        let mut uses = self.0.load(Ordering::Relaxed);
        loop {
            match uses {
                0 | FREEING => return Err(NotAdded::Free),
                MOST_USES.. => return Err(NotAdded::TooMany),
                _ => {}
            }
            // Acquire: pairs with `free`, and the allocation after it continues that release sequence. A caller
            // without a use of its own sees that an earlier page of the slot was discarded.
            let add =
                self.0
                    .compare_exchange_weak(uses, uses + 1, Ordering::Acquire, Ordering::Relaxed);
            match add {
                Ok(_) => return Ok(()),
                Err(now) => uses = now,
            }
        }
    }

    /// Removes a use. Returns whether it was the last one: the caller discards the content, and then calls
    /// [`Uses::free`].
    pub(super) fn remove(&self) -> bool {
        // AcqRel: what was read through a use happens before the discard.
        let order = match mutant(Mutant::UsesRelaxed) {
            false => Ordering::AcqRel,
            true => Ordering::Relaxed,
        };
        let mut uses = self.0.load(Ordering::Relaxed);
        loop {
            let less = match uses {
                0 | FREEING => {
                    debug_assert!(false, "a use of a free slot is removed");
                    return false;
                }
                1 => FREEING,
                _ => uses - 1,
            };
            match self
                .0
                .compare_exchange_weak(uses, less, order, Ordering::Relaxed)
            {
                Ok(_) => return less == FREEING,
                Err(now) => uses = now,
            }
        }
    }

    /// Frees the slot after its last use.
    pub(super) fn free(&self) {
        // Release: pairs with the acquire in `take`.
        self.0.store(0, Ordering::Release);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    #[test]
    fn uses_have_a_limit() {
        let uses = Uses(AtomicU32::new(MOST_USES - 1));
        assert_eq!(uses.add(), Ok(()));
        assert_eq!(uses.add(), Err(NotAdded::TooMany));
        assert_eq!(uses.get(), MOST_USES);
        assert!(!uses.remove());
        assert_eq!(uses.get(), MOST_USES - 1);
    }

    #[test]
    fn a_slot_that_is_being_freed_is_neither_free_nor_used() {
        let uses = Uses::default();
        assert!(uses.take());
        assert!(uses.remove());
        assert_eq!(uses.get(), 0);
        assert_eq!(uses.add(), Err(NotAdded::Free));
        assert!(!uses.take());
        uses.free();
        assert!(uses.take());
    }
}
