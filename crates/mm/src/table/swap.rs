//! Entries without a page in memory: those of pages that were swapped out, guards, markers, poison.
//!
//! The first names a slot of a swap device, and is a use of that slot. No TLB holds it, so that it is
//! replaced without a flush. The operation that replaces it drops the slot's use afterwards.
//!
//! *Writes*: the entry, the slot, and the space's page counts on this CPU's line.

use faultless_paging::{Entry, Pte, SwapEntry, Value};

use crate::base::machine::Machine;
use crate::table::Tables;
use crate::table::rss::RssKind;

impl<M: Machine> Tables<M> {
    /// Returns the slot that an entry of the lowest level names, if it does.
    #[inline]
    pub(crate) fn swap_of(&self, value: Value) -> Option<SwapEntry> {
        match value == 0 || Self::FORMAT.is_present(value) {
            true => None,
            false => Self::swap_of_absent(value),
        }
    }

    /// The same for an entry without a page in memory. Apart, so that walks over pages stay small.
    #[cold]
    #[inline(never)]
    fn swap_of_absent(value: Value) -> Option<SwapEntry> {
        match Self::FORMAT.decode(value, 0) {
            Pte::Swap(entry) => Some(entry),
            _ => None,
        }
    }

    /// Empties an entry that is not present, if it has no page in memory. Returns whether it is empty now, or has
    /// changed (a late claim); `None` if it has a page.
    #[cold]
    #[inline(never)]
    pub(crate) fn zap_pageless(&self, entry: &Entry, value: Value) -> Option<bool> {
        if Self::FORMAT.has_page(value) {
            return None;
        }
        let is_empty = entry.replace(value, 0).is_ok();
        if is_empty {
            self.drop_pageless(value);
        }
        Some(is_empty)
    }

    /// Drops what an entry without a page in memory had, after it was replaced: the use of a slot, or nothing.
    #[cold]
    pub(crate) fn drop_pageless(&self, value: Value) {
        if let Some(swapped) = Self::swap_of_absent(value) {
            self.drop_swap(&swapped);
        }
    }

    /// Drops the use of an entry that named a slot, and was replaced.
    #[cold]
    pub(crate) fn drop_swap(&self, entry: &SwapEntry) {
        self.memory.drop_slot_use(entry);
        self.rss.gone_one(self.machine().cpu(), RssKind::Swap);
    }
}
