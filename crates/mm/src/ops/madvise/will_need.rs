//! `MADV_WILLNEED`: brings swapped pages back.
//!
//! Linux starts to read them into its swap cache. Here there is none, so they are mapped, by ordinary faults. A page
//! that cannot be read, or for which there is no frame, stays where it is, for the access that needs it to find out.

use faultless_paging::{Access, Page, Pages, Walk};
use faultless_sync::cond_resched;

use crate::base::machine::Machine;
use crate::space::AddressSpace;

/// Pages between two checks for a pending reschedule.
const BATCH: u64 = 64;

impl<M: Machine> AddressSpace<M> {
    /// Brings back the swapped pages of `pages`, as far as there is memory. Mappings may change meanwhile.
    pub(super) fn bring_back(&self, pages: Pages) {
        if !self.memory().may_have_swapped() {
            return;
        }
        let mut at = self.tables().first_table(pages.start, pages.end);
        while at < pages.end && !self.machine().fatal_signal_pending() {
            if self.is_swapped(Page(at)) {
                let _ = self.fault_by_kernel(Page(at).address(), Access::Read);
            }
            at += 1;
            if at.is_multiple_of(BATCH) {
                cond_resched(self.machine());
                at = self.tables().first_table(at, pages.end);
            }
        }
    }

    /// Whether the entry of a page names a slot.
    fn is_swapped(&self, page: Page) -> bool {
        let section = self.memory().enter();
        let walked = self.tables().descend(page, &section);
        matches!(walked, Walk::Leaf { value, .. } if self.tables().swap_of(value).is_some())
    }
}
