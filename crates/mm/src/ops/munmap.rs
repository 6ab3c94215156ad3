//! `munmap`, in two phases.
//!
//! With the write hold: cut, and let the slots say *zapping*. From then on no
//! fault finds a mapping there. With the zap hold: take the pages away, flush
//! once, free the tables, and let the slots be empty, so that something new may
//! be mapped.

use faultless_paging::Pages;
use faultless_trace::{Counter, Kind};

use crate::errno::Errno;
use crate::machine::Machine;
use crate::range::RangeLock;
use crate::space::AddressSpace;
use crate::tree::Word;

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
        self.unmap_locked(self.lock_range(pages), pages, || ())
    }

    /// Unmaps `pages` under a write hold that covers them. `commit` is called
    /// under it, once nothing can fail any more.
    pub(crate) fn unmap_locked(
        &self,
        lock: RangeLock<'_, M>,
        pages: Pages,
        commit: impl FnOnce(),
    ) -> Result<(), Errno> {
        if self.is_vacant(pages) {
            commit();
            return Ok(());
        }
        self.check_seals(pages)?;
        lock.lock_out_readers(pages);
        let mut edit = lock.edit();
        self.check_split(&edit, pages, None)?;
        edit.cut(pages)?;
        commit();
        self.assign(&mut edit, pages, Word::ZAPPING);
        drop(edit);
        lock.settle();
        self.memory.count(Counter::Munmap);
        let zap_lock = lock.downgrade();

        self.zap(pages, true);
        self.tree.edit(self.memory).fill(pages, Word::EMPTY);
        drop(zap_lock);
        Ok(())
    }
}
