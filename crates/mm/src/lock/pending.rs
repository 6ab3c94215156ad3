//! Unmapping in two phases: first the mappings, then their pages.
//!
//! A writer that holds a range *detaches* it: it cuts the ends, and marks the slots of what is mapped as
//! *zapping*. From then on no fault finds a mapping, and every operation finds a hole. The writer then
//! releases the range. With nothing held it zaps the pages ([`crate::table::zap`]), flushes, frees tables,
//! and at last clears its marks. Until then, only a new mapping in the range waits.
//!
//! Zap ranges may overlap. Each zap marks, and frees, only what was mapped when it started; the mark has the
//! number of its writer. Before `munmap` returns it waits, with nothing held, for earlier zaps of the same
//! pages: no TLB lets an access through to what it has unmapped (rule R2).
//!
//! A replacement points the slots to the new mapping immediately, marked as *replacing* until the old pages
//! are gone. A fault there waits, as for a writer at work. So does every writer, except an operation that
//! holds all ranges and touches no page: a fork gives its child the mapping and none of the pages, `mlockall`
//! changes the mapping and keeps the mark.
//!
//! Large ranges are often reserved and never used. If such a range has neither a page nor a table once its
//! slots say *zapping*, it is emptied under the same edit.
//!
//! A fork needs a tree that does not change while it copies it. A zap that ends meanwhile *leaves* its marks
//! for the fork to clear ([`Mappings::end_left_zaps`]).
//!
//! *Writes*: the tree's slots, under the edit lock; the lock of the range list; the lines that a zap writes.
//!
//! *Models*: loom `lock/zaps.rs`, shuttle `lock/zaps.rs`.

use faultless_paging::{PAGE_SIZE, Pages};
use faultless_sync::{PLACES, RangeLock, Set, cond_resched};
use faultless_trace::Kind;

use crate::base::machine::Machine;
use crate::lock::change::ChangeGuard;
use crate::lock::departing::UnmapGuard;
use crate::lock::edit::DeadMappings;
use crate::lock::shard::{LockDomain, SHARDS, Shards};
use crate::lock::{Edit, Mappings, MmapHold, RangeWriteGuard, Zap, span};
use crate::table::free::FreeTables;
use crate::table::taken::Taken;
use crate::tree::{SlotValue, Tree};
use crate::tune::ZAP_MANY;

/// What a zap frees, and what the slots hold afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ZapScope {
    /// All pages of the range, which is unmapped. The slots become empty.
    All,
    /// Pages under the writer's own marks, where other zaps may run, too. These slots become empty.
    Noted,
    /// The old pages under a replacement. Its slots become live.
    Replaced,
}

/// A zap that continues after the edit that made it visible.
#[must_use]
pub(crate) struct PendingZap<'a, M: Machine> {
    space: &'a Mappings<M>,
    scope: ZapScope,
    zap: Zap<'a, M>,
    /// Held under `classic` and `vma-lock`.
    guard: Option<MmapHold<'a, M>>,
}

impl<M: Machine> Mappings<M> {
    /// Unmaps `pages`, which the writer holds and which are cut at both ends: marks their slots as zapped by
    /// it. The zap must be announced under the same edit ([`RangeWriteGuard::announce_zap`]).
    pub(crate) fn detach(
        &self,
        lock: &RangeWriteGuard<'_, M>,
        edit: &mut Edit<'_, M>,
        pages: Pages,
    ) {
        let note = SlotValue::zapping(lock.writer());
        if !lock.meets_zaps() {
            return self.set_range(edit, pages, note);
        }
        let dead = self.detach_beside_zaps(edit, pages, note);
        self.retire_orphans(dead, edit.departure());
    }

    /// The same for a writer with this mark, where other zaps run, too. Returns the mappings that have lost
    /// their last page.
    #[cold]
    pub(crate) fn detach_beside_zaps(
        &self,
        edit: &mut Edit<'_, M>,
        pages: Pages,
        note: SlotValue,
    ) -> DeadMappings {
        let mut dead = DeadMappings::none();
        let mut at = pages.start;
        while at < pages.end {
            let mut runs = self.tree.runs(Pages::new(at, pages.end));
            let others = runs.find(|run| run.word.is_zapping());
            let others = others.map_or(Pages::new(pages.end, pages.end), |run| run.pages);
            let part = edit.extent(Pages::new(at, others.start));
            if !part.is_empty() {
                let near = edit.around(part);
                let (beside, runs) = (near.beside_below(part), near.runs(part));
                dead.append(self.replace_range(edit, &near, part, beside, runs, note));
            }
            at = others.end;
        }
        dead
    }

