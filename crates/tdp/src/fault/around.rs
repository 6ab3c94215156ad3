//! Maps the pages beside one that a fault has mapped, if the host has them.
//!
//! Their entries are on the cache line that the fault has written, so this costs a few instructions for each, and saves a
//! fault. KVM's legacy MMU does the same (`pte_prefetch`); its TDP MMU does not.
//!
//! * Only empty entries are filled, with what the host's entries show now: nothing is brought for them.
//! * Each is claimed, validated and published like the fault's own. One that fails is left out.
//! * A page that the host has not used yet is left out: it would count as used.
//!
//! *Writes*: the line of the fault's entry.

use faultless_mm::HostEntry;
use faultless_paging::{ENTRIES, Entry, Page, Pages};

use crate::fault::map::Mapping;
use crate::guest::{Guest, GuestMachine, HostSpace};

/// Entries on a cache line.
const LINE: u64 = if ENTRIES < 8 { ENTRIES as u64 } else { 8 };

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Maps what the host has of the other pages on the line of a page's entry.
    #[inline]
    pub(crate) fn map_around(&self, around: &Mapping<'_, M>) {
        let Some(table) = around.link.table::<M::SecondLevel, M>(self.machine()) else {
            return;
        };
        let first = around.pages.start & !(LINE - 1);
        for page in first..first + LINE {
            let entry = table.entry(page, 0);
            if entry.load() != 0 || !around.slot.pages.contains(Page(page)) {
                continue;
            }
            let at = Page(around.slot.host_of(page));
            let Some(host) = around.host.beside(at) else {
                continue;
            };
            self.map_one(around, (page, entry), host);
        }
    }

    fn map_one(
        &self,
        around: &Mapping<'_, M>,
        (page, entry): (u64, &Entry),
        host: HostEntry<'_, M>,
    ) {
        let Some(shown) = host.get().filter(|shown| shown.is_used) else {
            return;
        };
        let mapping = Mapping {
            pages: Pages::new(page, page + 1),
            host,
            ..*around
        };
        // One that fails is mapped by its own fault.
        let _ = self.publish(&mapping, (entry, 0), shown, false);
    }
}
