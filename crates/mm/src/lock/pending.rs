//! Unmapping in two phases: what is mapped goes at once, its pages afterwards.
//!
//! A writer that has a range *detaches* it: cuts it, and lets the slots of what is mapped say that
//! he zaps there. From then on no fault finds a mapping, and every operation finds a hole. He then
//! gives up the range, and takes the pages away ([`crate::table::zap`]), flushes, frees tables, all with
//! nothing held; at last he clears his notes. Until that is done nothing new is mapped there, which
//! is all that anybody waits for.
//!
//! Ranges of several who zap may overlap: each has noted, and zaps, only what was mapped when he
//! came. The note says whose it is. Before `munmap` returns it waits, with nothing held, for those
//! who came before to the same pages: what it has unmapped no TLB lets through any more (rule R2).
//!
//! Where something takes the place of what is mapped, slots lead to that at once, marked as
//! *replacing* until the old pages are gone. A fault waits, as for a writer at work, and so does
//! every writer but those who have all ranges and ask for no page: a fork gives its child the
//! mapping and nothing of the pages, `mlockall` changes the mapping and keeps the mark.
//!
//! A large range was often reserved and never used. If neither a page nor a table is found under it
//! once it says that it is zapped, it is empty at once, under the same edit.
//!
//! A fork needs the tree to be still while it copies it. Who is done meanwhile *leaves* his notes
//! to it, and goes ([`Mappings::end_left_zaps`]).
//!
//! Written lines: the tree's slots, under the edit lock; the lock of the list of ranges; what a zap
//! writes.
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

/// What a zap takes away, and what the slots are afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ZapScope {
    /// All pages, which are unmapped: empty.
    All,
    /// Those that the writer has noted, as others zap there, too: these are empty.
    Noted,
    /// The pages from under what takes their place: that is live.
    Replaced,
}

/// A zap that goes on after the edit that has shown it.
#[must_use]
pub(crate) struct PendingZap<'a, M: Machine> {
    space: &'a Mappings<M>,
    scope: ZapScope,
    zap: Zap<'a, M>,
    /// Under `classic` and `vma-lock`.
    guard: Option<MmapHold<'a, M>>,
}

impl<M: Machine> Mappings<M> {
    /// Unmaps `pages`, whose ends were cut, for a writer that has them: they say that it zaps
    /// there. Under the same edit the list of ranges has to say so, too ([`RangeWriteGuard::announce_zap`]).
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

    /// The same for a writer with this note, where others zap, too; what has lost its last page by that.
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
                dead.append(self.replace_range(edit, &near, part, near.runs(part), note));
            }
            at = others.end;
        }
        dead
    }

    /// Clears what is noted for zaps that were left to a fork, which has let the tree change again.
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

    /// Says that those zaps have ended, under no edit.
    pub(crate) fn say_ended(&self, left: &DeferredMarks) {
        for (list, left) in self.lists().zip(&left.0) {
            if !left.is_empty() {
                list.end_left(left, self.machine());
            }
        }
    }

    /// Clears, in a child that has just been copied from this space, the notes that were copied.
    pub(crate) fn clear_notes_of_child(&self, child: &Self) {
        self.for_each_noted(&mut |number, _, pages, place| {
            let mut edit = child.edit(LockDomain::Central);
            let note = SlotValue::zapping(number * PLACES + place);
            child.tree.clear_notes(&mut edit, pages, note);
        });
    }

    /// Has an edit of its own let the slots of a zap's pages be what they are when it has ended, and ends it; or
    /// leaves it to a fork. What has left the tree departs until nothing is locked.
    #[inline(always)]
    fn end_zap(&self, zap: &mut Zap<'_, M>, show: impl FnOnce(&mut Edit<'_, M>)) {
        let mut edit = self.edit(zap.part);
        let start = self.memory.trace_start();
        if edit.is_frozen() {
            // Under the edit lock, so that the fork finds it when it takes that.
            zap.leave();
        } else {
            show(&mut edit);
        }
        drop(edit);
        zap.end();
        self.trace_hold(start, zap.pages);
    }

    /// Reads what will be read under an edit of `pages`, so that nobody else has to wait for what comes from
    /// memory that is far away.
    pub(crate) fn read_ahead(&self, part: LockDomain, pages: Pages) {
        let _section = self.memory.enter();
        // Of the node around them only that: it may be leaving the tree, so that others are looked for from
        // the root.
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
        // For the code as much as for what is read: it is asked again where the answer counts.
        drop(
            self.list_of(part)
                .try_keep_out([span(pages)], self.machine()),
        );
        match (part, self.arenas()) {
            (LockDomain::Shard(number), Some(arenas)) => arenas.get(number).account.get(),
            _ => self.account.get(),
        };
    }

    /// Nobody else could change `pages` from `start` until now. Recorded where that is over.
    #[inline(always)]
    pub(crate) fn trace_hold(&self, start: u64, pages: Pages) {
        let address = pages.start * PAGE_SIZE;
        self.memory
            .trace_end(Kind::RangeHold, start, address, pages.len() * PAGE_SIZE, 0);
    }

    /// All lists: the space's own, and those of arenas.
    fn lists(&self) -> impl Iterator<Item = &RangeLock> {
        let arenas = self.arenas().into_iter().flat_map(Shards::all);
        core::iter::once(&*self.ranges).chain(arenas.map(|arena| &*arena.ranges))
    }

    /// Calls `visit` for all zaps that go on, or were left: with the number of the list, the list,
    /// the pages, and the place there.
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

/// Lists of ranges that a space may have.
const LISTS: usize = 1 + SHARDS;

/// Zaps that were left, and of which there are no notes any more; for each list.
pub(crate) struct DeferredMarks([Set; LISTS]);

impl Tree {
    /// Lets faults go on in those of `pages` that are replacing.
    pub(crate) fn show_replaced<M: Machine>(&self, edit: &mut Edit<'_, M>, pages: Pages) {
        let mut at = pages.start;
        while let Some(run) = self.next_until(at, pages.end) {
            at = run.pages.end;
            if run.word.is_replacing() {
                edit.fill(run.pages, run.word.replaced());
            }
        }
    }

    /// Empties those slots of `pages` that hold a note.
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

    /// What has left the tree by it.
    pub(crate) fn departure(&self) -> &UnmapGuard<'a, M> {
        self.zap.departure()
    }

    /// Takes the pages away; then there may be something new. Under no edit. Rule R1's fence is that of
    /// the sections in which entries are looked at.
    pub(crate) fn finish(mut self) {
        self.finish_beside(Taken::new());
    }

    /// The same where some were `taken` already.
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
    /// Takes away those of `pages` that hold this note: others zap there, too.
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
