//! The legacy MMU: one lock for all changes but the fast path's, and a reverse map from a slot's pages to their entries.
//!
//! This is how KVM works without its TDP MMU, kept for comparisons, and for what needs a reverse map: shadow paging. A page
//! has one entry, because a guest has one set of tables, so that the list of a page's entries is one word.
//!
//! * The lock is held from a look at the slots to the publication of an entry, and for each batch of a zap.
//! * A word leads to an entry that is mapped, or has been zapped by a holder of the lock that is about to clear the word. So
//!   no word leads to a table that is freed.
//! * The word of a huge page's first page leads to the huge page's entry, and says so by its lowest bit. The others are 0.
//! * The fast path takes no lock and writes no word: it changes only what an entry allows.
//!
//! *Writes*: the lock; words, when a page is mapped or zapped.

use faultless_paging::{Entry, Pages};
use faultless_sync::SpinGuard;

use crate::guest::{Guest, GuestMachine, HostSpace};
use crate::huge::span_of;
use crate::mmu::tdp::visit_huge;
use crate::slots::slot::SlotBody;
use crate::tables::Spot;

/// The bit of a word that leads to the entry of a huge page.
const HUGE: u64 = 1;

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Takes the lock, if this guest has one.
    #[inline]
    pub(crate) fn mmu_lock(&self) -> Option<SpinGuard<'_, ()>> {
        match self.options.tdp_mmu {
            true => None,
            false => Some(self.lock.lock(self.machine())),
        }
    }

    /// Records that a page, or a huge page, is mapped by an entry.
    #[inline]
    pub(crate) fn mapped(&self, slot: &SlotBody, spot: Spot<'_>) {
        if !self.options.tdp_mmu {
            self.set_word(slot, spot, Self::word_of(spot));
        }
    }

    /// Records that it was zapped.
    #[inline]
    pub(crate) fn unmapped(&self, slot: &SlotBody, spot: Spot<'_>) {
        if !self.options.tdp_mmu {
            self.set_word(slot, spot, 0);
        }
    }

    fn set_word(&self, slot: &SlotBody, spot: Spot<'_>, value: u64) {
        let word = slot
            .rmap
            .get(self.machine(), spot.first() - slot.pages.start);
        if let Some(word) = word {
            word.set(value);
        }
    }

    /// Returns the word that leads to an entry.
    pub(crate) fn word_of(spot: Spot<'_>) -> u64 {
        let address = core::ptr::from_ref(spot.entry).expose_provenance() as u64;
        address | if spot.is_huge() { HUGE } else { 0 }
    }

    /// Returns the entry to which the word of a page leads, if that is one of a huge page or not, as asked.
    #[inline]
    fn spot_in_rmap<'s>(&'s self, slot: &'s SlotBody, pages: Pages) -> Option<Spot<'s>> {
        let number = pages.start.checked_sub(slot.pages.start)?;
        let word = slot.rmap.get(self.machine(), number)?.load();
        if (word & HUGE != 0) != (pages.len() > 1) {
            return None;
        }
        let entry = core::ptr::with_exposed_provenance::<Entry>((word & !HUGE) as usize);
        // SAFETY: an entry of a table that is not freed, as the module says; only its atomics are used.
        let entry = unsafe { entry.as_ref() }?;
        Some(Spot::new(entry, pages))
    }

    /// Calls `visit` with the entries of `pages`, as the reverse map has them. The caller holds the lock.
    pub(crate) fn for_each_in_rmap(
        &self,
        slot: &SlotBody,
        pages: Pages,
        visit: &mut impl FnMut(Spot<'_>),
    ) {
        let mut at = pages.start;
        while at < pages.end {
            let span = span_of(at);
            let end = span.end.min(pages.end);
            if let Some(spot) = self.spot_in_rmap(slot, span) {
                visit_huge(visit, spot);
                if !Self::FORMAT.is_table(spot.entry.load()) {
                    at = end;
                    continue;
                }
                // It was split just now.
            }
            for page in at..end {
                if let Some(spot) = self.spot_in_rmap(slot, Pages::new(page, page + 1)) {
                    visit(spot);
                }
            }
            at = end;
        }
    }
}
