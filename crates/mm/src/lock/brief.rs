//! Brief writers: a fast path for short changes of uncontended ranges, without a slot of the range list.
//!
//! A brief writer holds the lock of the list instead, under one edit ([`BriefRange`]): no conflicting request
//! can arrive meanwhile.
//!
//! * The change ends under the edit in which it begins. It puts a new mapping where nothing is mapped, or
//!   detaches or replaces few pages or one mapping.
//! * A zap that continues after the edit gets a slot of the list, as *zapping* or *replacing* from the
//!   beginning.
//! * Nothing else is required: no mmap lock, no check of seals, no shard to be created first. The flag for
//!   seals is set before the slot that leads to the first sealed mapping, so it is seen under the edit.
//! * If a condition does not hold, nothing has changed, and the operation waits for its range.
//!
//! *Writes*: the lock of the list, and the list slot of a zap that continues.
//!
//! *Models*: shuttle `lock/brief.rs`.

use core::ops::Range;

use faultless_paging::Pages;
use faultless_sync::{BriefGuard, Mutant, mutant};

use crate::base::machine::Machine;
use crate::base::notes::Note;
use crate::lock::change::ChangeGuard;
use crate::lock::departing::UnmapGuard;
use crate::lock::pending::{PendingZap, ZapScope};
use crate::lock::shard::LockDomain;
use crate::lock::zap::Zap;
use crate::lock::{Edit, HEAP, Mappings, span};
use crate::tune::{BRIEF_FEW, BRIEF_MANY, BRIEF_MOST, GUARD_GAP};

/// A change that may be brief, judged with nothing held.
pub(crate) struct BriefRequest<'a, M: Machine> {
    maps: &'a Mappings<M>,
    domain: LockDomain,
    /// The pages that decide the domain.
    pages: Pages,
    unless: Note,
}

/// A range that a brief writer holds: the range list is locked.
pub(crate) struct BriefRange<'a, M: Machine> {
    kept: BriefGuard<'a, M>,
    /// The list slot that a zap gets if it continues.
    place: usize,
    had: u64,
}

impl<'a, M: Machine> BriefRequest<'a, M> {
    /// Begins the edit.
    #[inline(always)]
    pub(crate) fn edit(&self) -> Edit<'a, M> {
        self.maps.edit(self.domain)
    }

    /// Holds the range of `pages` under the edit, if no other operation holds, awaits or zaps a part of it.
    #[inline(always)]
    pub(crate) fn enter(&self, _edit: &Edit<'a, M>, pages: Pages) -> Option<BriefRange<'a, M>> {
        self.enter_ranges([span(pages)])
    }

    /// The same with the heap's end; see [`Mappings::lock_heap`].
    #[inline(always)]
    pub(crate) fn enter_heap(
        &self,
        _edit: &Edit<'a, M>,
        pages: Pages,
    ) -> Option<BriefRange<'a, M>> {
        self.enter_ranges([pages.start..pages.end + 1, HEAP])
    }

    #[inline(always)]
    fn enter_ranges<const N: usize>(&self, ranges: [Range<u64>; N]) -> Option<BriefRange<'a, M>> {
        let &Self {
            maps,
            domain,
            pages,
            unless,
        } = self;
        let had = maps.memory.trace_start();
        let has_changed = maps.part_of(pages) != domain && !mutant(Mutant::PartChosenOnce);
        if has_changed || maps.has_note(unless) {
            return None;
        }
        let kept = maps.list_of(domain).try_keep_out(ranges, maps.machine())?;
        if !cfg!(loom) && domain == LockDomain::Central && kept.has_company() {
            maps.note_crowd(pages);
        }
        let place = kept.next_place()?;
        Some(BriefRange { kept, place, had })
    }
}

