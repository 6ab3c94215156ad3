//! Huge pages of the host as entries one level up in the guest's tables.
//!
//! * A huge page is mapped by one entry where the host has one entry for it, one slot has all of it, both addresses are aligned
//!   alike, and stores are not logged. The protocol is that of a small page ([`crate::fault::map`]), at the entry one level up.
//! * **What the host changes in a part of it takes all of it away** ([`crate::host`]), unless the host's entry still shows
//!   all of it. A split of the host changes nothing that is shown, and is not told: the guest's entry stays.
//! * **The guest's entry is split by one compare-and-swap**, to a table that was filled with its pages first ([`split`]). The rights
//!   stay, or are lowered for the log; no vCPU faults, and nothing is flushed for the split itself. What walks over a range looks
//!   again at an entry that showed a huge page, and finds the table.
//! * A table makes way again where the guest may have a huge page: at a fault, and when stores are logged no longer ([`replace`]).
//!
//! *Writes*: the entry, tables; with the legacy MMU the reverse map.
//!
//! *Models*: loom `huge.rs`.

mod map;
mod replace;
mod split;

use faultless_mm::HostEntry;
use faultless_paging::{BITS, ENTRIES, Page, Pages, Walk};
use faultless_sync::reclaim::Section;

use crate::format::SecondLevel;
use crate::guest::{Guest, GuestMachine, HostSpace};
use crate::slots::slot::SlotBody;
use crate::tables::{Again, Place};

/// The level of the entries that show huge pages.
pub(crate) const HUGE_LEVEL: usize = 1;

/// Returns the pages of the huge page around a page, or of a table's entries.
#[inline]
pub(crate) fn span_of(page: u64) -> Pages {
    let start = page >> BITS << BITS;
    Pages::new(start, start + ENTRIES as u64)
}

impl SlotBody {
    /// Returns the pages of a huge entry around a page, if this slot may have one there.
    pub(crate) fn huge_span(&self, page: u64) -> Option<Pages> {
        let span = span_of(page);
        let is_inside = self.pages.and(span) == span;
        let is_alike = (self.host ^ self.pages.start).is_multiple_of(ENTRIES as u64);
        (is_inside && is_alike && !self.logs()).then_some(span)
    }
}

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Returns the host's huge page around a page, and the pages that a huge entry of the guest would show, if it may have one.
    #[cold]
    pub(crate) fn huge_of<'s>(
        slot: &SlotBody,
        page: Page,
        host: &HostEntry<'s, M>,
    ) -> Option<(HostEntry<'s, M>, Pages)> {
        Some((host.whole()?, slot.huge_span(page.0)?))
    }

    /// Returns the entry for a huge page around a page, with tables above it made as needed. It may lead to a table.
    #[cold]
    pub(crate) fn place_huge<'s>(
        &'s self,
        page: Page,
        section: &'s Section<'_>,
    ) -> Result<Place<'s>, Again> {
        loop {
            match self.descend_to_huge(page, section) {
                Walk::Leaf { entry, value, link }
                    if value == 0
                        || M::SecondLevel::has_huge(value)
                        || Self::FORMAT.is_table(value) =>
                {
                    return Ok(Place {
                        entry,
                        value,
                        link,
                        is_huge: true,
                    });
                }
                Walk::Missing { entry, link, .. } => self.install(entry, link)?,
                Walk::Leaf { .. } | Walk::Huge { .. } | Walk::Busy => return Err(Again::Busy),
            }
        }
    }
}
