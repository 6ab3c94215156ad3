//! Changes attributes that do not affect entries: advice, locks.
//!
//! A mapping's slots change from live to live. A fault in between finds another slot value when it validates,
//! and tries again.

use faultless_paging::{Page, Pages, Walk};
use faultless_sync::Backoff;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::lock::Edit;
use crate::lock::RangeWriteGuard;
use crate::space::AddressSpace;
use crate::table::huge::huge_span;
use crate::table::pages::Span;
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
        self.split_at_ends(lock, run.pages);
        let is_sealed = to.flags.sealed && !from.flags.sealed;
        let is_locked = to.flags.locked != Locked::No && from.flags.locked == Locked::No;
        if (is_sealed || is_locked) && !word.is_replacing() {
            // A discard may have claimed entries while that was still allowed: wait for it.
            lock.validation_fence();
            self.await_claims(run.pages);
        }
        Ok(())
    }

    /// Splits the huge pages across the ends of `pages`, where another mapping begins now. Nothing depends on it: as on
    /// Linux, a huge page is one of a single mapping.
    fn split_at_ends(&self, lock: &RangeWriteGuard<'_, M>, pages: Pages) {
        let is_cut = |page: &u64| !page.is_multiple_of(huge_span(0).len());
        for page in [pages.start, pages.end].into_iter().filter(is_cut) {
            lock.validation_fence();
            let mut backoff = Backoff::new();
            let section = self.memory().enter();
            while let Walk::Busy = self.tables().descend(Page(page), &section) {
                backoff.turn(self.machine());
            }
        }
    }

    /// Waits for the claims of entries of `pages` that exist when this is called.
    pub(crate) fn await_claims(&self, pages: Pages) {
        let _section = self.memory().enter();
        self.tables().visit_spans(pages, &mut |span| {
            // The walk itself waits for the claim of a huge page.
            if let Span::Table(table, part) = span {
                self.tables().for_each_in(table, part, &mut |entry, _| {
                    self.tables().settled(entry);
                });
            }
            true
        });
    }
}
