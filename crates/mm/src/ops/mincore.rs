//! `mincore`: which pages are in memory, including pages of a memory object that this space has not mapped yet.
//!
//! The tables are read inside read sections, concurrently with writers and without a lock. The answer may be
//! out of date when the caller sees it, as on Linux.

use faultless_paging::{PAGE_SIZE, Pages};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::object::Lookup;
use crate::space::AddressSpace;

/// Pages read in one section.
const BATCH: u64 = 256;

impl<M: Machine> AddressSpace<M> {
    /// Reports whether each page of a byte range is in memory. `say` gets the index, within the range, of the
    /// first of some pages, and a byte for each, 1 or 0.
    ///
    /// # Errors
    /// `EINVAL` for an address that is not aligned; `ENOMEM` for a range that is not all user memory, and at a
    /// page that is not mapped, after all pages before it were reported; any error of `say`.
    pub fn mincore(
        &self,
        address: u64,
        length: u64,
        mut say: impl FnMut(u64, &[u8]) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        if !address.is_multiple_of(PAGE_SIZE) {
            return Err(Errno::EINVAL);
        }
        if length > self.layout().end || address > self.layout().end - length {
            return Err(Errno::ENOMEM);
        }
        let pages = Pages::of_bytes(address..address + length.next_multiple_of(PAGE_SIZE));
        let mut at = pages.start;
        while at < pages.end {
            let mut there = [0; BATCH as usize];
            let count = self.look(at, pages.end.min(at + BATCH), &mut there)?;
            say(at - pages.start, &there[..count])?;
            at += count as u64;
        }
        Ok(())
    }

    /// Looks at pages from `page` on, as far as one mapping reaches. Returns how many.
    fn look(&self, page: u64, limit: u64, there: &mut [u8]) -> Result<usize, Errno> {
        let _section = self.memory().enter();
        let run = self.tree().next_until(page, limit).ok_or(Errno::ENOMEM)?;
        // SAFETY: read in this section.
        let mapping = unsafe { run.word.mapping() };
        let Some(mapping) = mapping.filter(|_| run.pages.start == page) else {
            return Err(Errno::ENOMEM);
        };
        if let Some(backed) = &mapping.attributes().backed {
            for (at, there) in (page..run.pages.end).zip(&mut *there) {
                let seen = backed.object().find(backed.index(at));
                *there = u8::from(matches!(seen, Lookup::Page(_) | Lookup::Moving));
            }
        }
        self.tables().for_each_page(run.pages, &mut |value, at| {
            // A claim keeps the frame that it replaces. A device's page is never in memory, as on Linux.
            let has_frame = Self::FORMAT.frame(value).0 != 0
                && !Self::FORMAT.is_device(value)
                && (Self::FORMAT.is_claimed(value) || Self::FORMAT.has_page(value));
            let there = &mut there[(at - page) as usize];
            *there |= u8::from(has_frame);
            // A private copy that was swapped out. The object's page is not what an access would find.
            if self.tables().swap_of(value).is_some() {
                *there = 0;
            }
        });
        Ok(run.pages.len() as usize)
    }
}
