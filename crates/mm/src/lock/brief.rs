//! Brief writers: what takes not long, in a range that has no other holder, is done without a place in the list of
//! ranges.
//!
//! The lock of the list is held instead, under one edit ([`BriefRange`]): no conflicting request can arrive meanwhile.
//! It is for a change that ends under the edit in which it begins: a new mapping where there is nothing, few pages or
//! one mapping that are detached or replaced. A zap that has to go on afterwards then gets a place, as *zapping* or
//! *replacing* from the beginning. And it is only where nothing else is asked for: no mmap lock, no seals to be looked
//! for, no contention to be ended by a shard. Whether there are any is noted before the slot that leads to the
//! first one, so that it is seen under the edit. Else nothing has changed, and the operation waits for its range.
//!
//! *Writes*: the lock of the list, and the place of a zap that goes on.
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

/// A change that may be brief, as far as can be seen with nothing held.
pub(crate) struct BriefRequest<'a, M: Machine> {
    maps: &'a Mappings<M>,
    domain: LockDomain,
    /// What decides the domain.
    pages: Pages,
    unless: Note,
}

/// A range that a brief writer has: the list of ranges is locked.
pub(crate) struct BriefRange<'a, M: Machine> {
    kept: BriefGuard<'a, M>,
    /// The place that a zap gets if it goes on.
    place: usize,
    had: u64,
}

impl<'a, M: Machine> BriefRequest<'a, M> {
    /// Begins the edit.
    #[inline(always)]
    pub(crate) fn edit(&self) -> Edit<'a, M> {
        self.maps.edit(self.domain)
    }

    /// Has the range of these pages under the edit, if nothing else has anything of it.
    #[inline(always)]
    pub(crate) fn enter(&self, _edit: &Edit<'a, M>, pages: Pages) -> Option<BriefRange<'a, M>> {
        self.enter_ranges([span(pages)])
    }

    /// The same, and the heap's end; see [`Mappings::lock_heap`].
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
    /// That a writer may be brief in `pages`: unless they belong to all domains, or something is noted, or the
    /// policy has the mmap lock.
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

    /// That `pages` may be unmapped briefly; and whether there seems to be a table.
    #[inline(always)]
    pub(crate) fn may_unmap_briefly(&self, pages: Pages) -> Option<(BriefRequest<'_, M>, bool)> {
        if pages.len() > BRIEF_MOST {
            return None;
        }
        let request = self.may_be_brief(pages, Note::NOT_AT_ONCE)?;
        // If so there is little else in the caches; and nobody has to wait for a look that is in vain.
        let has_table =
            pages.len() > BRIEF_MANY && self.tables.has_table_hint(pages.start.midpoint(pages.end));
        if has_table {
            self.read_ahead(request.domain, pages);
        }
        Some((request, has_table))
    }

    /// That something new may be put into `pages` briefly.
    #[inline(always)]
    pub(crate) fn may_map_briefly(&self, pages: Pages) -> Option<BriefRequest<'_, M>> {
        self.may_be_brief(pages, Note::CROWDED)
    }

    /// That the heap's end may be moved briefly over `pages`, which it `fills` or leaves; see `lock_heap`.
    #[inline(always)]
    pub(crate) fn may_move_heap_briefly(
        &self,
        pages: Pages,
        fills: bool,
    ) -> Option<BriefRequest<'_, M>> {
        let unless = match fills {
            true => Note::CROWDED,
            false if pages.len() > BRIEF_FEW => return None,
            false => Note::NOT_AT_ONCE,
        };
        // Behind it a stack may ask for its guard gap.
        let around = Pages::new(pages.start, pages.end + 1 + GUARD_GAP);
        self.may_be_brief(around, unless)
            .filter(|request| request.domain == LockDomain::Central)
    }

    /// Whether what is mapped in `pages` is quickly replaced, and asks for nothing else.
    pub(crate) fn is_quickly_replaced(&self, edit: &Edit<'_, M>, pages: Pages) -> bool {
        let is_one = || pages.len() <= BRIEF_MOST && edit.around(pages).one_run(pages).is_some();
        !self.has_note(Note::NOT_AT_ONCE) && (pages.len() <= BRIEF_FEW || is_one())
    }
}
