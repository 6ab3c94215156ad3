//! `MADV_WILLNEED`: brings swapped pages back.
//!
//! Linux starts to read them into its swap cache. Here there is none, so they are mapped, by ordinary faults. A page
//! that cannot be read, or for which there is no frame, stays where it is, for the access that needs it to find out.
//!
//! Pages of an object come back into the object. As on Linux a private copy of such a page does not: only the object is
//! looked at.

use core::ops::Range;

use faultless_paging::{Access, Page, Pages, Walk};
use faultless_sync::cond_resched;

use crate::base::machine::Machine;
use crate::object::MemoryObject;
use crate::space::AddressSpace;

/// Pages between two checks for a pending reschedule.
const BATCH: u64 = 64;

impl<M: Machine> AddressSpace<M> {
    /// Brings back the swapped pages of `pages`, as far as there is memory. Mappings may change meanwhile.
    pub(crate) fn bring_back(&self, pages: Pages) {
        if !self.memory().may_have_swapped() {
            return;
        }
        let mut at = pages.start;
        while at < pages.end && !self.machine().fatal_signal_pending() {
            let Some((part, of_object)) = self.next_needed(at, pages.end) else {
                break;
            };
            match of_object {
                None => self.bring_private_back(part),
                Some((store, index)) => self.bring_object_back(&store, index..index + part.len()),
            }
            at = part.end;
        }
    }

    /// Returns the first pages from `page` on that are mapped, all of one mapping. If that shows an object, returns it,
    /// with the object's page that comes first.
    #[allow(clippy::type_complexity)]
    fn next_needed(
        &self,
        page: u64,
        limit: u64,
    ) -> Option<(Pages, Option<(MemoryObject<M>, u64)>)> {
        let _hold = self.maps.hold_range(Pages::new(page, limit));
        let mut at = page;
        let (run, mapping) = loop {
            let run = self.maps.run_in(at, limit)?;
            // SAFETY: the hold keeps mappings from being retired.
            match unsafe { run.word.mapping() } {
                Some(mapping) => break (run, mapping),
                // A zap is still in progress here.
                None => at = run.pages.end,
            }
        };
        let attributes = mapping.attributes();
        let backed = attributes.backed.filter(|_| !attributes.flags.device);
        let of_object = backed.map(|backed| {
            let store = MemoryObject::of(self.memory(), backed.pointer());
            (store, backed.index(run.pages.start))
        });
        Some((run.pages, of_object))
    }

    /// Brings back the pages of an object.
    fn bring_object_back(&self, store: &MemoryObject<M>, pages: Range<u64>) {
        let mut at = pages.start;
        while !self.machine().fatal_signal_pending() {
            let next = store.next_on(None, at).filter(|&next| next < pages.end);
            let Some(index) = next else {
                break;
            };
            // Where that fails, the page stays.
            let _ = store.fill(index);
            at = index + 1;
            cond_resched(self.machine());
        }
    }

    /// Brings back the pages that entries name.
    fn bring_private_back(&self, pages: Pages) {
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
        let walked = self.tables().look(page, &section);
        matches!(walked, Walk::Leaf { value, .. } if self.tables().swap_of(value).is_some())
    }
}
