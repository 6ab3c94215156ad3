//! `mseal`: a sealed mapping stays as it is until its address space ends.
//!
//! A seal is an attribute. A writer that would unmap, move, or change a protection checks for it under the
//! range lock, before anything is changed: `munmap`, `mmap` over, `mremap`, `brk`, `mprotect`. Advice that
//! discards pages checks for it where the mapping cannot be written. Almost every address space has no seals; a
//! flag of the space says so, and saves the search.

use faultless_paging::{PAGE_SIZE, Pages};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::notes::Note;
use crate::space::AddressSpace;
use crate::tree::mapping::Flags;

impl<M: Machine> AddressSpace<M> {
    /// Seals the mappings of a byte range. There are no flags yet.
    ///
    /// # Errors
    /// `EINVAL` for flags, and for a range that is not aligned or wraps. `ENOMEM` if not all of it is mapped:
    /// nothing is sealed. `ENOMEM` when memory is short: what came before is sealed.
    pub fn mseal(&self, address: u64, length: u64, flags: u64) -> Result<(), Errno> {
        if flags != 0 || !address.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }
        let length = length
            .checked_next_multiple_of(PAGE_SIZE)
            .ok_or(Errno::EINVAL)?;
        let end = address.checked_add(length).ok_or(Errno::EINVAL)?;
        let pages = Pages::of_bytes(address..end);
        if pages.is_empty() {
            return Ok(());
        }
        let lock = self.maps.lock_range(pages);
        if !self.is_mapped(pages) {
            return Err(Errno::ENOMEM);
        }
        self.maps.note(Note::SEALED);
        let seal = |from: &crate::Attributes| {
            Ok(Flags {
                sealed: true,
                ..from.flags
            })
        };
        self.relabel(&lock, pages, Errno::ENOMEM, seal).map(drop)
    }

    /// Whether there is no hole in `pages`. The caller holds the range.
    fn is_mapped(&self, pages: Pages) -> bool {
        let mut at = pages.start;
        while at < pages.end {
            match self.maps.run_in(at, pages.end) {
                Some(run) if run.pages.start == at && !run.word.is_zapping() => at = run.pages.end,
                _ => return false,
            }
        }
        true
    }

    /// Checks that no mapping of `pages` is sealed, for a writer that would change them.
    ///
    /// # Errors
    /// `EPERM`.
    pub(crate) fn check_seals(&self, pages: Pages) -> Result<(), Errno> {
        match self.maps.has_note(Note::SEALED) {
            true => self.check_seals_of(pages),
            false => Ok(()),
        }
    }

    #[cold]
    fn check_seals_of(&self, pages: Pages) -> Result<(), Errno> {
        let mut at = pages.start;
        while let Some(run) = self.maps.run_in(at, pages.end) {
            // SAFETY: the range keeps mappings from being retired.
            let mapping = unsafe { run.word.mapping() };
            if mapping.is_some_and(|mapping| mapping.attributes().flags.sealed) {
                return Err(Errno::EPERM);
            }
            at = run.pages.end;
        }
        Ok(())
    }
}
