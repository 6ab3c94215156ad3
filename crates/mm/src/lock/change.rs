//! A change of what is mapped in a range: the right to make it, and the edit under which it is made.
//!
//! A writer has its range in one of two ways. A *placed* writer has waited for it, and has a place in the list of
//! ranges ([`crate::lock::RangeWriteGuard`]). A *brief* writer holds the lock of that list for as long as its edit lasts, so that no
//! request for the range can arrive ([`crate::lock::brief`]). An operation is written once, over [`ChangeGuard`].
//!
//! What is unmapped or replaced leaves in two phases ([`crate::lock::pending`]). The second is empty where few pages
//! are cached by no other TLB: they are taken under the edit ([`crate::table::taken`]). It is, too, where a large
//! range was reserved and never used: neither a page nor a table is under it.
//!
//! Invariants:
//! * The slots say *zapping* or *replacing* before a page is taken away, and until all are.
//! * The list says that a zap goes on under the edit that shows it: a writer that would put something new there
//!   waits from then on.
//!
//! *Writes*: the tree's slots, mappings' page counts and the account, under the edit lock; the list of ranges.
//!
//! *Models*: shuttle `lock/{brief,zaps}.rs`, loom `lock/zaps.rs`.

use faultless_paging::Pages;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::trace::OFF;
use crate::lock::departing::UnmapGuard;
use crate::lock::edit::DeadMappings;
use crate::lock::pending::{PendingZap, ZapScope};
use crate::lock::{Edit, Mappings};
use crate::table::free::FreeTables;
use crate::table::taken::Taken;
use crate::tree::{Run, SlotValue, Subtree};
use crate::tune::{BRIEF_FEW, INLINE_ZAP};

/// The right to change the mappings of a range, placed or brief.
pub(crate) trait ChangeGuard<'a, M: Machine>: Sized {
    /// The number by which this writer's notes are known.
    fn number(&self, edit: &Edit<'a, M>) -> usize;

    /// Whether others zap in the range.
    fn meets_zaps(&self) -> bool;

    /// When the range was had ([`Mappings::trace_hold`]).
    fn had(&self) -> u64;

    /// Gives up the range, in which nothing is pending. What has left the tree goes to `departure`.
    fn end(self, edit: &Edit<'a, M>, departure: &UnmapGuard<'a, M>);

    /// Gives up everything but that nothing new comes to `pages`, which say that this writer zaps there
    /// ([`ZapScope::All`]), or that what is mapped takes the place of what was ([`ZapScope::Replaced`]).
    fn begin_zap(
        self,
        maps: &'a Mappings<M>,
        edit: &Edit<'a, M>,
        pages: Pages,
        scope: ZapScope,
    ) -> PendingZap<'a, M>;
}

/// Pages that are to be unmapped, as an edit has found them.
pub(crate) struct Found {
    pub(crate) pages: Pages,
    /// What is around them in the tree.
    near: Subtree,
    /// The run that all of them are a part of, where that was looked for.
    one: Option<Run>,
    /// Whether a look before the edit has found a table.
    has_table: bool,
}

impl Found {
    /// Finds pages that are to be unmapped. A look before the edit may have found a table.
    #[inline(always)]
    pub(crate) fn by<M: Machine>(edit: &Edit<'_, M>, pages: Pages, has_table: bool) -> Self {
        Self {
            pages,
            near: edit.around(pages),
            one: None,
            has_table,
        }
    }

    /// Whether they are quickly detached: few, or one mapping.
    #[inline(always)]
    pub(crate) fn is_quick(&mut self) -> bool {
        if self.pages.len() <= BRIEF_FEW {
            return true;
        }
        self.one = self.near.one_run(self.pages);
        self.one.is_some()
    }

    /// Whether nothing is mapped there.
    #[inline(always)]
    pub(crate) fn is_unmapped(&self) -> bool {
        self.one.is_none() && self.near.is_unmapped(self.pages)
    }
}

impl<M: Machine> Mappings<M> {
    /// Makes the ends of what is to be unmapped fall between slots.
    ///
    /// # Errors
    /// `ENOMEM`: out of memory, or too many mappings; nothing has changed.
    #[inline(always)]
    pub(crate) fn cut_found(&self, edit: &Edit<'_, M>, found: &Found) -> Result<(), Errno> {
        let &Found { pages, .. } = found;
        // A whole mapping, or what is one in the tree, is not split, and ends between slots.
        let is_whole = found.one.is_some_and(|run| {
            let beside = found.near.beside_below(pages);
            run.word != beside.before && run.word != beside.behind
        });
        if !is_whole {
            self.check_split(edit, pages, None)?;
            edit.cut_below(&found.near, pages)?;
        }
        Ok(())
    }

