//! Guards of a range: of a writer, and of an operation that keeps mappings as they are.
//!
//! A range is held in one list, or in the space's own list and those of all shards that it meets ([`Held`]).
//! A [`RangeWriteGuard`] also holds the mmap lock, if the policy has one, and the pending unmaps of its
//! edits. It ends as a zap that continues ([`PendingZap`]), or with nothing left to do.
//!
//! *Writes*: the lock of a range list, and the slot in it.

use faultless_frames::NoMemory;
use faultless_paging::Pages;
use faultless_sync::atomic::Ordering;
use faultless_sync::{RangeGuard, ReadGuard};

use crate::base::machine::Machine;
use crate::base::policy::Policy;
use crate::lock::change::ChangeGuard;
use crate::lock::departing::UnmapGuard;
use crate::lock::pending::{PendingZap, ZapScope};
use crate::lock::shard::{LockDomain, ShardGuards};
use crate::lock::{Edit, Mappings, MmapHold, MmapLock, span, validation_fence};

/// The right to change the mappings of a range.
pub(crate) struct RangeWriteGuard<'a, M: Machine> {
    pub(super) space: &'a Mappings<M>,
    /// The mmap lock, released first.
    pub(super) guard: Option<MmapLock<'a, M>>,
    pub(super) held: Held<'a, M>,
    /// The pending unmaps: what has left the tree, and is still to be flushed.
    pub(super) departure: UnmapGuard<'a, M>,
    /// When the range was acquired ([`Mappings::trace_hold`]).
    pub(super) had: u64,
}

/// A range, held in all lists that it belongs to.
pub(crate) struct Held<'a, M: Machine> {
    pub(super) part: LockDomain,
    pub(super) range: RangeGuard<'a, M>,
    /// For [`LockDomain::All`]: its slots in the lists of shards.
    pub(super) elsewhere: ShardGuards<'a, M>,
    /// Whether a zap or a replacement runs in it.
    pub(super) meets_zaps: bool,
}

/// A hold of a range under which no writer changes its mappings.
pub(crate) struct RangeReadGuard<'a, M: Machine> {
    pub(super) _guard: Option<ReadGuard<'a, M>>,
    pub(super) _range: Option<Held<'a, M>>,
}

impl<'a, M: Machine> RangeWriteGuard<'a, M> {
    /// Excludes faults from the mappings of `pages` (policy `vma-lock`), and waits for those that hold one.
    /// Called before the mappings change. Ends with the hold of the mmap lock.
    pub(crate) fn lock_out_readers(&self, pages: Pages) {
        if self.guard.is_none() || self.space.policy() != Policy::VmaLock {
            return;
        }
        let hold = self.space.busy.write_hold.load(Ordering::Relaxed);
        let mut at = pages.start;
        while let Some(run) = self.space.run_in(at, pages.end) {
            // SAFETY: the range keeps mappings from being retired.
            if let Some(mapping) = unsafe { run.word.mapping() } {
                mapping
                    .vma_lock()
                    .lock_out_readers(hold, self.space.machine());
            }
            at = run.pages.end;
        }
    }

    /// Begins an edit, and cuts slots at the ends of `pages`.
    ///
    /// # Errors
    /// [`NoMemory`]; nothing has changed.
    pub(crate) fn cut(&self, pages: Pages) -> Result<Edit<'a, M>, NoMemory> {
        let edit = self.edit();
        edit.cut(pages)?;
        Ok(edit)
    }

    pub(crate) fn edit(&self) -> Edit<'a, M> {
        self.space.edit(self.held.part)
    }

    /// Takes over the pending unmaps of an edit, until they are flushed.
    #[inline]
    pub(crate) fn keep_departure(&self, edit: &Edit<'_, M>) {
        self.departure.take(edit.departure());
    }

    /// Returns the number in this writer's marks.
    pub(crate) fn writer(&self) -> usize {
        self.held.part.writer(self.held.range.place())
    }

    /// Returns the mappings that the range belongs to.
    pub(super) fn mappings(&self) -> &'a Mappings<M> {
        self.space
    }

    /// Returns the lock domain that the range belongs to.
    pub(super) fn part(&self) -> LockDomain {
        self.held.part
    }

    /// See [`validation_fence`].
    pub(crate) fn validation_fence(&self) {
        validation_fence();
    }

    /// Acquires a second range of the same lock domain, if this needs no wait. Returns whether it is held.
    /// The caller is editing.
    pub(crate) fn try_extend(&mut self, pages: Pages) -> bool {
        let range = span(pages);
        let Held {
            part,
            range: own,
            elsewhere,
            ..
        } = &mut self.held;
        own.try_extend(&range) && (*part != LockDomain::All || elsewhere.try_extend(&range))
    }

    /// Announces a zap in the range lists, under the edit that makes it visible.
    pub(crate) fn announce_zap(&self) {
        self.held.range.announce_zap();
        self.held.elsewhere.announce_zap();
    }

    /// Releases the range, but still excludes new mappings from `pages` until the zap ends. Slots that were
    /// mapped have this writer's marks. A stack may grow into the others.
    pub(crate) fn begin_zap_of_mapped(self, pages: Pages) -> PendingZap<'a, M> {
        self.begin_pending(pages, ZapScope::Noted)
    }

    /// Keeps the mmap lock as Linux does: for reading during a zap, for writing during a replacement.
    fn begin_pending(self, pages: Pages, scope: ZapScope) -> PendingZap<'a, M> {
        let is_replaced = scope == ZapScope::Replaced;
        let guard = self.guard.and_then(|lock| match is_replaced {
            true => Some(MmapHold::Write { _lock: lock }),
            false => lock.for_zap(),
        });
        let zap = match is_replaced {
            true => self.held.begin_replace(pages, self.departure),
            false => self.held.begin_zap(pages, self.departure),
        };
        PendingZap::new(self.space, scope, zap, guard)
    }
}

impl<'a, M: Machine> ChangeGuard<'a, M> for RangeWriteGuard<'a, M> {
    fn number(&self, _edit: &Edit<'a, M>) -> usize {
        self.writer()
    }

    fn meets_zaps(&self) -> bool {
        self.held.meets_zaps
    }

    fn had(&self) -> u64 {
        self.had
    }

    fn end(self, edit: &Edit<'a, M>, departure: &UnmapGuard<'a, M>) {
        departure.take(edit.departure());
        departure.take(&self.departure);
    }

    fn begin_zap(
        self,
        _maps: &'a Mappings<M>,
        edit: &Edit<'a, M>,
        pages: Pages,
        scope: ZapScope,
    ) -> PendingZap<'a, M> {
        self.keep_departure(edit);
        let scope = match scope {
            ZapScope::All if self.meets_zaps() => ZapScope::Noted,
            scope => scope,
        };
        self.begin_pending(pages, scope)
    }
}
