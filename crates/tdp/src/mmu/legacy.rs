//! The legacy MMU: one lock for all changes but the fast path's, and a reverse map from a slot's pages to their entries.
//!
//! This is how KVM works without its TDP MMU, kept for comparisons, and for what needs a reverse map: shadow paging. A page
//! has one entry, because a guest has one set of tables, so that the list of a page's entries is one word.
//!
//! * The lock is held from a look at the slots to the publication of an entry, and for each batch of a zap.
//! * A word leads to an entry that is mapped, or has been zapped by a holder of the lock that is about to clear the word. So
//!   no word leads to a table that is freed.
//! * The fast path takes no lock and writes no word: it changes only what an entry allows.
//!
//! *Writes*: the lock; words, when a page is mapped or zapped.

use faultless_paging::{Entry, Pages};
use faultless_sync::SpinGuard;

use crate::guest::{Guest, GuestMachine, HostSpace};
use crate::slots::slot::SlotBody;

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Takes the lock, if this guest has one.
    #[inline]
    pub(crate) fn mmu_lock(&self) -> Option<SpinGuard<'_, ()>> {
        match self.options.tdp_mmu {
            true => None,
            false => Some(self.lock.lock(self.machine())),
        }
    }

    /// Records that a page is mapped by an entry.
    #[inline]
    pub(crate) fn mapped(&self, slot: &SlotBody, page: u64, entry: &Entry) {
        if !self.options.tdp_mmu
            && let Some(word) = slot.rmap.get(self.machine(), page - slot.pages.start)
        {
            word.set(core::ptr::from_ref(entry).expose_provenance() as u64);
        }
    }

    /// Records that a page was zapped.
    #[inline]
    pub(crate) fn unmapped(&self, slot: &SlotBody, page: u64) {
        if !self.options.tdp_mmu
            && let Some(word) = slot.rmap.get(self.machine(), page - slot.pages.start)
        {
            word.set(0);
        }
    }

    /// Calls `visit` with the entries of `pages`, as the reverse map has them. The caller holds the lock.
    pub(crate) fn for_each_in_rmap(
        &self,
        slot: &SlotBody,
        pages: Pages,
        visit: &mut impl FnMut(&Entry, u64),
    ) {
        for page in pages.start..pages.end {
            let word = slot.rmap.get(self.machine(), page - slot.pages.start);
            let address = word.map_or(0, Entry::load);
            let entry = core::ptr::with_exposed_provenance::<Entry>(address as usize);
            // SAFETY: an entry of a table that is not freed, as the module says; only its atomics are used.
            if let Some(entry) = unsafe { entry.as_ref() } {
                visit(entry, page);
            }
        }
    }
}
