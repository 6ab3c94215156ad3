//! Replaces a table by the entry of a huge page, where the guest may have one: the host has mapped a huge page since, or stores are
//! logged no longer.
//!
//! 1. Claim the table's entry, while hardware still uses it: a full barrier. Validate what the huge entry will be made from, as for
//!    any page ([`crate::fault::map`]).
//! 2. Hide the entry, and flush: no vCPU knows the table.
//! 3. Publish the huge entry. Retire the table.
//!
//! * What the table shows is part of what the huge entry shows, or the host is about to take it away: that waits for the claim. A
//!   fault that publishes a page in the table after its entry was hidden has published it for nothing.
//! * No store is marked in the table: the slot is not logged, and what begins a log waits for the claim.
//! * Meanwhile vCPUs that use one of the pages fault, and try again.
//!
//! *Writes*: the table and its entry; with the legacy MMU the reverse map.
//!
//! *Models*: loom `huge.rs`.

use faultless_mm::{HostEntry, HostPage};
use faultless_paging::{Access, Page, Pages, Walk};
use faultless_sync::reclaim::Section;
use faultless_sync::{Mutant, cond_resched, mutant};

use crate::format::SecondLevel;
use crate::guest::{Guest, GuestMachine, HostSpace};
use crate::huge::span_of;
use crate::slots::slot::SlotBody;
use crate::tables::{Again, InterruptsOff, Place, Spot};

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Replaces the table of these pages, to which `place` leads, by an entry that shows what the host does. `slots` is the snapshot
    /// that has the slot.
    #[cold]
    pub(crate) fn replace_table(
        &self,
        (slot, slots): (&SlotBody, u64),
        pages: Pages,
        (host, shown): (&HostEntry<'_, M>, HostPage),
        place: &Place<'_>,
    ) -> Result<(), Again> {
        let machine = self.machine();
        let _off = InterruptsOff::new(machine);
        let claim = place
            .entry
            .claim_present::<M::SecondLevel>(place.value)
            .map_err(|_| Again::Busy)?;
        let is_shown = host.is_in_place() && host.get() == Some(shown);
        let is_valid = place.link.is_valid()
            && self.has_slots(slots, pages)
            && (is_shown || mutant(Mutant::HostNotValidated));
        if !is_valid {
            return Err(Again::Busy);
        }
        let claim = claim.hide(machine.cpu());
        if !mutant(Mutant::ReplacedTableNotFlushed) {
            self.flush();
        }
        let entry = place.entry;
        for page in pages.start..pages.end {
            let pages = Pages::new(page, page + 1);
            self.unmapped(slot, Spot::new(entry, pages));
        }
        self.mapped(slot, Spot::new(entry, pages));
        let rights = self.rights(slot, shown, false);
        claim.publish(Self::FORMAT.huge(M::SecondLevel::page(shown.frame, rights)));
        self.memory.retire_table(Self::FORMAT.frame(place.value));
        Ok(())
    }

    /// Replaces the tables of a slot that is logged no longer. The caller keeps the slots from changing.
    pub(crate) fn recover_huge(&self, slot: &SlotBody) {
        let mut at = slot.pages.start;
        while at < slot.pages.end {
            let span = span_of(at);
            if slot.huge_span(at).is_some() {
                let _lock = self.mmu_lock();
                let section = self.memory.enter();
                // What is at work there leaves what is right.
                let _ = self.recover_one(slot, span, &section);
            }
            at = self.next_table(span.end, slot.pages.end);
            cond_resched(self.machine());
        }
    }

    fn recover_one(
        &self,
        slot: &SlotBody,
        span: Pages,
        section: &Section<'_>,
    ) -> Result<(), Again> {
        let first = Page(span.start);
        let Walk::Leaf { entry, value, link } = self.descend_to_huge(first, section) else {
            return Ok(());
        };
        if !Self::FORMAT.is_table(value) {
            return Ok(());
        }
        let place = Place {
            entry,
            value,
            link,
            is_huge: true,
        };
        let pages = self.space().host_pages();
        let host = pages.find(Page(slot.host_of(span.start)), section);
        let Some(host) = host.and_then(|host| host.whole()) else {
            return Ok(());
        };
        match host.access(Access::Read) {
            Some(shown) => {
                let slots = self.slots_now().frame;
                self.replace_table((slot, slots), span, (&host, shown), &place)
            }
            None => Ok(()),
        }
    }
}
