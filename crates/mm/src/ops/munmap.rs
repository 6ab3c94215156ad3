//! `munmap`, in two phases ([`crate::lock::pending`]).
//!
//! With the range: check, cut, and let the slots say *zapping*. From then on nothing is mapped
//! there. With nothing held: take the pages away, flush, free the tables, and let the slots be
//! empty, so that something new may be mapped.

use faultless_paging::Pages;
use faultless_trace::{Counter, Kind};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::lock::RangeWriteGuard;
use crate::space::AddressSpace;
use crate::tree::SlotValue;
use crate::tune::SMALL_ZAP;

impl<M: Machine> AddressSpace<M> {
    /// Unmaps the pages of a byte range; holes in it do not matter.
    ///
    /// # Errors
    /// `EINVAL` for a range that is not aligned, empty, or not user memory;
    /// `EPERM` when a mapping is sealed, `ENOMEM` when one could not be split (memory, or the
    /// number of mappings); nothing is unmapped then.
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
        self.unmap(Pages::of_bytes(address..end))
    }

    pub(crate) fn unmap(&self, pages: Pages) -> Result<(), Errno> {
        match self.maps.unmap_at_once(pages) {
            true => Ok(()),
            false => self.unmap_locked(self.maps.lock_range(pages), pages, || ()),
        }
    }

    /// Unmaps `pages`, of which the caller has the range. `commit` is called
    /// while he has, once nothing can fail any more.
    pub(crate) fn unmap_locked(
        &self,
        lock: RangeWriteGuard<'_, M>,
        pages: Pages,
        commit: impl FnOnce(),
    ) -> Result<(), Errno> {
        let had = lock.had();
        self.check_seals(pages)?;
        lock.lock_out_readers(pages);
        let mut edit = lock.edit();
        let near = edit.around(pages);
        if near.is_unmapped(pages) {
            commit();
            drop(edit);
            let is_zapped = lock.meets_zaps();
            drop(lock);
            if is_zapped {
                // By others, who are not done yet.
                self.maps.await_zaps(pages);
            }
            return Ok(());
        }
        self.maps.check_split(&edit, pages, None)?;
        edit.cut_below(&near, pages)?;
        commit();
        match lock.meets_zaps() {
            true => self.maps.detach(&lock, &mut edit, pages),
            false => self.maps.set_range_below(
                &mut edit,
                &near,
                pages,
                SlotValue::zapping(lock.number()),
            ),
        }
        lock.keep_departure(&edit);
        if pages.len() > SMALL_ZAP
            && !lock.meets_zaps()
            && self.tables().is_unpopulated(self.tree(), pages)
        {
            // As large ranges often are: reserved, and never used.
            edit.fill(pages, SlotValue::EMPTY);
            drop(edit);
            drop(lock);
            self.maps.trace_hold(had, pages);
            self.memory().count(Counter::Munmap);
            return Ok(());
        }
        // Under the edit that shows it: who would put something new there waits from now on.
        let zapping = lock.begin_zap(pages);
        drop(edit);
        self.maps.trace_hold(had, pages);
        self.memory().count(Counter::Munmap);
        zapping.finish();
        Ok(())
    }
}