impl<'a, M: Machine> ChangeGuard<'a, M> for BriefRange<'a, M> {
    #[inline(always)]
    fn number(&self, edit: &Edit<'a, M>) -> usize {
        edit.part().writer(self.place)
    }

    #[inline(always)]
    fn meets_zaps(&self) -> bool {
        false
    }

    #[inline(always)]
    fn had(&self) -> u64 {
        self.had
    }

    #[inline(always)]
    fn end(self, edit: &Edit<'a, M>, departure: &UnmapGuard<'a, M>) {
        departure.take(edit.departure());
    }

    #[inline(always)]
    fn begin_zap(
        self,
        maps: &'a Mappings<M>,
        edit: &Edit<'a, M>,
        pages: Pages,
        scope: ZapScope,
    ) -> PendingZap<'a, M> {
        let range = match scope {
            ZapScope::Replaced => self.kept.begin_replace(self.place, span(pages)),
            ZapScope::All | ZapScope::Noted => self.kept.begin_zap(self.place, span(pages)),
        };
        let departure = edit.departure().hand_over();
        let zap = Zap::brief(maps, edit.part(), pages, range, departure);
        PendingZap::new(maps, scope, zap, None)
    }
}

impl<M: Machine> Mappings<M> {
    /// Returns a request to change `pages` briefly. `None`: they need all lock domains, a flag of `unless` is
    /// set, or the policy has the mmap lock.
    #[inline]
    fn may_be_brief(&self, pages: Pages, unless: Note) -> Option<BriefRequest<'_, M>> {
        let domain = self.part_of(pages);
        let is_elsewhere = domain == LockDomain::All || self.policy().holds_mmap_lock();
        if is_elsewhere || self.has_note(unless) {
            return None;
        }
        if !cfg!(loom) && domain == LockDomain::Central && self.tree.is_edited() {
            self.note_crowd(pages);
        }
        Some(BriefRequest {
            maps: self,
            domain,
            pages,
            unless,
        })
    }

    /// Returns a request to unmap `pages` briefly, if that is possible, and whether there seems to be a
    /// table.
    #[inline(always)]
    pub(crate) fn may_unmap_briefly(&self, pages: Pages) -> Option<(BriefRequest<'_, M>, bool)> {
        if pages.len() > BRIEF_MOST {
            return None;
        }
        let request = self.may_be_brief(pages, Note::NOT_AT_ONCE)?;
        // If there is a table, the caches probably hold little else: read ahead. The edit then omits the
        // check for an unused range, which would be futile and delay other writers.
        let has_table =
            pages.len() > BRIEF_MANY && self.tables.has_table_hint(pages.start.midpoint(pages.end));
        if has_table {
            self.read_ahead(request.domain, pages);
        }
        Some((request, has_table))
    }

    /// Returns a request to put a new mapping into `pages` briefly, if that is possible.
    #[inline(always)]
    pub(crate) fn may_map_briefly(&self, pages: Pages) -> Option<BriefRequest<'_, M>> {
        self.may_be_brief(pages, Note::CONTENDED)
    }

    /// Returns a request to move the heap's end briefly over `pages`, which it `fills` or leaves; see
    /// `lock_heap`.
    #[inline(always)]
    pub(crate) fn may_move_heap_briefly(
        &self,
        pages: Pages,
        fills: bool,
    ) -> Option<BriefRequest<'_, M>> {
        let unless = match fills {
            true => Note::CONTENDED,
            false if pages.len() > BRIEF_FEW => return None,
            false => Note::NOT_AT_ONCE,
        };
        // A stack behind the heap may need its guard gap.
        let around = Pages::new(pages.start, pages.end + 1 + GUARD_GAP);
        self.may_be_brief(around, unless)
            .filter(|request| request.domain == LockDomain::Central)
    }

    /// Whether the mappings in `pages` can be replaced quickly, without a check of seals and without a new
    /// shard.
    pub(crate) fn is_quickly_replaced(&self, edit: &Edit<'_, M>, pages: Pages) -> bool {
        let is_one = || pages.len() <= BRIEF_MOST && edit.around(pages).one_run(pages).is_some();
        !self.has_note(Note::NOT_AT_ONCE) && (pages.len() <= BRIEF_FEW || is_one())
    }
}
