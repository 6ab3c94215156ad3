//! The two MMUs: how the entries of a slot's pages are found, and what excludes what.
//!
//! Both have the same tables, the same entries and the same protocol with the host. The fast path ([`crate::fault`]) is
//! the same code for both: it walks the tables without a lock and decides from the entry alone.

pub(crate) mod legacy;
pub(crate) mod tdp;

use faultless_paging::Pages;

use crate::guest::{Guest, GuestMachine, HostSpace};
use crate::slots::slot::SlotBody;
use crate::tables::Spot;

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Calls `visit` with every entry of `pages`, which are the slot's, that is not empty. The caller is in a section, and has
    /// the lock, if this guest has one ([`Guest::mmu_lock`]).
    ///
    /// The entry of a huge page comes first, if a part of that is in `pages`, and then, if it was split meanwhile, those below it.
    pub(crate) fn for_each(&self, slot: &SlotBody, pages: Pages, visit: &mut impl FnMut(Spot<'_>)) {
        match self.options.tdp_mmu {
            true => self.for_each_in_tables(pages, slot.pages, visit),
            false => self.for_each_in_rmap(slot, pages, visit),
        }
    }
}
