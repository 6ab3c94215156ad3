//! Populates mappings: faults in every page before the program touches it.
//!
//! These are ordinary faults, with no lock held, so that other faults and operations continue. As on Linux:
//!
//! * A private mapping that may be written is faulted for writing, which copies shared pages. Any other mapping
//!   is faulted for reading.
//! * A mapping that allows no access is an error.
//! * A mapping that is locked on fault, and a device, are left alone.
//! * Pages that are already there cause no fault.
//!
//! The CPU is yielded in between, and a killed caller stops.

use faultless_paging::{Access, Page, Pages};
use faultless_sync::cond_resched;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::fault::{Outcome, SegvCode};
use crate::space::AddressSpace;
use crate::tree::mapping::{Attributes, Locked};

/// Pages between two checks for a pending reschedule.
const POLL_INTERVAL: u64 = 64;

/// Parts that are kept apart. The pages between further parts are populated with them, which allocates pages
/// early and changes no contents.
const PARTS: usize = 8;

/// Parts of a range that are to be populated, in order: collected under a lock, populated without it.
pub(crate) struct Parts {
    parts: [Pages; PARTS],
    count: usize,
}

impl Parts {
    /// No parts.
    pub const NONE: Self = Self {
        parts: [Pages { start: 0, end: 0 }; PARTS],
        count: 0,
    };

    /// Adds pages that are behind all those added before.
    pub fn add(&mut self, pages: Pages) {
        if let Some(last) = self.parts[..self.count].last_mut()
            && (last.end == pages.start || self.count == PARTS)
        {
            last.end = pages.end;
            return;
        }
        self.parts[self.count] = pages;
        self.count += 1;
    }

    /// Returns all that were added.
    pub fn iter(&self) -> impl Iterator<Item = Pages> {
        self.parts[..self.count].iter().copied()
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Populates what is mapped of `pages`, each mapping as far as possible.
    pub(crate) fn populate_ignoring(&self, pages: Pages) {
        let _ = self.populate_each(pages, |_| true, |_| Ok(()));
    }

    /// The same, for locked mappings only.
    pub(crate) fn populate_locked(&self, pages: Pages) {
        let is_locked = |attributes: &Attributes| attributes.flags.locked != Locked::No;
        let _ = self.populate_each(pages, is_locked, |_| Ok(()));
    }

    /// Populates what is mapped of `pages`, up to the first page for which that fails.
    ///
    /// # Errors
    /// `EFAULT` where no access is allowed, `ENOMEM` when memory is short.
    pub(crate) fn populate_mapped(&self, pages: Pages) -> Result<(), Errno> {
        self.populate_each(pages, |_| true, Err)
    }

    fn populate_each(
        &self,
        pages: Pages,
        applies: impl Fn(&Attributes) -> bool,
        on_error: impl Fn(Errno) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let mut at = pages.start;
        while let Some((part, attributes)) = self.maps.mapped_in(at, pages.end) {
            at = part.end;
            if !applies(&attributes) {
                continue;
            }
            match self.populate_part(part, &attributes) {
                // A page where the mapping may have changed, or the end.
                Ok(stop) => at = stop,
                Err(error) => on_error(error)?,
            }
        }
        Ok(())
    }

    /// Yields the CPU now and then, if a reschedule is pending.
    ///
    /// # Errors
    /// `EINTR`: the caller was killed.
    pub(crate) fn populates_on(&self, page: u64) -> Result<(), Errno> {
        if page.is_multiple_of(POLL_INTERVAL) {
            cond_resched(self.machine());
            if self.machine().fatal_signal_pending() {
                return Err(Errno::EINTR);
            }
        }
        Ok(())
    }

    /// Populates pages that had these attributes. Returns the page from which on they may not have them any
    /// more, or the end.
    fn populate_part(&self, pages: Pages, attributes: &Attributes) -> Result<u64, Errno> {
        if attributes.flags.locked == Locked::OnFault || attributes.flags.device {
            return Ok(pages.end);
        }
        let access = match attributes.protection {
            protection if protection.is_none() => return Err(Errno::EFAULT),
            protection if protection.write && !attributes.flags.shared => Access::Write,
            protection if protection.is_execute_only() && !M::EXECUTE_ONLY_BY_KEY => {
                Access::Execute
            }
            _ => Access::Read,
        };
        let mut page = pages.start;
        while page < pages.end {
            self.machine().poll();
            self.populates_on(page)?;
            let address = Page(page).address();
            if let Some(end) = self.permitted(Page(page), access) {
                page = end;
                continue;
            }
            match self.fault_by_kernel(address, access) {
                Outcome::Resolved => page += 1,
                Outcome::Segv(_) if self.is_guarded(Page(page)) => return Err(Errno::EFAULT),
                Outcome::Segv(SegvCode::KeyErr) => return Err(Errno::EFAULT),
                Outcome::Segv(_) => return Ok(page),
                Outcome::Interrupted => return Err(Errno::EINTR),
                Outcome::Bus | Outcome::Poisoned => return Err(Errno::EFAULT),
                Outcome::OutOfMemory => return Err(Errno::ENOMEM),
            }
        }
        Ok(pages.end)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::{PARTS, Pages, Parts};

    #[test]
    fn parts_are_told_apart_as_long_as_there_is_room() {
        let mut parts = Parts::NONE;
        assert_eq!(parts.iter().count(), 0);
        parts.add(Pages::new(1, 2));
        parts.add(Pages::new(2, 4));
        assert!(parts.iter().eq([Pages::new(1, 4)]));
        for number in 1..PARTS as u64 + 3 {
            parts.add(Pages::new(10 * number, 10 * number + 1));
        }
        assert_eq!(parts.iter().count(), PARTS);
        let last = [Pages::new(60, 61), Pages::new(70, 101)];
        assert!(parts.iter().skip(PARTS - 2).eq(last));
    }
}