    /// Unmaps what was found, whose ends were cut; what it leaves is `after`.
    #[inline(always)]
    pub(crate) fn detach_found<'a, G: ChangeGuard<'a, M>>(
        &'a self,
        edit: &mut Edit<'a, M>,
        guard: G,
        found: &Found,
        after: &mut AfterEdit<'a, M>,
    ) {
        let &Found {
            pages,
            ref near,
            one,
            has_table,
        } = found;
        let note = SlotValue::zapping(guard.number(edit));
        let meets_zaps = guard.meets_zaps();
        after.dead = match one {
            _ if meets_zaps => self.detach_beside_zaps(edit, pages, note),
            Some(run) => self.replace_range(edit, near, pages, [run].into_iter(), note),
            None => self.replace_range(edit, near, pages, near.runs(pages), note),
        };
        let (tree, tables) = (&self.tree, &self.tables);
        let empty = edit.part().free_tables();
        let is_few = pages.len() <= INLINE_ZAP;
        // As large ranges often are: reserved, and never used.
        let is_unused = || !is_few && !has_table && tables.is_unpopulated(tree, pages);
        let is_done = !meets_zaps
            && (is_few && tables.take_at_once(tree, pages, empty, &mut after.taken) || is_unused());
        if is_done {
            edit.fill(pages, SlotValue::EMPTY);
        }
        after.end(edit, guard, pages, (!is_done).then_some(ZapScope::All));
    }

    /// With `pages` showing what takes the place of something else: takes the old pages away, or leaves that to be
    /// done `after` the edit.
    #[inline(always)]
    pub(crate) fn detach_replaced<'a, G: ChangeGuard<'a, M>>(
        &'a self,
        edit: &mut Edit<'a, M>,
        guard: G,
        pages: Pages,
        after: &mut AfterEdit<'a, M>,
    ) {
        let (tree, tables) = (&self.tree, &self.tables);
        let is_done = !guard.meets_zaps()
            && tables.take_at_once(tree, pages, FreeTables::None, &mut after.taken);
        if is_done {
            tree.show_replaced(edit, pages);
        }
        after.end(edit, guard, pages, (!is_done).then_some(ZapScope::Replaced));
    }
}

/// What an edit leaves to be done with nothing locked.
pub(crate) struct AfterEdit<'a, M: Machine> {
    maps: &'a Mappings<M>,
    pages: Pages,
    had: u64,
    /// Mappings that have lost their last page.
    pub(crate) dead: DeadMappings,
    /// Pages that were taken away under the edit.
    taken: Taken,
    /// What has left the tree, if no zap is pending.
    departure: UnmapGuard<'a, M>,
    pending: Option<PendingZap<'a, M>>,
}

impl<'a, M: Machine> AfterEdit<'a, M> {
    /// Nothing.
    #[inline(always)]
    pub(crate) fn nothing(maps: &'a Mappings<M>) -> Self {
        Self {
            maps,
            pages: Pages::new(0, 0),
            had: OFF,
            dead: DeadMappings::none(),
            taken: Taken::new(),
            departure: UnmapGuard::new(maps.memory),
            pending: None,
        }
    }

    /// Gives up a range, but for a zap of it that has to go on.
    #[inline(always)]
    fn end<G: ChangeGuard<'a, M>>(
        &mut self,
        edit: &Edit<'a, M>,
        guard: G,
        pages: Pages,
        zap: Option<ZapScope>,
    ) {
        (self.pages, self.had) = (pages, guard.had());
        match zap {
            Some(scope) => self.pending = Some(guard.begin_zap(self.maps, edit, pages, scope)),
            None => guard.end(edit, &self.departure),
        }
    }

    /// Does it, once the edit has ended. Where it lies: it is large to be handed on.
    #[inline(always)]
    pub(crate) fn finish(&mut self) {
        let maps = self.maps;
        maps.trace_hold(self.had, self.pages);
        // Not under the edit: that, too, takes others' time.
        let departure = match &self.pending {
            None => &self.departure,
            Some(pending) => pending.departure(),
        };
        maps.retire_orphans(self.dead.take(), departure);
        match &mut self.pending {
            None => self.taken.take().free(maps.machine()),
            Some(pending) => pending.finish_beside(self.taken.take()),
        }
        self.departure.end();
    }
}
