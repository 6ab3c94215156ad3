//! Maps a page of the host for a guest.
//!
//! 1. Find the slot, without a lock, and the host's entry.
//! 2. Take what that shows, with its accessed and dirty bits set as by the access. If the access has to fault in the host
//!    first, it does, with nothing held, and this begins again.
//! 3. Find the guest's entry. Missing tables are installed.
//! 4. Claim it, a full barrier, and validate: both tables are linked, the slots are the same, the host's entry shows the same.
//! 5. Push a page that becomes dirty into the vCPU's ring, if it has one. Publish.
//! 6. Or the host's entry is that of a huge page, and the guest may have one there: then the entry is one level up ([`crate::huge`]),
//!    and the rest is the same.
//! 7. Map what the host has of the pages beside it, the entries of which are on the same cache line, in the same way
//!    ([`crate::fault::around`]).
//!
//! A page that the host has written is mapped for stores on a read, too, if its slot is not logged.
//!
//! *Writes*: the line of the entry; tables; bits of the host's entry.
//!
//! *Models*: loom `host.rs`, `log.rs`, `slots.rs`.

use faultless_mm::{HostEntry, HostPage};
use faultless_paging::{Access, Entry, Link, Page, Pages, Value};
use faultless_sync::atomic::Ordering;
use faultless_sync::{Mutant, mutant};

use crate::fault::{GuestFault, GuestOutcome, Repair};
use crate::format::SecondLevel;
use crate::guest::{Guest, GuestMachine, HostSpace};
use crate::log::ring::{DirtyRing, RingFull};
use crate::slots::slot::SlotBody;
use crate::tables::{Again, InterruptsOff, Place, Spot};

