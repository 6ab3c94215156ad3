//! Access to a program's memory beyond what its mappings allow: `/proc/PID/mem`.
//!
//! The caller has the right to look at the program from outside. Memory that no access of the program may reach
//! can be read. Memory that the program may not write can be written where it is private: the program then has
//! a copy of its own, as after a write by itself, and still may not write it.
//!
//! The fault engine brings the page. It is told that the mapping need not allow the access, and publishes no
//! more than the mapping allows. Then the entry is claimed, from a value that says that the page is there and,
//! for a write, exclusive to this space. The mapping is validated, and the bytes are copied under the claim. A
//! concurrent unmap, fork, truncation or move waits no longer than the copy of a page takes.
//!
//! *Writes*: what the fault writes; the entry; the page.
//!
//! *Models*: loom `ops/access.rs`.

use faultless_frames::Flags;
use faultless_paging::{Access, Frame, Page, Pages, Walk};
use faultless_sync::atomic::{Ordering, fence};
use faultless_sync::{Backoff, Mutant, mutant};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::fault::state::FaultState;
use crate::fault::trace::{FaultTrace, Forced};
use crate::fault::{Outcome, PteRef};
use crate::lock::vma::{Mode, VmaRef};
use crate::space::AddressSpace;
use crate::table::retry::Retry;
use crate::tree::mapping::Attributes;
use crate::tune::PIN_TRIES;

impl<M: Machine> AddressSpace<M> {
    /// Calls `transfer` with the frame of the page at an address, to be read or written, whatever the mapping
    /// allows. `transfer` is called once, with interrupts off. It must not call the core, and touches no user
    /// memory.
    ///
    /// # Errors
    /// `EIO` where nothing or a device is mapped, where nothing is behind the page, at a guard, and for a write
    /// to a shared mapping that does not allow it; `ENOMEM`.
    pub fn access(
        &self,
        address: u64,
        access: Access,
        transfer: &mut dyn FnMut(Frame),
    ) -> Result<(), Errno> {
        self.access_meant(address, access, &|_| true, transfer)
    }

    /// The same where the mapping's attributes satisfy `is_meant`. Elsewhere it fails with `EIO`.
    pub(crate) fn access_meant(
        &self,
        address: u64,
        access: Access,
        is_meant: &dyn Fn(&Attributes) -> bool,
        transfer: &mut dyn FnMut(Frame),
    ) -> Result<(), Errno> {
        if address >= self.layout().end {
            return Err(Errno::EIO);
        }
        let page = Page::containing(address);
        let mut backoff = Backoff::new();
        loop {
            // The effect of an access to a device is unknown.
            let is_other = |of: Attributes| of.flags.device || !is_meant(&of);
            if self.lookup(address).is_some_and(is_other) {
                return Err(Errno::EIO);
            }
            match self.transfer(page, access, is_meant, transfer) {
                Ok(true) => return Ok(()),
                Ok(false) => match self.fault_forced(address, access) {
                    Outcome::Resolved => {}
                    Outcome::OutOfMemory => return Err(Errno::ENOMEM),
                    _ => return Err(Errno::EIO),
                },
                Err(_) if backoff.turns() >= PIN_TRIES => {
                    // A writer is at work there, and waits for nothing that is held here.
                    drop(self.maps.hold_range(Pages::new(page.0, page.0 + 1)));
                    backoff = Backoff::new();
                    continue;
                }
                Err(_) => {}
            }
            backoff.rest(self.machine());
        }
    }

    /// Resolves a fault that the mapping need not allow.
    fn fault_forced(&self, address: u64, access: Access) -> Outcome {
        let start = self.trace_start();
        let mut prepared = FaultState::new(self.memory(), Forced(FaultTrace::new()), true);
        let outcome = self.resolve(address, access, &mut prepared);
        prepared.trail.0.end(self, start, address, outcome);
        outcome
    }

    /// Calls `transfer` with the page, if it is there in the required state. Returns whether it was.
    fn transfer(
        &self,
        page: Page,
        access: Access,
        is_meant: &dyn Fn(&Attributes) -> bool,
        transfer: &mut dyn FnMut(Frame),
    ) -> Result<bool, Retry> {
        let section = self.memory().enter();
        // `Locked` without its lock: held by validation alone, as under the policy `speculative`.
        let Some(hold) = VmaRef::find(&self.maps, page, Mode::Locked, &section)? else {
            return Ok(false);
        };
        if !hold.attributes().is_some_and(is_meant) {
            return Ok(false);
        }
        if !hold.protection().allows(access) && !hold.may_be_forced(access) {
            return Ok(false);
        }
        let walked = self.tables().descend(page, &section);
        let Walk::Leaf { entry, value, link } = walked else {
            return Ok(false);
        };
        if link.is_frozen() {
            self.tables().prioritise_copy(page);
            return Err(Retry::TableChanged);
        }
        if Self::FORMAT.is_claimed(value) {
            return Err(Retry::EntryClaimed);
        }
        if !self.suffices(value, access) {
            return Ok(false);
        }
        let at = PteRef {
            entry,
            value,
            link,
            vma: &hold,
        };
        self.tables().transact_present(&at, || {
            // A fork that had copied the table before the validation cleared the exclusive mark before it
            // thawed the table. Pairs with the release of that store.
            fence(Ordering::Acquire);
            if !self.suffices(value, access) && !mutant(Mutant::SharingNotChecked) {
                return Err(Retry::MappingChanged);
            }
            transfer(Self::FORMAT.frame(value));
            Ok(move |now| match access {
                Access::Write => Self::FORMAT.written(now),
                // The entry's owner counts as a use.
                _ if Self::FORMAT.is_used(now) => now,
                _ => now | Self::FORMAT.accessed,
            })
        })?;
        Ok(true)
    }

    /// Whether the page of an entry can be accessed from outside as it is. For a write it is an object's page
    /// that the program may write, or exclusive to this space and known to be written.
    #[cold]
    pub(crate) fn suffices(&self, value: u64, access: Access) -> bool {
        let format = Self::FORMAT;
        if !format.has_page(value) || format.is_device(value) {
            return false;
        }
        let is_file = self
            .tables()
            .counted(value)
            .is_some_and(|descriptor| descriptor.flags().has(Flags::FILE));
        let may_be_written = match is_file {
            true => format.permits(value, Access::Write),
            false => {
                self.tables().is_exclusive(value)
                    && format.is_soft_dirty(value)
                    && !format.reports_writes(value)
            }
        };
        access != Access::Write || may_be_written
    }
}
