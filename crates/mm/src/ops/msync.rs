//! `msync`: checks a range. A store to a shared mapping is in the memory object immediately, so nothing is
//! written back: what is left is to check that the range is mapped, and not locked if it is to be invalidated.

use faultless_paging::{PAGE_SIZE, Pages};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::ops::advice;
use crate::space::AddressSpace;

/// `MS_*` flags.
const ASYNC: u32 = 1;
const INVALIDATE: u32 = 2;
const SYNC: u32 = 4;

impl<M: Machine> AddressSpace<M> {
    /// Makes sure that what was written to a byte range is in its memory objects.
    ///
    /// # Errors
    /// As Linux's `msync`: `EINVAL`; `EBUSY` where a range to be invalidated is locked; `ENOMEM` where
    /// something is not mapped.
    pub fn msync(&self, address: u64, length: u64, flags: u32) -> Result<(), Errno> {
        let both = ASYNC | SYNC;
        if flags & !(both | INVALIDATE) != 0
            || flags & both == both
            || !address.is_multiple_of(PAGE_SIZE)
        {
            return Err(Errno::EINVAL);
        }
        // Linux lets the length wrap to 0.
        let length = length.checked_next_multiple_of(PAGE_SIZE).unwrap_or(0);
        let end = address.checked_add(length).ok_or(Errno::ENOMEM)?;
        if length == 0 {
            return Ok(());
        }
        let pages = Pages::of_bytes(address..end);
        self.over_mapped(pages, advice::NORMAL, |part| {
            let run = self.maps.run_in(part.start, part.end);
            match flags & INVALIDATE != 0 && run.is_some_and(|run| self.is_locked(run.word)) {
                true => Err(Errno::EBUSY),
                false => Ok(()),
            }
        })
    }
}
