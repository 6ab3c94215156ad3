//! What every writer goes through: the right to change the mappings of a range.
//!
//! For now all ranges of an address space share one reader-writer lock, so that
//! writers take turns; only this file knows. A *write hold* may change
//! mappings. Downgraded to a *zap hold* it may take pages away from what it has
//! detached, beside faults of the `classic` policy and other readers.
//!
//! Lock order: range lock, then the VMA locks of the `vma-lock` policy, then
//! the tree's edit lock, then allocators. Nothing is waited for under the edit
//! lock, and no user memory is touched under any of them.
//!
//! Writers do the same under every policy; that faults of `classic` and
//! `vma-lock` hold something makes their validation always succeed.

use faultless_frames::NoMemory;
use faultless_paging::Pages;
use faultless_sync::atomic::{Ordering, fence};
use faultless_sync::{Flaw, ReadGuard, WriteGuard, flawed};

use core::ptr::NonNull;

use crate::account::Tally;
use crate::machine::Machine;
use crate::mapping::Mapping;
use crate::memory::Retired;
use crate::policy::Policy;
use crate::space::AddressSpace;
use crate::tree::{Edit, Neighbours, Run, Word};

/// The right to change the mappings of a range.
pub(crate) struct RangeLock<'a, M: Machine> {
    space: &'a AddressSpace<M>,
    guard: Option<WriteGuard<'a, M>>,
}

/// The right to take pages away from a detached range, or from live mappings
/// that nobody changes meanwhile.
pub(crate) struct ZapLock<'a, M: Machine> {
    _guard: ReadGuard<'a, M>,
}

impl<M: Machine> AddressSpace<M> {
    /// Waits until the caller alone may change mappings in `pages`.
    pub(crate) fn lock_range(&self, _pages: Pages) -> RangeLock<'_, M> {
        RangeLock {
            space: self,
            guard: Some(self.lock.write(self.machine())),
        }
    }

    /// Keeps mappings in `pages` as they are.
    pub(crate) fn hold_range(&self, _pages: Pages) -> ZapLock<'_, M> {
        ZapLock {
            _guard: self.lock.read(self.machine()),
        }
    }
}

impl<'a, M: Machine> RangeLock<'a, M> {
    /// Lets no fault hold a mapping of `pages` (policy `vma-lock`); to be
    /// called before they change. Ends with the write hold.
    pub(crate) fn lock_out_readers(&self, pages: Pages) {
        if self.space.policy() != Policy::VmaLock {
            return;
        }
        let hold = self.space.write_hold.load(Ordering::Relaxed);
        let mut at = pages.start;
        while let Some(run) = self.space.run_in(at, pages.end) {
            // SAFETY: the write hold keeps mappings from being retired.
            if let Some(mapping) = unsafe { run.word.mapping() } {
                mapping
                    .vma_lock()
                    .lock_out_readers(hold, self.space.machine());
            }
            at = run.pages.end;
        }
    }

    /// Makes the ends of `pages` fall between slots, and begins an edit.
    ///
    /// # Errors
    /// [`NoMemory`]; nothing has changed.
    pub(crate) fn cut(&self, pages: Pages) -> Result<Edit<'a, M>, NoMemory> {
        let edit = self.edit();
        edit.cut(pages)?;
        Ok(edit)
    }

    pub(crate) fn edit(&self) -> Edit<'a, M> {
        self.space.tree.edit(self.space.memory)
    }

    /// Rule R1: after the stores that change what faults validate, before the
    /// walk that looks for their claims. Partner: the barrier of a claim
    /// ([`faultless_paging::Entry::claim`]), which precedes the validation.
    pub(crate) fn settle(&self) {
        if !flawed(Flaw::SettleWithoutFence) {
            fence(Ordering::SeqCst);
        }
    }

    /// Gives up the right to change mappings and keeps the right to zap.
    pub(crate) fn downgrade(mut self) -> Option<ZapLock<'a, M>> {
        self.end_write_hold();
        self.guard.take().map(|guard| ZapLock {
            _guard: guard.downgrade(),
        })
    }

    fn end_write_hold(&self) {
        // Under every policy: it may have changed since the hold began.
        if self.guard.is_some() {
            // Release: a fault that finds its mapping unlocked sees what was changed
            // (acquire in `Mapping::try_read`).
            let hold = self.space.write_hold.load(Ordering::Relaxed);
            self.space
                .write_hold
                .store(hold.wrapping_add(1), Ordering::Release);
        }
    }
}

