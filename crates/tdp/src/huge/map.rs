//! Maps a huge page of the host, and finds what a guest's huge entry says of one of its pages.
//!
//! The steps are those of a small page ([`crate::fault::map`]).
//!
//! *Writes*: the entry; tables above it; bits of the host's entry.
//!
//! *Models*: loom `huge.rs`.

use faultless_mm::HostEntry;
use faultless_paging::{Access, Page, Pages};
use faultless_sync::reclaim::Section;
use faultless_sync::{Mutant, mutant};

use crate::fault::map::Mapping;
use crate::fault::{GuestFault, GuestOutcome, Repair};
use crate::format::SecondLevel;
use crate::guest::{Guest, GuestMachine, HostSpace};
use crate::huge::span_of;
use crate::slots::slot::SlotBody;
use crate::tables::{Again, Place, Spot};

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Maps the huge page around a page of the host, whose entry is `host`. `pages` are those of the guest that show it, `slots` the
    /// snapshot that has the slot.
    #[cold]
    #[inline(never)]
    pub(crate) fn map_huge(
        &self,
        fault: &GuestFault<'_>,
        (slot, slots): (&SlotBody, u64),
        pages: Pages,
        host: HostEntry<'_, M>,
        section: &Section<'_>,
    ) -> Result<GuestOutcome, Again> {
        let (page, access) = (Page::containing(fault.address), fault.access);
        let at = slot.host_of(page.0);
        let place = self.place_huge(page, section)?;
        let shown = host.access(access).ok_or(Again::Host(at))?;
        let value = place.value;
        if Self::FORMAT.is_table(value) {
            self.replace_table((slot, slots), pages, (&host, shown), &place)?;
            return Ok(GuestOutcome::Resolved(Repair::Mapped));
        }
        if value != 0 {
            if Self::FORMAT.permits(value, access) {
                return Ok(GuestOutcome::Resolved(Repair::Spurious));
            }
            if Self::FORMAT.frame(value) != shown.frame {
                // The host has replaced the page, and is about to report it.
                return Err(Again::Busy);
            }
        }
        if M::SecondLevel::is_tracked(value) {
            return self.restore((place.entry, value), access);
        }
        let mapping = Mapping {
            slot,
            slots,
            pages,
            host,
            link: place.link,
            ring: fault.ring,
        };
        let writes = access == Access::Write;
        self.publish(&mapping, (place.entry, value), shown, writes)?;
        Ok(GuestOutcome::Resolved(Repair::Mapped))
    }

    /// Resolves a fault on a page around which the guest's entry shows a huge page, though its own entry is to be small: by that entry
    /// if it is enough. If not, it is split, and the fault tries again. `slots` is the snapshot that has the slot.
    ///
    /// An entry of a slot that moves by a part of itself is not split: its parts are not this slot's, and the move, which zaps the entry,
    /// would not find them in its own reverse map.
    #[cold]
    #[inline(never)]
    pub(crate) fn map_by_parts(
        &self,
        (slot, slots): (&SlotBody, u64),
        fault: &GuestFault<'_>,
        place: &Place<'_>,
    ) -> Result<GuestOutcome, Again> {
        if Self::FORMAT.permits(place.value, fault.access) {
            return Ok(GuestOutcome::Resolved(Repair::Spurious));
        }
        if M::SecondLevel::is_tracked(place.value) {
            return self.restore((place.entry, place.value), fault.access);
        }
        let spot = Spot::new(place.entry, span_of(Page::containing(fault.address).0));
        if !self.has_slots(slots, spot.pages()) && !mutant(Mutant::SlotsNotValidated) {
            return Err(Again::Busy);
        }
        self.split(slot, spot, |value| value)?;
        Err(Again::Busy)
    }
}
