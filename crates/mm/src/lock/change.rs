//! How a writer changes what is mapped in a range: its guard, the edit, and the work after the edit.
//!
//! A writer holds its range in one of two ways. A *placed* writer has acquired it, perhaps after a wait, and
//! has a slot of the range list ([`crate::lock::RangeWriteGuard`]). A *brief* writer holds the lock of that
//! list for as long as its edit lasts, so no request for the range can arrive ([`crate::lock::brief`]). Each
//! operation is written once, over [`ChangeGuard`].
//!
//! An unmap or a replacement has two phases ([`crate::lock::pending`]). The second is empty in two cases:
//!
//! * Few pages, cached by no other TLB, are zapped under the edit ([`crate::table::taken`]).
//! * A large range was reserved and never used: it has neither a page nor a table.
//!
//! Invariants:
//!
//! * The slots say *zapping* or *replacing* before the first page is zapped, and until all are.
//! * The range list records a zap under the same edit that makes it visible. From then on a new mapping there
//!   waits.
//!
//! *Writes*: the tree's slots, mappings' page counts and the account, under the edit lock; the range list.
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
use crate::tree::{Neighbours, Run, SlotValue, Subtree};
use crate::tune::{BRIEF_FEW, INLINE_ZAP};

/// The right to change the mappings of a range, placed or brief.
pub(crate) trait ChangeGuard<'a, M: Machine>: Sized {
    /// Returns the number in this writer's marks.
    fn number(&self, edit: &Edit<'a, M>) -> usize;

    /// Whether other zaps run in the range.
    fn meets_zaps(&self) -> bool;

    /// Returns the time at which the range was acquired ([`Mappings::trace_hold`]).
    fn had(&self) -> u64;

    /// Releases the range, in which no zap is pending. `departure` takes over the pending unmaps.
    fn end(self, edit: &Edit<'a, M>, departure: &UnmapGuard<'a, M>);

    /// Releases the range, but still excludes new mappings from `pages` until the zap ends. Their slots have
    /// this writer's marks ([`ZapScope::All`]), or hold mappings that are marked as replacing
    /// ([`ZapScope::Replaced`]).
    fn begin_zap(
        self,
        maps: &'a Mappings<M>,
        edit: &Edit<'a, M>,
        pages: Pages,
        scope: ZapScope,
    ) -> PendingZap<'a, M>;
}

/// Pages to be unmapped, as an edit has found them.
pub(crate) struct Found {
    pub(crate) pages: Pages,
    /// The subtree around them.
    near: Subtree,
    /// The slot values next to them. A cut does not change these.
    beside: Neighbours,
    /// The run that contains all of them, if it was looked for and found.
    one: Option<Run>,
    /// Whether a lookup before the edit found a table.
    has_table: bool,
}

impl Found {
    /// Returns `pages`, to be unmapped, as the edit finds them. `has_table`: a lookup before the edit found a
    /// table.
    #[inline(always)]
    pub(crate) fn by<M: Machine>(edit: &Edit<'_, M>, pages: Pages, has_table: bool) -> Self {
        let near = edit.around(pages);
        Self {
            pages,
            near,
            beside: near.beside_below(pages),
            one: None,
            has_table,
        }
    }

    /// Whether they can be detached quickly: few pages, or one mapping.
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
    /// Cuts slots at the ends of the pages to be unmapped.
    ///
    /// # Errors
    /// `ENOMEM`: out of memory, or too many mappings; nothing has changed.
    #[inline(always)]
    pub(crate) fn cut_found(&self, edit: &Edit<'_, M>, found: &Found) -> Result<(), Errno> {
        let &Found { pages, .. } = found;
        // A whole mapping, or a whole run of the tree, is not split, and already ends between slots.
        let is_whole = found
            .one
            .is_some_and(|run| run.word != found.beside.before && run.word != found.beside.behind);
        if !is_whole {
            self.check_split(edit, pages, None)?;
            edit.cut_below(&found.near, pages)?;
        }
        Ok(())
    }

    /// Unmaps the pages found, which are cut at both ends. `after` receives the work that is left.
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
            beside,
            one,
            has_table,
        } = found;
        let note = SlotValue::zapping(guard.number(edit));
        let meets_zaps = guard.meets_zaps();
        after.dead = match one {
            _ if meets_zaps => self.detach_beside_zaps(edit, pages, note),
            Some(run) => self.replace_range(edit, near, pages, beside, [run].into_iter(), note),
            None => self.replace_range(edit, near, pages, beside, near.runs(pages), note),
        };
        let (tree, tables) = (&self.tree, &self.tables);
        let empty = edit.part().free_tables();
        let is_few = pages.len() <= INLINE_ZAP;
        let mut gap = None;
        let mut is_vacant = |span| {
            let gap = gap.get_or_insert_with(|| edit.look_beside(pages));
            gap.is_vacant(tree, span)
        };
        let is_done = match is_few {
            _ if meets_zaps => false,
            true => tables.take_at_once(pages, empty, &mut is_vacant, &mut after.taken),
            // Large ranges are often reserved and never used.
            false => !has_table && tables.is_unpopulated(pages, &mut is_vacant),
        };
        if is_done {
            let gap = gap.unwrap_or_else(|| edit.look_beside(pages));
            edit.empty(&gap);
        }
        after.end(edit, guard, pages, (!is_done).then_some(ZapScope::All));
    }

    /// With the new mapping already visible in `pages`: zaps the old pages, or leaves that to `after`.
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
            && tables.take_at_once(pages, FreeTables::None, &mut |_| false, &mut after.taken);
        if is_done {
            tree.show_replaced(edit, pages);
        }
        after.end(edit, guard, pages, (!is_done).then_some(ZapScope::Replaced));
    }
}

/// The work that an edit leaves to be done with no lock held.
pub(crate) struct AfterEdit<'a, M: Machine> {
    maps: &'a Mappings<M>,
    pages: Pages,
    had: u64,
    /// Mappings that have lost their last page.
    pub(crate) dead: DeadMappings,
    /// Pages that were zapped under the edit.
    taken: Taken,
    /// The pending unmaps of the edit, if no zap is pending.
    departure: UnmapGuard<'a, M>,
    pending: Option<PendingZap<'a, M>>,
}

impl<'a, M: Machine> AfterEdit<'a, M> {
    /// Creates an empty one.
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

    /// Releases a range, except for a zap that has to continue.
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

    /// Does the work, after the edit has ended. By reference, because the value is large.
    #[inline(always)]
    pub(crate) fn finish(&mut self) {
        let maps = self.maps;
        maps.trace_hold(self.had, self.pages);
        // Not under the edit, where other writers would wait for this, too.
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
