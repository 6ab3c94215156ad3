//! `swapoff`: ends the use of a swap device, after all its pages have come back.
//!
//! * The device gives no more slots first ([`crate::swap`]). A page-out that has taken one earlier puts it into an
//!   entry in the end.
//! * Then the walk goes through all address spaces, in the order of their numbers, and resolves every entry that names
//!   the device, as a fault does: it holds a use of the slot, reads with nothing held, claims, validates, publishes.
//!   The mapping need not allow any access. Faults, page-outs and writers go on beside it.
//! * Pages of memory objects come back into their objects ([`crate::object`]).
//! * An entry may move behind the walk, or be copied there. So the walk is repeated until no slot is used.
//! * No lock is held while a page is read: the space that the walk is in waits if it ends, and the walk leaves it then.
//! * If a page cannot come back, the device gives slots again. Nothing is lost: each page is here or there.
//!
//! *Writes*: what a fault writes; the count of the space that the walk is in.
//!
//! *Models*: loom `ops/swap_off.rs`, shuttle `ops/any.rs`.

use faultless_paging::{Access, ENTRIES, Page, Pages, Walk};
use faultless_sync::{Backoff, cond_resched};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::fault::state::FaultState;
use crate::fault::trace::{FaultTrace, Forced};
use crate::fault::{Outcome, PteRef};
use crate::lock::vma::{Mode, VmaRef};
use crate::object::MemoryObject;
use crate::space::AddressSpace;
use crate::table::retry::{Blocker, Retry};
use crate::tune::PIN_TRIES;

/// Whether an operation may go on.
type GoOn<'a> = &'a dyn Fn() -> Result<(), Errno>;

impl<M: Machine> Memory<M> {
    /// Ends the use of a swap device, by its number, after all its pages have come back. `may_go_on` is asked before
    /// each page: it fails where the caller wants to give up, or to keep the memory that is left.
    ///
    /// # Errors
    /// `EINVAL` for a device that is not in use. `ENOMEM` without memory for its pages, `EIO` if one cannot be read, and
    /// what `may_go_on` says: the device stays in use, and its pages are in memory or there.
    pub fn swap_off(&'static self, number: u32, may_go_on: GoOn<'_>) -> Result<(), Errno> {
        self.begin_swap_off(number)?;
        let result = self.empty_device(number, may_go_on);
        self.end_swap_off(number, result.is_ok());
        result
    }

    /// Brings back all pages of a device that gives no more slots.
    fn empty_device(&'static self, number: u32, may_go_on: GoOn<'_>) -> Result<(), Errno> {
        let mut backoff = Backoff::new();
        while !self.is_swap_empty(number) {
            let mut after = 0;
            while let Some(visit) = self.visit_after(after) {
                after = visit.number();
                visit.bring_device_back(number, may_go_on)?;
            }
            let mut after = 0;
            while let Some(object) = self.object_after(after) {
                after = object.id();
                self.empty_object(&object, number, may_go_on)?;
            }
            may_go_on()?;
            // What is left is being written, moved or freed.
            backoff.rest(self.machine());
        }
        Ok(())
    }
}

impl<M: Machine> Memory<M> {
    /// Brings back the pages of an object.
    fn empty_object(
        &'static self,
        object: &MemoryObject<M>,
        device: u32,
        may_go_on: GoOn<'_>,
    ) -> Result<(), Errno> {
        let mut at = 0;
        while let Some(index) = object.next_on(Some(device), at) {
            may_go_on()?;
            at = match object.fill(index) {
                Ok(_) => index,
                Err(Errno::ENOMEM) if self.reclaim_some() => index,
                Err(error) => return Err(error),
            };
            cond_resched(self.machine());
        }
        Ok(())
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Brings back the pages of a device, in the order of their addresses. Ends early if the space ends.
    fn bring_device_back(&self, device: u32, may_go_on: GoOn<'_>) -> Result<(), Errno> {
        let end = Pages::of_bytes(0..self.layout().end).end;
        let mut at = self.tables().first_table(0, end);
        while at < end {
            let table_end = (at | (ENTRIES as u64 - 1)) + 1;
            match self.next_swapped(Pages::new(at, end.min(table_end)), device) {
                Some(page) => {
                    may_go_on()?;
                    self.bring_page_back(Page(page), device)?;
                    at = page + 1;
                }
                None => at = self.tables().first_table(table_end.min(end), end),
            }
            if self.is_ending() {
                return Ok(());
            }
            cond_resched(self.machine());
        }
        Ok(())
    }

    /// Returns the first of some pages, all of one table, whose entry names a device.
    fn next_swapped(&self, pages: Pages, device: u32) -> Option<u64> {
        let mut found = None;
        let _section = self.memory().enter();
        self.tables().for_each_page(pages, &mut |value, page| {
            let swapped = self.tables().swap_of(value);
            if found.is_none() && swapped.is_some_and(|swapped| swapped.device == device) {
                found = Some(page);
            }
        });
        found
    }

    /// Brings back a page, if its entry still names the device.
    fn bring_page_back(&self, page: Page, device: u32) -> Result<(), Errno> {
        let mut prepared = FaultState::new(self.memory(), Forced(FaultTrace::new()), true);
        let mut backoff = Backoff::new();
        while !self.is_ending() {
            match self.try_to_bring_back(page, device, &mut prepared) {
                Ok(Outcome::Bus) => return Err(Errno::EIO),
                Ok(_) => break,
                Err(Retry::Wait(blocker)) if blocker != Blocker::Fork => {
                    let of = (page.address(), Access::Read);
                    match self.wait_for(blocker, of, &mut prepared) {
                        None => {}
                        Some(Outcome::OutOfMemory) => return Err(Errno::ENOMEM),
                        Some(_) => return Err(Errno::EIO),
                    }
                    // No fault has waited.
                    prepared.has_waited = false;
                }
                Err(Retry::Wait(_)) => self.tables().prioritise_copy(page),
                Err(_) if backoff.turns() >= PIN_TRIES => {
                    // A writer is at work there, and waits for nothing that is held here.
                    drop(self.maps.hold_range(Pages::new(page.0, page.0 + 1)));
                    backoff = Backoff::new();
                }
                Err(_) => {}
            }
            backoff.rest(self.machine());
        }
        Ok(())
    }

    /// Makes one try, as `attempt` of the fault engine. What is not mapped, or does not name the device, counts as
    /// resolved.
    fn try_to_bring_back(
        &self,
        page: Page,
        device: u32,
        prepared: &mut FaultState<M, Forced>,
    ) -> Result<Outcome, Retry> {
        let section = self.memory().enter();
        // `Locked` without its lock: held by validation alone, as under the policy `speculative`.
        let Some(vma) = VmaRef::find(&self.maps, page, Mode::Locked, &section)? else {
            return Ok(Outcome::Resolved);
        };
        let Walk::Leaf { entry, value, link } = self.tables().look(page, &section) else {
            return Ok(Outcome::Resolved);
        };
        if link.is_frozen() {
            return Err(Retry::Wait(Blocker::Fork));
        }
        if Self::FORMAT.is_claimed(value) {
            return Err(Retry::EntryClaimed);
        }
        let swapped = self.tables().swap_of(value);
        if swapped.is_none_or(|swapped| swapped.device != device) {
            return Ok(Outcome::Resolved);
        }
        let at = PteRef {
            entry,
            value,
            link,
            vma: &vma,
        };
        self.swap_in(&at, page, Access::Read, prepared)
    }
}
