//! What takes not long, in a range of which nobody has anything, is done at once: under one edit, and
//! one look at the list of ranges, which is locked meanwhile ([`BriefGuard`]).
//!
//! Who is alone has no use for a range of his own: nobody could come to it but by the list. So it is
//! for what ends under the edit in which it begins: something new where there is nothing, few pages or
//! one mapping that are detached or replaced. Who has pages to take away then leaves a place in the list,
//! as *zapping* or *replacing* from the beginning. And it is only where nothing else is
//! asked for: no mmap lock, no seals to be looked for. Whether there are any is noted before the slot that
//! leads to the first one, so that it is seen under the edit.
//!
//! Written lines: those of the list, the tree's slots, mappings' page counts, and the account.
//!
//! *Models*: shuttle `lock/brief.rs`.

use core::ops::Range;

use faultless_paging::Pages;
use faultless_sync::{BriefGuard, Mutant, ZapGuard, mutant};
use faultless_trace::Counter;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::notes::Note;
use crate::lock::Edit;
use crate::lock::Mappings;
use crate::lock::departing::UnmapGuard;
use crate::lock::edit::DeadMappings;
use crate::lock::pending::ZapScope;
use crate::lock::shard::LockDomain;
use crate::lock::{HEAP, span};
use crate::table::free::FreeTables;
use crate::table::taken::Taken;
use crate::tree::SlotValue;
use crate::tune::BRIEF_FEW;
use crate::tune::BRIEF_MANY;
use crate::tune::BRIEF_MOST;
use crate::tune::GUARD_GAP;
use crate::tune::INLINE_ZAP;

/// A zap that goes on, and what it has let leave the tree.
type AtOnce<'a, M> = (ZapGuard<'a, M>, UnmapGuard<'a, M>);

/// What was detached at once, for after the edit: mappings that have lost their last page, what has left the
/// tree, and the zap, if one goes on.
type Detached<'a, M> = (DeadMappings, UnmapGuard<'a, M>, Option<ZapGuard<'a, M>>);

/// Leaves the zap to a fork.
fn leave_at_once<'a, M: Machine>((zap, departure): AtOnce<'a, M>) -> UnmapGuard<'a, M> {
    zap.leave();
    departure
}

impl<M: Machine> Mappings<M> {
    /// The part in which something may be done at once in `pages`, as far as nothing is noted that asks for
    /// more; and, with the mmap lock, that may not be.
    #[inline]
    fn part_at_once(&self, pages: Pages, unless: Note) -> Option<LockDomain> {
        let part = self.part_of(pages);
        let is_elsewhere = part == LockDomain::All || self.policy().holds_mmap_lock();
        if is_elsewhere || self.has_note(unless) {
            return None;
        }
        if !cfg!(loom) && part == LockDomain::Central && self.tree.is_edited() {
            self.note_crowd(pages);
        }
        Some(part)
    }

