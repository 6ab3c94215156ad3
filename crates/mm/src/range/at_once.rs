//! Few pages, or one mapping, of which nobody has anything are detached at once: under one edit, and
//! one look at the list of ranges, in which they are taken as *zapping* from the beginning.
//!
//! Who is alone has no use for a range of his own between the two: nobody could come to it but by the
//! list, and that is locked until the slots say that he zaps there. So it is only for what takes not
//! long: few slots, and what they pointed to is let go of afterwards. And only where nothing else is
//! asked for: no mmap lock, no seals to be looked for, no devices that wait for it. Whether there are
//! any is noted before the slot that leads to the first one, so that it is seen under the edit.
//!
//! Written lines: those of the list, the tree's slots, mappings' page counts, and the account.

use faultless_paging::Pages;
use faultless_sync::{Flaw, ZapGuard, flawed};
use faultless_trace::Counter;

use super::span;
use crate::arena::Part;
use crate::assign::Orphans;
use crate::machine::Machine;
use crate::space::{AddressSpace, Note};
use crate::tree::{Edit, PAGES, Word};
use crate::zap::SMALL;

/// Pages that are few, whatever is mapped there.
const FEW: u64 = if cfg!(shuttle) { 2 } else { SMALL };
/// Pages that are many, if they are used: a table is over none but them.
const MANY: u64 = if cfg!(shuttle) { 2 } else { 1 << 12 };
/// The most that are detached at once.
const MOST: u64 = if cfg!(shuttle) { 3 } else { PAGES };

impl<M: Machine> AddressSpace<M> {
    /// Unmaps `pages`, if they can be detached at once; whether they were. Otherwise nothing has
    /// changed, and the caller takes the range.
    #[inline]
    pub(crate) fn unmap_at_once(&self, pages: Pages) -> bool {
        let part = self.part_of(pages);
        let asks_for_more = || self.has_note(Note::NOT_AT_ONCE);
        let is_elsewhere = part == Part::All || self.policy().holds_mmap_lock();
        if pages.len() > MOST || is_elsewhere || asks_for_more() {
            return false;
        }
        // If so there is little else in the caches; and nobody has to wait for a look that is in vain.
        let is_used = pages.len() > MANY && self.looks_used(pages.start.midpoint(pages.end));
        if is_used {
            self.read_ahead(part, pages);
        }
        if !cfg!(loom) && part == Part::Central && self.tree.is_edited() {
            self.note_crowd(pages);
        }
        let mut edit = self.edit(part);
        let had = self.trace_start();
        let has_changed = self.part_of(pages) != part && !flawed(Flaw::PartChosenOnce);
        if has_changed || asks_for_more() {
            return false;
        }
        let list = self.list_of(part);
        let mut orphans = Orphans::NONE;
        let zap = list.try_zap(span(pages), self.machine(), |place| {
            let note = Word::zapping(part.writer(place));
            let detached = self.detach_alone(&mut edit, pages, note);
            detached.map(|detached| orphans = detached).is_some()
        });
        let Some(zap) = zap else {
            return false;
        };
        self.retire_orphans(orphans, edit.doomed());
        let is_unused = pages.len() > SMALL && !is_used && self.has_nothing(pages);
        if is_unused {
            // As large ranges often are: reserved, and never used.
            edit.fill(pages, Word::EMPTY);
        }
        drop(edit);
        self.trace_hold(had, pages);
        self.memory.count(Counter::Munmap);
        if !is_unused {
            let number = part.writer(zap.place());
            self.clear_away(part, pages, number, false, zap, ZapGuard::leave);
        }
        true
    }

    /// Lets the slots of `pages` say `note`, if something is mapped there that is quickly detached; what
    /// has lost its last page.
    #[inline]
    fn detach_alone(&self, edit: &mut Edit<'_, M>, pages: Pages, note: Word) -> Option<Orphans> {
        let near = edit.around(pages);
        let is_few = pages.len() <= FEW;
        let one = if is_few { None } else { near.one_run(pages) };
        let is_quick = one.is_some() || is_few && !near.is_unmapped(pages);
        let is_cut = is_quick
            && self.check_split(edit, pages, None).is_ok()
            && edit.cut_below(&near, pages).is_ok();
        is_cut.then(|| match one {
            Some(run) => self.repoint(edit, &near, pages, [run].into_iter(), note),
            None => self.repoint(edit, &near, pages, near.runs(pages), note),
        })
    }
}
