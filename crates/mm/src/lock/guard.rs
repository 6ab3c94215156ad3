//! What a writer, or an operation that keeps mappings as they are, has of a range.
//!
//! A range is in one list, or in those of all shards that it meets beside the space's own ([`Held`]). A
//! [`RangeWriteGuard`] also has the mmap lock, where the policy has one, and what has left the tree by its edits, until
//! that is flushed. It ends as a zap that goes on ([`PendingZap`]), or with nothing left to do.
//!
//! *Writes*: the lock of a list of ranges, and the place in it.

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
    /// The mmap lock goes first.
    pub(super) guard: Option<MmapLock<'a, M>>,
    pub(super) held: Held<'a, M>,
    /// What has left the tree, and is still to be flushed.
    pub(super) departure: UnmapGuard<'a, M>,
    /// When it was had ([`Mappings::trace_hold`]).
    pub(super) had: u64,
}

/// A range, in the lists in which it has to be had.
pub(crate) struct Held<'a, M: Machine> {
    pub(super) part: LockDomain,
    pub(super) range: RangeGuard<'a, M>,
    /// For part [`LockDomain::All`].
    pub(super) elsewhere: ShardGuards<'a, M>,
    /// Whether something is zapped, or replacing, in it.
    pub(super) meets_zaps: bool,
}

/// That nobody changes the mappings of a range.
pub(crate) struct RangeReadGuard<'a, M: Machine> {
    pub(super) _guard: Option<ReadGuard<'a, M>>,
    pub(super) _range: Option<Held<'a, M>>,
}

impl<'a, M: Machine> RangeWriteGuard<'a, M> {
    /// Lets no fault hold a mapping of `pages` (policy `vma-lock`); to be
    /// called before they change. Ends with the hold of the mmap lock.
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
        self.space.edit(self.held.part)
    }

    /// Lets what leaves the tree by an edit be this writer's, until it is flushed.
    #[inline]
    pub(crate) fn keep_departure(&self, edit: &Edit<'_, M>) {
        self.departure.take(edit.departure());
    }

    /// The number by which this writer's notes are known.
    pub(crate) fn writer(&self) -> usize {
        self.held.part.writer(self.held.range.place())
    }

    /// The mappings that the range is of.
    pub(super) fn mappings(&self) -> &'a Mappings<M> {
        self.space
    }

    /// The lock domain that the range belongs to.
    pub(super) fn part(&self) -> LockDomain {
        self.held.part
    }

    /// See [`validation_fence`].
    pub(crate) fn validation_fence(&self) {
        validation_fence();
    }

    /// Takes a second range of the same part, if that can be had at once; whether it is had. For who
    /// is editing.
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

    /// Says, under the edit under which it can be seen, that something will be zapped.
    pub(crate) fn announce_zap(&self) {
        self.held.range.announce_zap();
        self.held.elsewhere.announce_zap();
    }

    /// Gives up everything but that nothing new comes to `pages`, where what was mapped says that this writer
    /// zaps it: a stack may grow into what was not.
    pub(crate) fn begin_zap_of_mapped(self, pages: Pages) -> PendingZap<'a, M> {
        self.begin_pending(pages, ZapScope::Noted)
    }

    /// Of the mmap lock the right to read is kept for a zap, and all for what is replaced, as in Linux.
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
