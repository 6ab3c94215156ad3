//! Unmapping in two phases: what is mapped goes at once, its pages afterwards.
//!
//! A writer that has a range *detaches* it: cuts it, and lets the slots of what is mapped say that
//! he zaps there. From then on no fault finds a mapping, and every operation finds a hole. He then
//! gives up the range, and takes the pages away ([`crate::zap`]), flushes, frees tables, all with
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
//! A fork needs the tree to be still while it copies it. Who is done meanwhile *leaves* his notes
//! to it, and goes ([`AddressSpace::end_left_zaps`]).
//!
//! Written lines: the tree's slots, under the edit lock; what a zap writes.

use faultless_paging::{PAGE_SIZE, Pages};
use faultless_sync::{PLACES, ZapGuard};
use faultless_trace::Kind;

use crate::machine::Machine;
use crate::range::{MmapHold, RangeLock, settle};
use crate::space::AddressSpace;
use crate::tree::{Edit, Tree, Word};

/// A zap that goes on.
pub(crate) struct Zapping<'a, M: Machine> {
    space: &'a AddressSpace<M>,
    pages: Pages,
    /// Whether others may have notes in the range.
    is_beside_others: bool,
    zap: ZapGuard<'a, M>,
    /// Under `classic` and `vma-lock`.
    guard: Option<MmapHold<'a, M>>,
}

impl<M: Machine> AddressSpace<M> {
    /// Unmaps `pages`, whose ends were cut, for a writer that has them: they say that he zaps
    /// there. Under the same edit the list of ranges has to say so, too ([`RangeLock::begin_zap`],
    /// [`RangeLock::announce_zap`]).
    pub(crate) fn detach(&self, lock: &RangeLock<'_, M>, edit: &mut Edit<'_, M>, pages: Pages) {
        let note = Word::zapping(lock.place());
        if !lock.meets_zaps() {
            return self.assign(edit, pages, note);
        }
        let mut at = pages.start;
        while at < pages.end {
            let mut runs = self.tree.runs(Pages::new(at, pages.end));
            let others = runs.find(|run| run.word.is_zapping());
            let others = others.map_or(Pages::new(pages.end, pages.end), |run| run.pages);
            let part = self.tree.extent(Pages::new(at, others.start));
            if !part.is_empty() {
                self.assign(edit, part, note);
            }
            at = others.end;
        }
    }

    /// Clears what is noted for zaps that were left to a fork, which has let the tree change again.
    pub(crate) fn end_left_zaps(&self, edit: &mut Edit<'_, M>) -> Left {
        let mut left = Left(0);
        for (pages, place) in self.zaps_noted().into_iter().flatten() {
            if self.ranges.is_left(place, self.machine()) {
                self.tree.clear_notes(edit, pages, Word::zapping(place));
                self.tree.show_replaced(edit, pages);
                left.0 |= 1 << place;
            }
        }
        left
    }

    /// Says that those zaps have ended, under no edit.
    pub(crate) fn say_ended(&self, left: &Left) {
        self.ranges.end_left(left.0, self.machine());
    }

    /// Clears, in a child that has just been copied from this space, the notes that were copied.
    pub(crate) fn clear_notes_of_child(&self, child: &Self) {
        for (pages, place) in self.zaps_noted().into_iter().flatten() {
            let mut edit = child.tree.edit(child.memory);
            child
                .tree
                .clear_notes(&mut edit, pages, Word::zapping(place));
        }
    }

    fn trace_zap(&self, start: u64, pages: Pages) {
        let address = pages.start * PAGE_SIZE;
        self.trace_end(Kind::Zap, start, address, pages.len() * PAGE_SIZE, 0);
    }

    /// Where zaps go on or were left, by place.
    fn zaps_noted(&self) -> [Option<(Pages, usize)>; PLACES] {
        let mut noted = [None; PLACES];
        self.ranges.for_each_zap(self.machine(), |range, place| {
            noted[place] = Some((Pages::new(range.start, range.end), place));
        });
        noted
    }
}

/// Zaps that were left, and of which there are no notes any more; a bit for each place.
pub(crate) struct Left(u64);

impl Tree {
    /// Lets faults go on in those of `pages` that are replacing.
    fn show_replaced<M: Machine>(&self, edit: &mut Edit<'_, M>, pages: Pages) {
        let mut at = pages.start;
        while let Some(run) = self.next_until(at, pages.end) {
            at = run.pages.end;
            if run.word.is_replacing() {
                edit.fill(run.pages, run.word.replaced());
            }
        }
    }

    /// Empties those slots of `pages` that hold a note.
    fn clear_notes<M: Machine>(&self, edit: &mut Edit<'_, M>, pages: Pages, note: Word) {
        let mut at = pages.start;
        while let Some(run) = self.next_until(at, pages.end) {
            at = run.pages.end;
            if run.word == note {
                edit.fill(run.pages, Word::EMPTY);
            }
        }
    }
}

/// Pages that are taken away from under what has taken their place.
pub(crate) struct Replacing<'a, M: Machine> {
    space: &'a AddressSpace<M>,
    pages: Pages,
    zap: ZapGuard<'a, M>,
    /// Under `classic` and `vma-lock`.
    guard: Option<MmapHold<'a, M>>,
}

impl<'a, M: Machine> Replacing<'a, M> {
    pub(crate) fn new(
        space: &'a AddressSpace<M>,
        pages: Pages,
        zap: ZapGuard<'a, M>,
        guard: Option<MmapHold<'a, M>>,
    ) -> Self {
        Self {
            space,
            pages,
            zap,
            guard,
        }
    }

    /// Takes the old pages away; then there may be new ones.
    pub(crate) fn finish(self) {
        let Self { space, pages, .. } = self;
        let start = space.trace_start();
        space.zap(pages, false);
        space.trace_zap(start, pages);
        let mut edit = space.tree.edit(space.memory);
        if edit.is_still() {
            self.zap.leave();
            return;
        }
        space.tree.show_replaced(&mut edit, pages);
        drop(edit);
        drop(self.zap);
        drop(self.guard);
    }
}

impl<'a, M: Machine> Zapping<'a, M> {
    pub(crate) fn new(
        space: &'a AddressSpace<M>,
        pages: Pages,
        is_beside_others: bool,
        zap: ZapGuard<'a, M>,
        guard: Option<MmapHold<'a, M>>,
    ) -> Self {
        Self {
            space,
            pages,
            is_beside_others,
            zap,
            guard,
        }
    }

    /// Takes the pages away; then something new may be mapped. Under no edit.
    pub(crate) fn finish(self) {
        let Self { space, pages, .. } = self;
        settle();
        let note = Word::zapping(self.zap.place());
        let start = space.trace_start();
        if self.is_beside_others {
            let mut at = pages.start;
            while let Some(run) = space.run_in(at, pages.end) {
                at = run.pages.end;
                if run.word == note {
                    space.zap(run.pages, true);
                }
            }
        } else {
            space.zap(pages, true);
        }
        space.trace_zap(start, pages);
        let mut edit = space.tree.edit(space.memory);
        if edit.is_still() {
            // Under the edit lock, so that the fork finds it when it takes that.
            self.zap.leave();
            drop(edit);
        } else {
            match self.is_beside_others {
                true => space.tree.clear_notes(&mut edit, pages, note),
                false => edit.fill(pages, Word::EMPTY),
            }
            drop(edit);
            drop(self.zap);
        }
        drop(self.guard);
        if self.is_beside_others {
            space.await_zaps(pages);
        }
    }
}
