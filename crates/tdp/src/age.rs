//! Access tracking: whether the guest has used a page.
//!
//! Reclaim in the host asks before it takes a page, and so does the search for idle memory (`page_idle`). There are two ways
//! to know:
//!
//! * by hardware's accessed bit, which is cleared in place;
//! * without it, by taking the rights of the entry away, which remembers them ([`crate::SecondLevel::tracked`]): the next access
//!   faults, and the fast path restores the rights.
//!
//! Neither flushes, as in KVM: a vCPU that still has the translation uses the page unseen until it next leaves the guest.
//! What the host *invalidates* instead (`clear_refs`, `MADV_COLD`) is zapped, and faults anew ([`crate::host`]).
//!
//! *Writes*: the entry.
//!
//! *Models*: shuttle `any.rs`.

use faultless_paging::{Page, Pages};

use crate::format::SecondLevel;
use crate::guest::{Guest, GuestMachine, HostSpace};
use crate::slots::slot::SlotBody;
use crate::tables::Spot;

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Whether the guest has used a page of the host since it was last aged. With `clears`, it is aged. The caller is in a
    /// section.
    pub(crate) fn age(&self, page: Page, clears: bool) -> bool {
        let mut is_used = false;
        let _lock = self.mmu_lock();
        for slot in self.slots_now().iter() {
            let part = slot.guest_of(Pages::new(page.0, page.0 + 1));
            if part.is_empty() {
                continue;
            }
            self.for_each(slot, part, &mut |spot| {
                let value = spot.entry.load();
                let is_one = spot.has_page::<M::SecondLevel>(value) && self.is_used(value);
                if !clears || (spot.is_huge() && is_one && !self.ages_whole(slot, spot)) {
                    is_used |= is_one;
                    return;
                }
                let unused = |value| self.is_used(value).then(|| self.unused(value));
                is_used |= self.change(spot, unused).is_some();
            });
        }
        is_used
    }

    /// Whether a huge page of the guest is aged by the bit of its entry, because the host has one bit for it, too. If the host has
    /// split its own, the guest's is split, and its pages are aged one by one.
    #[cold]
    fn ages_whole(&self, slot: &SlotBody, spot: Spot<'_>) -> bool {
        let at = Page(slot.host_of(spot.first()));
        let host = self.space().host_pages();
        if host.told().get_huge(at).is_some() {
            return true;
        }
        // Without memory for a table, it counts as used.
        let _ = self.split(slot, spot, |value| value);
        false
    }

    fn is_used(&self, value: u64) -> bool {
        let is_marked = !self.options.accessed_bits || value & Self::FORMAT.accessed != 0;
        Self::FORMAT.is_present(value) && !Self::FORMAT.is_claimed(value) && is_marked
    }

    fn unused(&self, value: u64) -> u64 {
        match self.options.accessed_bits {
            true => value & !Self::FORMAT.accessed,
            false => M::SecondLevel::tracked(value),
        }
    }
}
