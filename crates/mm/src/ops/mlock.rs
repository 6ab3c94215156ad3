//! `mlock`, `munlock`, `mlockall`, `munlockall`: locking pages in memory.
//!
//! A lock is an attribute of a mapping, which splits and merges mappings like any other. Once it is set, the
//! pages are populated with no lock of the core held ([`crate::ops::populate`]). Pages that cannot be populated
//! stay locked all the same. A child of `fork` has no locks, and does not inherit those that `mlockall` has
//! asked for in the future.
//!
//! Nothing evicts pages yet. Therefore only advice that discards pages, and `msync` that invalidates, check for
//! locks.

use faultless_paging::{PAGE_SIZE, Pages};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::lock::Edit;
use crate::lock::RangeWriteGuard;
use crate::space::AddressSpace;
use crate::tree::mapping::{Flags, Huge, Locked};
use crate::tree::{PAGES, Run, SlotValue};

/// `MLOCK_*` flags.
#[allow(missing_docs)]
pub mod lock_flags {
    pub const ONFAULT: u32 = 1;
}

/// `MCL_*` flags.
#[allow(missing_docs)]
pub mod lock_all_flags {
    pub const CURRENT: u32 = 1;
    pub const FUTURE: u32 = 2;
    pub const ONFAULT: u32 = 4;
}
use lock_all_flags::{CURRENT, FUTURE};

/// Returns the start of the first page of a byte range, and the length of all of its pages, which wraps as on
/// Linux.
fn whole_pages(address: u64, length: u64) -> (u64, u64) {
    let length = length.wrapping_add(address % PAGE_SIZE);
    (
        address - address % PAGE_SIZE,
        length.checked_next_multiple_of(PAGE_SIZE).unwrap_or(0),
    )
}

/// Returns the pages of a range of whole pages, as far as there are any.
fn touched(start: u64, length: u64) -> Pages {
    let end = start.saturating_add(length) / PAGE_SIZE;
    Pages::new((start / PAGE_SIZE).min(PAGES), end.min(PAGES))
}

