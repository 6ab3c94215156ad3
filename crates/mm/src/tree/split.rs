//! A slot that is cut in one place.
//!
//! If a mapping ends inside a slot of many pages, nodes would need dozens of equal slots, at each level down
//! to the page. A split holds the page with which the second part begins, which never changes, and a slot for
//! each part. A large mapping therefore costs what a small one does. A slot that is cut a second time gets a
//! node ([`crate::tree::Edit::cut`]).
//!
//! Faults read the parts' slots; writers write them under the tree's edit lock.

use core::ptr::NonNull;

use faultless_paging::Pages;
use faultless_sync::atomic::Local;

use crate::tree::node::{Slot, span};
use crate::tree::value::SlotValue;

/// A slot's two parts.
#[repr(C, align(64))]
pub struct Split {
    /// The page with which the second part begins: neither the slot's first page nor behind the slot.
    middle: u64,
    parts: [Slot; 2],
    /// Reclamation's link.
    pub(crate) link: Local,
}

impl Split {
    /// Creates a split in `place`, with a value for each part.
    ///
    /// # Safety
    /// `place` is memory for a split that the caller alone uses.
    pub(super) unsafe fn create(
        place: NonNull<u8>,
        middle: u64,
        words: [SlotValue; 2],
    ) -> NonNull<Split> {
        let split = place.cast::<Split>();
        // SAFETY: by the caller's promise.
        unsafe {
            split.write(Split {
                middle,
                parts: words.map(Slot::new),
                link: Local::new(0),
            });
        }
        split
    }

    /// Returns the page with which the second part begins.
    pub fn middle(&self) -> u64 {
        self.middle
    }

    /// Returns the slot of the part with `page`, a page of the slot.
    #[inline]
    pub fn slot(&self, page: u64) -> &Slot {
        &self.parts[usize::from(page >= self.middle)]
    }

    /// Returns the part with `page`, a page of the slot; the slot is one of a node at `level`.
    pub fn part(&self, page: u64, level: usize) -> Pages {
        let base = self.middle & !(span(level) - 1);
        if page < self.middle {
            Pages::new(base, self.middle)
        } else {
            Pages::new(self.middle, base + span(level))
        }
    }

    /// Returns both parts; the slot is one of a node at `level`.
    pub(super) fn parts(&self, level: usize) -> [(Pages, &Slot); 2] {
        [self.middle - 1, self.middle].map(|page| (self.part(page, level), self.slot(page)))
    }

    /// Returns the value of each part.
    pub(super) fn words(&self) -> [SlotValue; 2] {
        [self.parts[0].load(), self.parts[1].load()]
    }

    /// Shows late readers of this split that it has left the tree.
    pub(super) fn mark_retired(&self) {
        self.parts
            .iter()
            .for_each(|slot| slot.store(SlotValue::RETIRED));
    }
}