/// What a page is mapped by, found in one section.
pub(crate) struct Mapping<'s, M: GuestMachine> {
    pub(crate) slot: &'s SlotBody,
    /// The frame of the snapshot that has the slot.
    pub(crate) slots: u64,
    /// The page, or those of a huge page.
    pub(crate) pages: Pages,
    pub(crate) host: HostEntry<'s, M>,
    /// The link of the guest's table.
    pub(crate) link: Link<'s>,
    /// The vCPU's ring.
    pub(crate) ring: Option<&'s DirtyRing<'s>>,
}

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Makes one try.
    #[inline]
    pub(crate) fn map(&self, fault: &GuestFault<'_>) -> Result<GuestOutcome, Again> {
        let (page, access) = (Page::containing(fault.address), fault.access);
        let _lock = self.mmu_lock();
        let section = self.memory.enter();
        let slots = self.slots_now();
        let Some(slot) = slots.find(page.0) else {
            return Ok(GuestOutcome::Device);
        };
        if access == Access::Write && slot.is_read_only() {
            return Ok(GuestOutcome::Device);
        }
        let at = Page(slot.host_of(page.0));
        let pages = self.space().host_pages();
        let host = pages.find(at, &section).ok_or(Again::Host(at.0))?;
        if host.is_huge()
            && let Some((host, pages)) = Self::huge_of(slot, page, &host)
        {
            return self.map_huge(fault, (slot, slots.frame), pages, host, &section);
        }
        let shown = host.access(access).ok_or(Again::Host(at.0))?;

        let place = self.place(page, &section)?;
        if place.is_huge {
            return self.map_by_parts((slot, slots.frame), fault, &place);
        }
        let Place {
            entry, value, link, ..
        } = place;
        let format = Self::FORMAT;
        if value != 0 {
            if format.permits(value, access) {
                return Ok(GuestOutcome::Resolved(Repair::Spurious));
            }
            if format.is_claimed(value) {
                return Err(Again::Busy);
            }
            if format.frame(value) != shown.frame {
                // The host has replaced the page, and is about to report it.
                return Err(Again::Busy);
            }
        }
        if M::SecondLevel::is_tracked(value) {
            return self.restore((entry, value), access);
        }
        let mapping = Mapping {
            slot,
            slots: slots.frame,
            pages: Pages::new(page.0, page.0 + 1),
            host,
            link,
            ring: fault.ring,
        };
        let writes = access == Access::Write;
        self.publish(&mapping, (entry, value), shown, writes)?;
        self.map_around(&mapping);
        Ok(GuestOutcome::Resolved(Repair::Mapped))
    }

    /// Restores the rights of an entry of which access is tracked. A vCPU may still use them, so it is not replaced by one with
    /// fewer.
    #[cold]
    pub(crate) fn restore(
        &self,
        (entry, value): (&Entry, Value),
        access: Access,
    ) -> Result<GuestOutcome, Again> {
        let restored = M::SecondLevel::restored(value);
        match entry.replace(value, restored) {
            Ok(()) if Self::FORMAT.permits(restored, access) => {
                Ok(GuestOutcome::Resolved(Repair::Mapped))
            }
            _ => Err(Again::Busy),
        }
    }

    /// Claims the entry of a page, validates, and publishes what the host shows. `writes`: the guest is about to store to it.
    #[inline(always)]
    pub(crate) fn publish(
        &self,
        mapping: &Mapping<'_, M>,
        (entry, value): (&Entry, Value),
        shown: HostPage,
        writes: bool,
    ) -> Result<(), Again> {
        let Mapping { slot, .. } = mapping;
        let rights @ [_, is_dirty, _] = self.rights(slot, shown, writes);
        let machine = self.machine();
        let _off = InterruptsOff::new(machine);
        let claim = entry
            .claim::<M::SecondLevel>(value, machine.cpu())
            .map_err(|_| Again::Busy)?;
        let has_slots = self.has_slots(mapping.slots, mapping.pages);
        let is_shown = mapping.host.is_in_place() && mapping.host.get() == Some(shown);
        let is_valid = mapping.link.is_valid()
            && (has_slots || mutant(Mutant::SlotsNotValidated))
            && (is_shown || mutant(Mutant::HostNotValidated));
        if !is_valid {
            return Err(Again::Busy);
        }
        if is_dirty && slot.logs() {
            self.push(slot, Page(mapping.pages.start), mapping.ring)?;
        }
        let pages = mapping.pages;
        let spot = Spot::new(entry, pages);
        self.mapped(slot, spot);
        let page = M::SecondLevel::page(shown.frame, rights);
        claim.publish(match spot.is_huge() {
            true => Self::FORMAT.huge(page),
            false => page,
        });
        Ok(())
    }

    /// What the entry of a page is to allow and say, as for [`SecondLevel::page`].
    #[inline]
    pub(crate) fn rights(&self, slot: &SlotBody, shown: HostPage, writes: bool) -> [bool; 3] {
        let may_write = shown.takes_stores && !slot.is_read_only();
        let is_dirty = may_write && (writes || !slot.logs());
        let write = is_dirty || (may_write && self.has_dirty_bits());
        [write, is_dirty, may_write]
    }

    /// Whether the slot of pages is still the one that a snapshot shows. To be asked after a claim of their entry.
    #[inline]
    pub(crate) fn has_slots(&self, slots: u64, pages: Pages) -> bool {
        // A slot may move by a part of itself. Then what its pages showed before is zapped first.
        let leaves = |old: &SlotBody| !old.pages.and(pages).is_empty();
        self.slots.load(Ordering::Relaxed) == slots && !self.leaving().is_some_and(leaves)
    }

    /// Pushes a page of a logged slot that becomes dirty, under the claim of its entry, if the guest has rings.
    #[inline]
    pub(crate) fn push(
        &self,
        slot: &SlotBody,
        page: Page,
        ring: Option<&DirtyRing<'_>>,
    ) -> Result<(), RingFull> {
        match ring {
            Some(ring) => ring.push((slot.number, page.0 - slot.pages.start)),
            None if self.has_rings() => Err(RingFull),
            None => Ok(()),
        }
    }
}