    /// Clears the marks of zaps that were left to a fork, once the fork has let the tree change again.
    /// Returns these zaps.
    pub(crate) fn end_left_zaps(&self, edit: &mut Edit<'_, M>) -> DeferredMarks {
        let mut left = DeferredMarks([Set::default(); LISTS]);
        self.for_each_noted(&mut |number, list, pages, place| {
            if list.is_left(place, self.machine()) {
                let note = SlotValue::zapping(number * PLACES + place);
                self.tree.clear_notes(edit, pages, note);
                let is_all_own = list.is_replacing(place, self.machine());
                if is_all_own {
                    self.tree.show_replaced(edit, pages);
                }
                left.0[number].insert(place);
            }
        });
        left
    }

    /// Ends these zaps in the range lists. Under no edit.
    pub(crate) fn say_ended(&self, left: &DeferredMarks) {
        for (list, left) in self.lists().zip(&left.0) {
            if !left.is_empty() {
                list.end_left(left, self.machine());
            }
        }
    }

    /// Clears the marks that were copied into a new child of this space.
    pub(crate) fn clear_notes_of_child(&self, child: &Self) {
        self.for_each_noted(&mut |number, _, pages, place| {
            let mut edit = child.edit(LockDomain::Central);
            let note = SlotValue::zapping(number * PLACES + place);
            child.tree.clear_notes(&mut edit, pages, note);
        });
    }

    /// Ends a zap: under an edit of its own, `show` sets the slots of its pages to their final values. While
    /// a fork freezes the tree, leaves the marks to the fork. The pending unmaps end with no lock held.
    #[inline(always)]
    fn end_zap(&self, zap: &mut Zap<'_, M>, show: impl FnOnce(&mut Edit<'_, M>)) {
        let mut edit = self.edit(zap.part);
        let start = self.memory.trace_start();
        if edit.is_frozen() {
            // Under the edit lock, so that the fork finds the zap once it takes that lock.
            zap.leave();
        } else {
            show(&mut edit);
        }
        drop(edit);
        zap.end();
        self.trace_hold(start, zap.pages);
    }

    /// Prefetches what an edit of `pages` will read, so that other writers do not wait for its cache misses.
    pub(crate) fn read_ahead(&self, part: LockDomain, pages: Pages) {
        let _section = self.memory.enter();
        // Read only this of the node around them: the node may be leaving the tree. The other lookups start
        // from the root.
        self.tree.around(pages).is_in_use();
        let before = self.tree.last_before(pages.start);
        let behind = self.tree.next_slot(pages.end);
        for run in [before, self.tree.one_run(pages), behind]
            .into_iter()
            .flatten()
        {
            // SAFETY: read in this section.
            if let Some(mapping) = unsafe { run.word.mapping() } {
                mapping.pages();
            }
        }
        // Warms the code as well as the data. The answer is asked for again where it counts.
        drop(
            self.list_of(part)
                .try_keep_out([span(pages)], self.machine()),
        );
        match (part, self.shards()) {
            (LockDomain::Shard(number), Some(shards)) => shards.get(number).account.get(),
            _ => self.account.get(),
        };
    }

    /// Records that no other operation could change `pages` from `start` until now. Called once that is over.
    #[inline(always)]
    pub(crate) fn trace_hold(&self, start: u64, pages: Pages) {
        let address = pages.start * PAGE_SIZE;
        self.memory
            .trace_end(Kind::RangeHold, start, address, pages.len() * PAGE_SIZE, 0);
    }

    /// Returns all range lists: the space's own, then those of shards.
    fn lists(&self) -> impl Iterator<Item = &RangeLock> {
        let shards = self.shards().into_iter().flat_map(Shards::all);
        core::iter::once(&*self.ranges).chain(shards.map(|shard| &*shard.ranges))
    }

    /// Calls `visit` for all zaps and replacements that are running or were left. Arguments: the number of
    /// the list, the list, the pages, the list slot.
    fn for_each_noted(&self, visit: &mut dyn FnMut(usize, &RangeLock, Pages, usize)) {
        for (number, list) in self.lists().enumerate() {
            for place in list.zaps(self.machine()).iter() {
                for range in list.ranges_of(place, self.machine()) {
                    let pages = Pages::new(range.start, range.end);
                    if !pages.is_empty() {
                        visit(number, list, pages, place);
                    }
                }
            }
        }
    }
}