impl<M: Machine> Drop for RangeLock<'_, M> {
    fn drop(&mut self) {
        self.end_write_hold();
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Points all of `pages` to `word`, and lets go of what they pointed to. Every change
    /// of what is mapped comes here, but for stacks that grow, and is counted.
    pub(crate) fn assign(&self, edit: &mut Edit<'_, M>, pages: Pages, word: Word) {
        // SAFETY: the caller has the write hold, so nothing is retired under it.
        if let Some(mapping) = unsafe { word.mapping() } {
            mapping.add_pages(pages.len());
        }
        // Mappings that lose their last page, chained by their link.
        let mut doomed = 0;
        let mut had_guard = false;
        // SAFETY: as above.
        let mut tally = unsafe { Tally::new(pages, self.tree.beside(pages)) };
        for run in self.tree.runs(pages) {
            // SAFETY: as above.
            let Some(old) = (unsafe { run.word.mapping() }) else {
                continue;
            };
            tally.see(run.pages, old.attributes());
            had_guard |= old.grows_down();
            if old.remove_pages(run.pages.len()) {
                old.link().set(doomed);
                doomed = core::ptr::from_ref(old).expose_provenance() as u64;
            }
        }
        // SAFETY: as above.
        let new = unsafe { word.mapping() }.map(Mapping::attributes);
        self.count_change(edit, &tally.end(new));
        edit.fill(pages, word);
        if had_guard {
            edit.guard_gone(pages.start);
        }
        while let Some(old) = NonNull::new(core::ptr::with_exposed_provenance_mut::<Mapping>(
            doomed as usize,
        )) {
            // SAFETY: unlinked just now, and retired only here.
            let mapping = unsafe { old.as_ref() };
            doomed = mapping.link().get();
            self.memory.unlink(mapping);
            self.memory.retire(Retired::Mapping(old));
        }
    }

    /// The same for a mapping of `pages` where nothing is mapped, between these neighbours.
    pub(crate) fn assign_free(
        &self,
        edit: &mut Edit<'_, M>,
        pages: Pages,
        word: Word,
        beside: Neighbours,
    ) {
        // SAFETY: made or found by the caller under this edit.
        if let Some(mapping) = unsafe { word.mapping() } {
            mapping.add_pages(pages.len());
            // SAFETY: as above.
            let tally = unsafe { Tally::new(pages, beside) };
            self.count_change(edit, &tally.end(Some(mapping.attributes())));
            edit.fill(pages, word);
        }
    }

    /// The first run that ends behind `page`, cut to `limit`, for a writer that is not editing.
    /// A range lock keeps mappings, but a stack that grows may replace nodes and splits.
    pub(crate) fn run_in(&self, page: u64, limit: u64) -> Option<Run> {
        let _section = self.memory.enter();
        self.tree.next_until(page, limit)
    }

    /// Whether nothing is mapped in `pages`, for a writer that is not editing.
    pub(crate) fn is_vacant(&self, pages: Pages) -> bool {
        let _section = self.memory.enter();
        self.tree.is_vacant(pages)
    }

    /// Lets faults go on in those of `pages` that are changing.
    pub(crate) fn show_changed(&self, edit: &mut Edit<'_, M>, pages: Pages) {
        for run in self.tree.runs(pages) {
            if run.word != run.word.settled() {
                edit.fill(run.pages, run.word.settled());
            }
        }
    }
}