    /// Keeps others out of `ranges`, for who edits the part of `pages`, as long as that is so still and they have
    /// nothing of these.
    #[inline(always)]
    fn keep_out<const N: usize>(
        &self,
        _edit: &Edit<'_, M>,
        (part, pages): (LockDomain, Pages),
        ranges: [Range<u64>; N],
        unless: Note,
    ) -> Option<BriefGuard<'_, M>> {
        let has_changed = self.part_of(pages) != part && !mutant(Mutant::PartChosenOnce);
        if has_changed || self.has_note(unless) {
            return None;
        }
        let kept = self.list_of(part).try_keep_out(ranges, self.machine())?;
        if !cfg!(loom) && part == LockDomain::Central && kept.has_company() {
            self.note_crowd(pages);
        }
        Some(kept)
    }

    /// Unmaps `pages`, if they can be detached at once; whether they were. Otherwise nothing has
    /// changed, and the caller takes the range.
    #[inline]
    pub(crate) fn unmap_at_once(&self, pages: Pages) -> bool {
        if pages.len() > BRIEF_MOST {
            return false;
        }
        let Some(part) = self.part_at_once(pages, Note::NOT_AT_ONCE) else {
            return false;
        };
        // If so there is little else in the caches; and nobody has to wait for a look that is in vain.
        let is_used =
            pages.len() > BRIEF_MANY && self.tables.has_table_hint(pages.start.midpoint(pages.end));
        if is_used {
            self.read_ahead(part, pages);
        }
        let mut edit = self.edit(part);
        let had = self.memory.trace_start();
        let ranges = [span(pages)];
        let Some(kept) = self.keep_out(&edit, (part, pages), ranges, Note::NOT_AT_ONCE) else {
            return false;
        };
        let mut taken = Taken::new();
        // As large ranges often are: reserved, and never used.
        let is_unused = || {
            pages.len() > INLINE_ZAP && !is_used && self.tables.is_unpopulated(&self.tree, pages)
        };
        let kept = (part, kept);
        let detached = self.detach_kept(&mut edit, kept, pages, &mut taken, || (), is_unused);
        let Some(detached) = detached else {
            return false;
        };
        drop(edit);
        self.end_at_once(part, pages, had, taken, detached);
        true
    }

    #[inline(always)]
    fn end_at_once(
        &self,
        part: LockDomain,
        pages: Pages,
        had: u64,
        taken: Taken,
        (orphans, departure, zap): Detached<'_, M>,
    ) {
        self.trace_hold(had, pages);
        self.memory.count(Counter::Munmap);
        // Not under the edit: that, too, takes others' time.
        self.retire_orphans(orphans, &departure);
        let Some(zap) = zap else {
            return taken.free(self.machine());
        };
        let number = part.writer(zap.place());
        let zap = (zap, departure);
        self.clear_away(
            part,
            pages,
            number,
            ZapScope::All(taken),
            zap,
            leave_at_once,
        );
    }

    /// Puts something new into `pages`, if that can be done at once: by `vacant` where nothing is mapped; else by
    /// `over`, which shows it as replacing and says which mappings have lost their last page. `None`: nothing has
    /// changed, and the caller takes the range.
    #[inline]
    pub(crate) fn replace_at_once<T>(
        &self,
        pages: Pages,
        vacant: impl FnOnce(&mut Edit<'_, M>) -> Result<T, Errno>,
        over: impl FnOnce(&mut Edit<'_, M>) -> Result<(DeadMappings, T), Errno>,
    ) -> Option<Result<T, Errno>> {
        let part = self.part_at_once(pages, Note::CROWDED)?;
        let mut edit = self.edit(part);
        let kept = self.keep_out(&edit, (part, pages), [span(pages)], Note::CROWDED)?;
        if self.tree.is_vacant(pages) {
            return Some(vacant(&mut edit));
        }
        let place = kept.next_place()?;
        if !self.is_quickly_replaced(&edit, pages) {
            return None;
        }
        let had = self.memory.trace_start();
        let (dead, shown) = match over(&mut edit) {
            Ok(shown) => shown,
            Err(error) => return Some(Err(error)),
        };
        let mut taken = Taken::new();
        let tables = FreeTables::None;
        let zap = if self
            .tables
            .take_at_once(&self.tree, pages, tables, &mut taken)
        {
            self.tree.show_replaced(&mut edit, pages);
            drop(kept);
            None
        } else {
            Some(kept.begin_replace(place, span(pages)))
        };
        // Not with the list locked: much may be let go of.
        self.retire_orphans(dead, edit.departure());
        let zap = zap.map(|zap| (zap, edit.departure().hand_over()));
        drop(edit);
        self.trace_hold(had, pages);
        match zap {
            None => taken.free(self.machine()),
            Some(zap) => self.take_from_under(part, pages, taken, zap, leave_at_once),
        }
        Some(Ok(shown))
    }

    /// Unmaps `pages`, the end of the heap, likewise, and calls `commit` under the edit; if `is_unchanged`
    /// what the caller has seen.
    #[inline]
    pub(crate) fn unmap_heap_at_once(
        &self,
        pages: Pages,
        is_unchanged: impl FnOnce() -> bool,
        commit: impl FnOnce(),
    ) -> bool {
        if pages.len() > BRIEF_FEW || self.part_of_heap(pages, Note::NOT_AT_ONCE).is_none() {
            return false;
        }
        let part = LockDomain::Central;
        let mut edit = self.edit(part);
        let had = self.memory.trace_start();
        let kept = self.keep_heap(&edit, pages, Note::NOT_AT_ONCE);
        let Some(kept) = kept.filter(|_| is_unchanged()) else {
            return false;
        };
        let mut taken = Taken::new();
        let kept = (part, kept);
        let detached = self.detach_kept(&mut edit, kept, pages, &mut taken, commit, || false);
        let Some(detached) = detached else {
            return false;
        };
        drop(edit);
        self.end_at_once(part, pages, had, taken, detached);
        true
    }

    /// Lets `grow` put something new into `pages`, the heap's next ones, under an edit, if nobody has anything of
    /// them, of the page behind them, or of the heap's end; what it says.
    #[inline]
    pub(crate) fn grow_heap_at_once<T>(
        &self,
        pages: Pages,
        grow: impl FnOnce(&mut Edit<'_, M>) -> Option<T>,
    ) -> Option<T> {
        let pages = Pages::new(pages.start, pages.end + 1);
        self.part_of_heap(pages, Note::CROWDED)?;
        let mut edit = self.edit(LockDomain::Central);
        let _kept = self.keep_heap(&edit, pages, Note::CROWDED)?;
        grow(&mut edit)
    }

    /// That pages of the heap belong to the part of its end, likewise; see `lock_heap`.
    fn part_of_heap(&self, pages: Pages, unless: Note) -> Option<LockDomain> {
        let around = Pages::new(pages.start, pages.end + GUARD_GAP);
        let part = self.part_at_once(around, unless);
        part.filter(|part| *part == LockDomain::Central)
    }

    #[inline(always)]
    fn keep_heap(
        &self,
        edit: &Edit<'_, M>,
        pages: Pages,
        unless: Note,
    ) -> Option<BriefGuard<'_, M>> {
        let around = Pages::new(pages.start, pages.end + GUARD_GAP);
        self.keep_out(
            edit,
            (LockDomain::Central, around),
            [span(pages), HEAP],
            unless,
        )
    }

    /// Lets the slots of `pages` say that they are zapped, if they can be detached at once. What has lost its
    /// last page, for after the edit, and what is left of the zap, if anything is: they may have been taken away at once, too, or never have been used.
    #[inline(always)]
    fn detach_kept<'a>(
        &self,
        edit: &mut Edit<'a, M>,
        (part, kept): (LockDomain, BriefGuard<'a, M>),
        pages: Pages,
        taken: &mut Taken,
        commit: impl FnOnce(),
        is_unused: impl FnOnce() -> bool,
    ) -> Option<Detached<'a, M>> {
        let place = kept.next_place()?;
        let note = SlotValue::zapping(part.writer(place));
        let orphans = self.detach_alone(edit, pages, note)?;
        commit();
        // Of many not even the code is looked at, which may not be in a cache.
        let is_few = pages.len() <= INLINE_ZAP;
        let tables = part.free_tables();
        let is_done =
            is_few && self.tables.take_at_once(&self.tree, pages, tables, taken) || is_unused();
        let zap = if is_done {
            edit.fill(pages, SlotValue::EMPTY);
            drop(kept);
            None
        } else {
            Some(kept.begin_zap(place, span(pages)))
        };
        Some((orphans, edit.departure().hand_over(), zap))
    }

    /// Lets the slots of `pages` say `note`, if something is mapped there that is quickly detached; what
    /// has lost its last page.
    #[inline]
    fn detach_alone(
        &self,
        edit: &mut Edit<'_, M>,
        pages: Pages,
        note: SlotValue,
    ) -> Option<DeadMappings> {
        let near = edit.around(pages);
        let is_few = pages.len() <= BRIEF_FEW;
        let one = if is_few { None } else { near.one_run(pages) };
        let is_quick = one.is_some() || is_few && !near.is_unmapped(pages);
        // A whole mapping, or what is one in the tree, is not split, and ends between slots.
        let is_whole = one.is_some_and(|run| {
            let beside = near.beside_below(pages);
            run.word != beside.before && run.word != beside.behind
        });
        let is_cut = is_whole
            || is_quick
                && self.check_split(edit, pages, None).is_ok()
                && edit.cut_below(&near, pages).is_ok();
        is_cut.then(|| match one {
            Some(run) => self.replace_range(edit, &near, pages, [run].into_iter(), note),
            None => self.replace_range(edit, &near, pages, near.runs(pages), note),
        })
    }

    /// Whether what is mapped in `pages` is quickly replaced, and asks for nothing else.
    fn is_quickly_replaced(&self, edit: &Edit<'_, M>, pages: Pages) -> bool {
        let is_quick = || pages.len() <= BRIEF_MOST && edit.around(pages).one_run(pages).is_some();
        !self.has_note(Note::NOT_AT_ONCE) && (pages.len() <= BRIEF_FEW || is_quick())
    }
}