/// Returns the flags with another lock. A droppable mapping is never locked, without an error, but is populated
/// all the same. A device is neither.
fn relocked(flags: Flags, locked: Locked) -> Flags {
    match flags.droppable || flags.device || flags.huge == Huge::Pooled {
        true => flags,
        false => Flags { locked, ..flags },
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Locks all pages that a byte range touches (`mlock2`; `mlock` if there are no flags).
    ///
    /// # Errors
    /// As Linux's `mlock2`: `EINVAL`; `EPERM` if nothing may be locked; `ENOMEM` beyond the limit, at a hole
    /// (what comes before it is locked), and for a mapping that allows no access (it is locked); `EAGAIN` when
    /// memory is short.
    pub fn mlock(&self, address: u64, length: u64, flags: u32) -> Result<(), Errno> {
        let locked = match flags {
            0 => Locked::Yes,
            lock_flags::ONFAULT => Locked::OnFault,
            _ => return Err(Errno::EINVAL),
        };
        let (start, length) = whole_pages(address, length);
        self.maps.note_locked();
        let pages = {
            let lock = self.maps.lock_range(touched(start, length));
            // As on Linux, for the whole range together. Each run is checked again under the edit that locks
            // it, because other threads may lock meanwhile.
            self.check_limit(&lock, start, length)?;
            self.lock_pages(&lock, start, length, locked)?
        };
        self.populate_mapped(pages).map_err(|error| match error {
            Errno::ENOMEM => Errno::EAGAIN,
            _ => Errno::ENOMEM,
        })
    }

    /// Unlocks all pages that a byte range touches.
    ///
    /// # Errors
    /// As Linux's `munlock`: `EINVAL`; `ENOMEM` at a hole (what comes before it is unlocked), and when a
    /// mapping could not be split.
    pub fn munlock(&self, address: u64, length: u64) -> Result<(), Errno> {
        let (start, length) = whole_pages(address, length);
        let lock = self.maps.lock_range(touched(start, length));
        self.lock_pages(&lock, start, length, Locked::No)?;
        Ok(())
    }

    /// Locks what is mapped, what will be mapped, or both.
    ///
    /// # Errors
    /// As Linux's `mlockall`: `EINVAL`; `EPERM` if nothing may be locked; `ENOMEM` beyond the limit.
    pub fn mlockall(&self, flags: u32) -> Result<(), Errno> {
        let has = |flag| flags & flag != 0;
        let known = CURRENT | FUTURE | lock_all_flags::ONFAULT;
        if flags & !known != 0 || !has(CURRENT | FUTURE) {
            return Err(Errno::EINVAL);
        }
        let locked = match has(lock_all_flags::ONFAULT) {
            true => Locked::OnFault,
            false => Locked::Yes,
        };
        let all = Pages::of_bytes(0..self.layout().end);
        self.maps.note_locked();
        {
            let lock = self.maps.lock_everything_beside_replacing();
            let edit = lock.edit();
            let room = self.maps.room(&edit);
            if !room.may_lock() {
                return Err(Errno::EPERM);
            }
            if has(CURRENT) && !room.may_lock_all() {
                return Err(Errno::ENOMEM);
            }
            self.set_lock_future(if has(FUTURE) { locked } else { Locked::No });
            drop(edit);
            if has(CURRENT) {
                self.lock_all(&lock, locked);
            }
        }
        if has(CURRENT) {
            self.populate_ignoring(all);
        }
        Ok(())
    }

    /// Unlocks everything, and locks no future mappings.
    pub fn munlockall(&self) {
        let lock = self.maps.lock_everything_beside_replacing();
        self.set_lock_future(Locked::No);
        // Usually nothing is locked, among any number of mappings.
        if self.totals().locked != 0 {
            self.lock_all(&lock, Locked::No);
        }
    }

    /// Checks whether so much more may be locked. What is locked already does not count twice.
    fn check_limit(
        &self,
        lock: &RangeWriteGuard<'_, M>,
        start: u64,
        length: u64,
    ) -> Result<(), Errno> {
        let edit = lock.edit();
        let room = self.maps.room(&edit);
        if !room.may_lock() {
            return Err(Errno::EPERM);
        }
        let more = length / PAGE_SIZE;
        if room.may_lock_pages(more) {
            return Ok(());
        }
        let pages = touched(start, length);
        let change = self.maps.tally(&edit, pages, None);
        match room.after(change).may_lock_pages(more) {
            true => Ok(()),
            false => Err(Errno::ENOMEM),
        }
    }

    /// Changes the locks of a range up to its first hole. Returns the range's pages.
    fn lock_pages(
        &self,
        lock: &RangeWriteGuard<'_, M>,
        start: u64,
        length: u64,
        locked: Locked,
    ) -> Result<Pages, Errno> {
        let end = start.checked_add(length).ok_or(Errno::EINVAL)?;
        let pages = Pages::of_bytes(start..end);
        let mut at = pages.start;
        while at < pages.end {
            let run = self.maps.run_in(at, pages.end);
            let run = run.filter(|run| run.pages.start == at && !run.word.is_zapping());
            let run = run.ok_or(Errno::ENOMEM)?;
            let may_be = |edit: &Edit<'_, M>| self.may_lock_run(edit, run, locked);
            self.change_run_if(lock, run, |flags| relocked(flags, locked), may_be)?;
            at = run.pages.end;
        }
        Ok(pages)
    }

    /// Whether a run may be locked, under the edit that would lock it.
    fn may_lock_run(&self, edit: &Edit<'_, M>, run: Run, locked: Locked) -> bool {
        let more = match self.is_locked(run.word) {
            true => 0,
            false => run.pages.len(),
        };
        locked == Locked::No || more == 0 || self.maps.room(edit).may_lock_pages(more)
    }

    /// Changes all locks that can be changed.
    fn lock_all(&self, lock: &RangeWriteGuard<'_, M>, locked: Locked) {
        let mut at = 0;
        while let Some(run) = self.maps.run_in(at, PAGES) {
            at = run.pages.end;
            // Linux, too, ignores mappings that could not be split or merged.
            let _ = self.change_run(lock, run, |flags| relocked(flags, locked));
        }
    }

    /// Returns how new mappings are locked from now on. Exact for a caller that holds any range.
    pub(crate) fn lock_future(&self) -> Locked {
        match self.lock_future.get() {
            0 => Locked::No,
            1 => Locked::Yes,
            _ => Locked::OnFault,
        }
    }

    fn set_lock_future(&self, locked: Locked) {
        self.lock_future.set(locked as u64);
    }

    /// Returns the lock of a new mapping, if `asked` for (`MAP_LOCKED`) or not.
    pub(crate) fn locked_at_birth(&self, asked: bool) -> Locked {
        match self.lock_future() {
            Locked::No if asked => Locked::Yes,
            locked => locked,
        }
    }

    /// Whether the mapping of a slot value is locked and private.
    pub(crate) fn is_locked_private(&self, word: SlotValue) -> bool {
        // SAFETY: the range keeps mappings from being retired.
        let mapping = unsafe { word.mapping() };
        let flags = mapping.map(|mapping| mapping.attributes().flags);
        flags.is_some_and(|flags| flags.locked != Locked::No && !flags.shared)
    }

    /// Whether the mapping of a slot value is locked.
    pub(crate) fn is_locked(&self, word: SlotValue) -> bool {
        // SAFETY: the range keeps mappings from being retired.
        let mapping = unsafe { word.mapping() };
        mapping.is_some_and(|mapping| mapping.attributes().flags.locked != Locked::No)
    }
}
