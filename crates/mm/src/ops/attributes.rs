//! Changes attributes that do not affect entries: advice, locks.
//!
//! A mapping's slots change from live to live. A fault in between finds another slot value when it validates,
//! and tries again.

use faultless_paging::Pages;
use faultless_sync::Backoff;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::lock::Edit;
use crate::lock::RangeWriteGuard;
use crate::space::AddressSpace;
use crate::tree::Run;
use crate::tree::mapping::{Attributes, Flags, Locked};

impl<M: Machine> AddressSpace<M> {
    /// Changes the flags of a run, or of part of one.
    ///
    /// # Errors
    /// `ENOMEM`: memory, or too many mappings. Nothing has changed.
    pub(crate) fn change_run(
        &self,
        lock: &RangeWriteGuard<'_, M>,
        run: Run,
        change: impl FnOnce(Flags) -> Flags,
    ) -> Result<(), Errno> {
        self.change_run_if(lock, run, change, |_| true)
    }

    /// The same, if `may_be` allows it under the edit that makes the change.
    ///
    /// # Errors
    /// Also `ENOMEM` if `may_be` does not allow it.
    pub(crate) fn change_run_if(
        &self,
        lock: &RangeWriteGuard<'_, M>,
        run: Run,
        change: impl FnOnce(Flags) -> Flags,
        may_be: impl FnOnce(&Edit<'_, M>) -> bool,
    ) -> Result<(), Errno> {
        // SAFETY: the range keeps mappings from being retired.
        let Some(mapping) = (unsafe { run.word.mapping() }) else {
            return Err(Errno::ENOMEM);
        };
        let from = *mapping.attributes();
        let to = Attributes {
            flags: change(from.flags),
            ..from
        };
        self.set_run(lock, run, to, may_be)
    }

    /// Gives a run, or part of one, other attributes that affect no entry.
    ///
    /// # Errors
    /// As [`AddressSpace::change_run_if`].
    pub(crate) fn set_run(
        &self,
        lock: &RangeWriteGuard<'_, M>,
        run: Run,
        to: Attributes,
        may_be: impl FnOnce(&Edit<'_, M>) -> bool,
    ) -> Result<(), Errno> {
        // SAFETY: the range keeps mappings from being retired.
        let Some(mapping) = (unsafe { run.word.mapping() }) else {
            return Err(Errno::ENOMEM);
        };
        let from = *mapping.attributes();
        if to == from {
            return Ok(());
        }
        let mut edit = lock.edit();
        if !may_be(&edit) {
            return Err(Errno::ENOMEM);
        }
        self.maps.check_split(&edit, run.pages, Some(&to))?;
        edit.cut(run.pages)?;
        let word = self.word_for(&edit, run.pages, to)?;
        // Read under the edit: a replacement may have finished since the run was read.
        let is_replacing = self.tree().find(run.pages.start).word.is_replacing();
        let word = match is_replacing {
            true => word.replacing(),
            false => word,
        };
        self.maps.set_range(&mut edit, run.pages, word);
        drop(edit);
        let is_sealed = to.flags.sealed && !from.flags.sealed;
        let is_locked = to.flags.locked != Locked::No && from.flags.locked == Locked::No;
        if (is_sealed || is_locked) && !word.is_replacing() {
            // A discard may have claimed entries while that was still allowed: wait for it.
            lock.validation_fence();
            self.await_claims(run.pages);
        }
        Ok(())
    }

    /// Waits for the claims of entries of `pages` that exist when this is called.
    pub(crate) fn await_claims(&self, pages: Pages) {
        let _section = self.memory().enter();
        self.tables().for_each_entry(pages, &mut |entry, _| {
            let mut backoff = Backoff::new();
            while Self::FORMAT.is_claimed(entry.load()) {
                backoff.turn(self.machine());
            }
        });
    }
}
