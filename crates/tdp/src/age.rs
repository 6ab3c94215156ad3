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
            self.for_each(slot, part, &mut |entry, _| {
                if !clears {
                    is_used |= self.is_used(entry.load());
                    return;
                }
                let unused = |value| self.is_used(value).then(|| self.unused(value));
                is_used |= self.change(entry, unused).is_some();
            });
        }
        is_used
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
