//! Populating what is mapped: every page is faulted in before anybody touches it.
//!
//! These are faults like all others, with no lock held, so that faults and operations beside
//! them go on. As on Linux a mapping that may be written is written (which copies a page that is
//! shared), any other is read, one without any access is an error, and one that is to be locked
//! as it is touched is left alone, and so is a device. Pages that are there already are no faults.
//! Others run in between, and who is killed meanwhile stops.

use faultless_paging::{Access, Page, Pages};
use faultless_sync::cond_resched;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::fault::{Outcome, SegvCode};
use crate::space::AddressSpace;
use crate::tree::mapping::{Attributes, Locked};

/// Pages between two looks whether somebody else should run.
const POLL_INTERVAL: u64 = 64;

/// Parts that are told apart. What is between further ones is populated with them, which takes
/// pages early and changes nothing that they hold.
const PARTS: usize = 8;

/// Parts of a range that are to be populated, in order: told under a lock, done without it.
pub(crate) struct Parts {
    parts: [Pages; PARTS],
    count: usize,
}

impl Parts {
    /// Nothing.
    pub const NONE: Self = Self {
        parts: [Pages { start: 0, end: 0 }; PARTS],
        count: 0,
    };

    /// Pages behind all those that were added before.
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

    /// All that were added.
    pub fn iter(&self) -> impl Iterator<Item = Pages> {
        self.parts[..self.count].iter().copied()
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Populates what is mapped of `pages`, each mapping as far as it can be.
    pub(crate) fn populate_ignoring(&self, pages: Pages) {
        let _ = self.populate_each(pages, |_| true, |_| Ok(()));
    }

    /// The same, of mappings that are locked.
    pub(crate) fn populate_locked(&self, pages: Pages) {
        let is_locked = |attributes: &Attributes| attributes.flags.locked != Locked::No;
        let _ = self.populate_each(pages, is_locked, |_| Ok(()));
    }

    /// Populates what is mapped of `pages`, up to the first page that cannot be.
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
                // A page from which on something else may be true now, or the end.
                Ok(stop) => at = stop,
                Err(error) => on_error(error)?,
            }
        }
        Ok(())
    }

    /// Lets others run, now and then.
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

    /// Populates pages of which this is true. The page from which on it no longer is.
    fn populate_part(&self, pages: Pages, attributes: &Attributes) -> Result<u64, Errno> {
        if attributes.flags.locked == Locked::OnFault || attributes.flags.device {
            return Ok(pages.end);
        }
        let access = match attributes.protection {
            protection if protection.is_none() => return Err(Errno::EFAULT),
            protection if protection.write && !attributes.flags.shared => Access::Write,
            _ => Access::Read,
        };
        for page in pages.start..pages.end {
            self.machine().poll();
            self.populates_on(page)?;
            let address = Page(page).address();
            let entry = self.entry(address);
            if entry.is_some_and(|entry| Self::FORMAT.permits(entry, access)) {
                continue;
            }
            match self.fault(address, access) {
                Outcome::Resolved => {}
                Outcome::Segv(_) if self.is_guarded(Page(page)) => return Err(Errno::EFAULT),
                Outcome::Segv(SegvCode::KeyErr) => return Err(Errno::EFAULT),
                Outcome::Segv(_) => return Ok(page),
                Outcome::Bus => return Err(Errno::EFAULT),
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
