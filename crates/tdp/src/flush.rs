//! Flushes of what vCPUs have cached, and what was taken away and is not flushed yet.
//!
//! An entry without a page may still be cached: the operation that took the page away flushes later, perhaps after many other
//! pages. If the host gives the page up meanwhile, it finds nothing in the entry that would need a flush, and must not free the
//! page. Likewise a log that is cleared finds no mark, and a store must not go by unseen from then on. So operations that take
//! pages away are counted from before their first change until after their flush, and those that depend on it flush, too, while
//! there are any.
//!
//! What clears the dirty log or ages pages is not counted: its entries still have their pages.
//!
//! *Writes*: the count, twice for each operation that takes pages away.
//!
//! *Models*: loom `slots.rs`, `log.rs`.

use faultless_sync::atomic::Ordering;
use faultless_sync::{Mutant, mutant};

use crate::guest::{Guest, GuestMachine, HostSpace};

/// An operation that takes pages away, or write access for good.
pub(crate) struct Lowering<'a, M: GuestMachine, S: HostSpace<M>> {
    guest: &'a Guest<M, S>,
    has_begun: bool,
}

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Flushes what vCPUs have cached of entries that were changed.
    pub(crate) fn flush(&self) {
        self.machine().flush_guest(self.tag);
    }

    /// The same if anything `has_changed`, or another operation has taken something away and may not have flushed it. The
    /// caller has looked at the entries, by loads that acquire.
    pub(crate) fn flush_with_others(&self, has_changed: bool) {
        let has_others = || {
            // Acquire: what is no longer counted is flushed.
            self.unflushed.load(Ordering::Acquire) != 0 && !mutant(Mutant::OthersNotFlushed)
        };
        if has_changed || has_others() {
            self.flush();
        }
    }

    /// Begins an operation that has not changed anything yet.
    pub(crate) fn lowering(&self) -> Lowering<'_, M, S> {
        Lowering {
            guest: self,
            has_begun: false,
        }
    }
}

impl<M: GuestMachine, S: HostSpace<M>> Lowering<'_, M, S> {
    /// Called before an entry is changed.
    #[inline]
    pub(crate) fn will_change(&mut self) {
        if !self.has_begun {
            self.has_begun = true;
            // The change of the entry, which releases, comes after this.
            self.guest.unflushed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Flushes if anything was changed.
    pub(crate) fn finish(self) {
        if self.has_begun {
            self.guest.flush();
            // Release: an operation that no longer sees this one finds everything flushed.
            self.guest.unflushed.fetch_sub(1, Ordering::Release);
        }
    }

    /// The same, or for what others have taken away.
    pub(crate) fn finish_with_others(self) {
        match self.has_begun {
            true => self.finish(),
            false => self.guest.flush_with_others(false),
        }
    }
}
