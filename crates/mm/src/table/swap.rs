//! Entries of pages that were swapped out.
//!
//! Such an entry names a slot of a swap device, and is a use of that slot. No TLB holds it, so that it is
//! replaced without a flush. The operation that replaces it drops the slot's use afterwards.
//!
//! *Writes*: the entry, the slot, and the space's page counts on this CPU's line.

use faultless_paging::{Pte, SwapEntry, Value};

use crate::base::machine::Machine;
use crate::table::Tables;
use crate::table::rss::RssKind;

impl<M: Machine> Tables<M> {
    /// Returns the slot that an entry of the lowest level names, if it does.
    #[inline]
    pub(crate) fn swap_of(&self, value: Value) -> Option<SwapEntry> {
        if value == 0 || Self::FORMAT.is_present(value) {
            return None;
        }
        match Self::FORMAT.decode(value, 0) {
            Pte::Swap(entry) => Some(entry),
            _ => None,
        }
    }

    /// Drops the use of an entry that named a slot, and was replaced.
    #[cold]
    pub(crate) fn drop_swap(&self, entry: &SwapEntry) {
        self.memory.drop_slot_use(entry);
        self.rss.gone_one(self.machine().cpu(), RssKind::Swap);
    }
}
