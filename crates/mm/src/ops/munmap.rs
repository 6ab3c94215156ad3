//! `munmap`: unmaps pages, in two phases ([`crate::lock::pending`]).
//!
//! With the range held, placed or brief ([`crate::lock::change`]): check, cut, and mark the slots *zapping*.
//! From then on nothing is mapped there. With nothing held: zap the pages, flush, free the tables, and empty
//! the slots, so that new mappings can be made.

use faultless_paging::Pages;
use faultless_trace::{Counter, Kind};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::notes::Note;
use crate::base::userfault::numbers as userfault;
use crate::lock::change::{AfterEdit, ChangeGuard, Found};
use crate::lock::{Edit, RangeWriteGuard};
use crate::space::AddressSpace;

impl<M: Machine> AddressSpace<M> {
    /// Unmaps the pages of a byte range; holes in it do not matter.
    ///
    /// # Errors
    /// `EINVAL` for a range that is not aligned, empty, or not user memory; `EPERM` when a mapping is sealed;
    /// `ENOMEM` when one could not be split (memory, or the number of mappings). Nothing is unmapped then.
    pub fn munmap(&self, address: u64, length: u64) -> Result<(), Errno> {
        let start = self.trace_start();
        let result = self.unmap_bytes(address, length);
        self.trace_result(Kind::Munmap, start, (address, length), result)
    }

    fn unmap_bytes(&self, address: u64, length: u64) -> Result<(), Errno> {
        let end = self.check_range(address, length)?;
        if length == 0 {
            return Err(Errno::EINVAL);
        }
        let pages = Pages::of_bytes(address..end);
        self.check_pool(pages)?;
        let reserved = self.reservations(pages);
        match self.maps.has_note(Note::USERFAULT) {
            true => self.unmap_reported(pages),
            false => self.unmap(pages),
        }?;
        if let Some(reserved) = reserved {
            reserved.end();
        }
        Ok(())
    }

    /// The same where mappings may be registered with a userfaultfd.
    #[cold]
    #[inline(never)]
    fn unmap_reported(&self, pages: Pages) -> Result<(), Errno> {
        let change = self.begin_change(pages, userfault::EVENT_UNMAP);
        let result = self.unmap(pages);
        self.report_unmap(change, pages, result.is_ok());
        result
    }

    pub(crate) fn unmap(&self, pages: Pages) -> Result<(), Errno> {
        match self.unmap_briefly(pages) {
            Some(result) => result,
            None => self.unmap_locked(self.maps.lock_range(pages), pages),
        }
    }

    /// Unmaps `pages` without waiting for their range, if they are few or one mapping, and no other operation
    /// holds them.
    #[inline(always)]
    fn unmap_briefly(&self, pages: Pages) -> Option<Result<(), Errno>> {
        let (request, has_table) = self.maps.may_unmap_briefly(pages)?;
        let mut after = AfterEdit::nothing(&self.maps);
        let result = {
            let mut edit = request.edit();
            let range = request.enter(&edit, pages)?;
            let mut found = Found::by(&edit, pages, has_table);
            if !found.is_quick() {
                return None;
            }
            self.unmap_found(&mut edit, range, &found, || (), &mut after)
        };
        after.finish();
        Some(result.map(drop))
    }

    /// Unmaps `pages`, of which the caller holds the range.
    #[inline(never)]
    pub(crate) fn unmap_locked(
        &self,
        lock: RangeWriteGuard<'_, M>,
        pages: Pages,
    ) -> Result<(), Errno> {
        self.check_seals(pages)?;
        let meets_zaps = lock.meets_zaps();
        lock.lock_out_readers(pages);
        let mut after = AfterEdit::nothing(&self.maps);
        let result = {
            let mut edit = lock.edit();
            let found = Found::by(&edit, pages, false);
            self.unmap_found(&mut edit, lock, &found, || (), &mut after)
        };
        after.finish();
        if meets_zaps && result == Ok(false) {
            // Other writers have unmapped them, and are not done yet.
            self.maps.await_zaps(pages);
        }
        result.map(drop)
    }

    /// Unmaps what an edit has found, which is not sealed. Returns whether anything was mapped there. If so,
    /// calls `commit` once nothing can fail any more.
    #[inline(always)]
    pub(crate) fn unmap_found<'a, G: ChangeGuard<'a, M>>(
        &'a self,
        edit: &mut Edit<'a, M>,
        guard: G,
        found: &Found,
        commit: impl FnOnce(),
        after: &mut AfterEdit<'a, M>,
    ) -> Result<bool, Errno> {
        if found.is_unmapped() {
            return Ok(false);
        }
        self.maps.cut_found(edit, found)?;
        commit();
        self.maps.detach_found(edit, guard, found, after);
        self.memory().count(Counter::Munmap);
        Ok(true)
    }
}
