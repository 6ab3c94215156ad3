//! Maps a page of the host for a guest.
//!
//! 1. Find the slot, without a lock, and the host's page.
//! 2. Take what the host's entry shows, with its accessed and dirty bits set as by the access. If the access has to fault in
//!    the host first, it does, with nothing held, and this begins again.
//! 3. Find the guest's entry. Missing tables are installed.
//! 4. Claim it, a full barrier, and validate: its table is linked, the slots are the same, the host's entry shows the same.
//! 5. Publish.
//!
//! A page that the host has written is mapped for stores on a read, too, if its slot is not logged.
//!
//! *Writes*: the entry; tables; bits of the host's entry.
//!
//! *Models*: loom `guests.rs`.

use faultless_paging::{Access, Page};
use faultless_sync::atomic::Ordering;
use faultless_sync::{Mutant, mutant};

use crate::fault::{GuestOutcome, Repair};
use crate::format::SecondLevel;
use crate::guest::{Guest, GuestMachine, HostSpace};
use crate::tables::{Again, InterruptsOff, Place};

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Makes one try.
    #[inline]
    pub(crate) fn map(&self, page: Page, access: Access) -> Result<GuestOutcome, Again> {
        let _lock = self.mmu_lock();
        let section = self.memory.enter();
        let slots = self.slots_now();
        let Some(slot) = slots.find(page.0) else {
            return Ok(GuestOutcome::Device);
        };
        if access == Access::Write && slot.is_read_only() {
            return Ok(GuestOutcome::Device);
        }
        let host = Page(slot.host_of(page.0));
        let pages = self.space().host_pages();
        let shown = pages
            .access(host, access, &section)
            .ok_or(Again::Host(host.0))?;

        let Place { entry, value, link } = self.place(page, &section)?;
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
        let may_write = shown.takes_stores && !slot.is_read_only();
        let write = may_write && (access == Access::Write || !slot.logs());

        let machine = self.machine();
        let _off = InterruptsOff::new(machine);
        let claim = entry
            .claim::<M::SecondLevel>(value, machine.cpu())
            .map_err(|_| Again::Busy)?;
        let is_valid = link.is_valid()
            && (self.slots.load(Ordering::Relaxed) == slots.frame
                || mutant(Mutant::SlotsNotValidated))
            && (pages.get(host, &section) == Some(shown) || mutant(Mutant::HostNotValidated));
        if !is_valid {
            return Err(Again::Busy);
        }
        self.mapped(slot, page.0, entry);
        claim.publish(M::SecondLevel::page(shown.frame, write, may_write));
        Ok(GuestOutcome::Resolved(Repair::Mapped))
    }
}