/// The most range lists of a space.
const LISTS: usize = 1 + SHARDS;

/// Zaps that were left and have no marks any more, for each list.
pub(crate) struct DeferredMarks([Set; LISTS]);

impl Tree {
    /// Clears the replacing marks in `pages`, so that faults there proceed.
    pub(crate) fn show_replaced<M: Machine>(&self, edit: &mut Edit<'_, M>, pages: Pages) {
        let mut at = pages.start;
        while let Some(run) = self.next_until(at, pages.end) {
            at = run.pages.end;
            if run.word.is_replacing() {
                edit.fill(run.pages, run.word.replaced());
            }
        }
    }

    /// Empties those slots of `pages` that hold this mark.
    fn clear_notes<M: Machine>(&self, edit: &mut Edit<'_, M>, pages: Pages, note: SlotValue) {
        let mut at = pages.start;
        while let Some(run) = self.next_until(at, pages.end) {
            at = run.pages.end;
            if run.word == note {
                edit.fill(run.pages, SlotValue::EMPTY);
            }
        }
    }
}

impl<'a, M: Machine> PendingZap<'a, M> {
    pub(crate) fn new(
        space: &'a Mappings<M>,
        scope: ZapScope,
        zap: Zap<'a, M>,
        guard: Option<MmapHold<'a, M>>,
    ) -> Self {
        Self {
            space,
            scope,
            zap,
            guard,
        }
    }

    /// Returns its pending unmaps.
    pub(crate) fn departure(&self) -> &UnmapGuard<'a, M> {
        self.zap.departure()
    }

    /// Zaps the pages. Afterwards, new mappings may appear. Under no edit. Rule R1's fence is that of the
    /// read sections in which entries are examined.
    pub(crate) fn finish(mut self) {
        self.finish_beside(Taken::new());
    }

    /// The same if some pages were `taken` already.
    pub(crate) fn finish_beside(&mut self, taken: Taken) {
        let &mut Self {
            space,
            scope,
            ref mut zap,
            ref mut guard,
        } = self;
        let (part, pages, note) = (zap.part, zap.pages, SlotValue::zapping(zap.number()));
        let (tree, tables) = (&space.tree, &space.tables);
        let start = space.memory.trace_start();
        match scope {
            ZapScope::All => tables.zap_rest(tree, pages, part.free_tables(), taken),
            ZapScope::Replaced => tables.zap_rest(tree, pages, FreeTables::None, taken),
            ZapScope::Noted => {
                debug_assert!(taken.is_none(), "not beside others");
                space.zap_noted(part, pages, note);
            }
        }
        tables.trace_zap(start, pages);
        if pages.len() > ZAP_MANY && scope != ZapScope::Replaced {
            space.read_ahead(part, pages);
        }
        space.end_zap(zap, |edit| match scope {
            ZapScope::All => edit.fill(pages, SlotValue::EMPTY),
            ZapScope::Noted => tree.clear_notes(edit, pages, note),
            ZapScope::Replaced => tree.show_replaced(edit, pages),
        });
        drop(guard.take());
        if scope == ZapScope::Noted {
            space.await_zaps(pages);
        }
    }
}

impl<M: Machine> Mappings<M> {
    /// Zaps those of `pages` that hold this mark, where other zaps may run, too.
    fn zap_noted(&self, part: LockDomain, pages: Pages, note: SlotValue) {
        let mut at = pages.start;
        while let Some(run) = self.run_in(at, pages.end) {
            at = run.pages.end;
            if run.word == note {
                self.tables.zap(&self.tree, run.pages, part.free_tables());
            }
            if at < pages.end {
                cond_resched(self.machine());
            }
        }
    }
}
