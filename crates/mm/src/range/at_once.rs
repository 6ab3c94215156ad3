//! Few pages, or one mapping, of which nobody has anything are detached at once: under one edit, and
//! one look at the list of ranges, in which they are taken as *zapping* from the beginning.
//!
//! Who is alone has no use for a range of his own between the two: nobody could come to it but by the
//! list, and that is locked until the slots say that he zaps there. It is for what takes not
//! long, as the list is locked meanwhile, and only where nothing else is asked for: no mmap lock, no seals to be
//! looked for, no devices that wait for it.
//!
//! Written lines: those of the list, the tree's slots, mappings' page counts, and the account.

use faultless_paging::Pages;
use faultless_sync::ZapGuard;
use faultless_trace::Counter;

use super::span;
use crate::arena::Part;
use crate::machine::Machine;
use crate::space::{AddressSpace, Note};
use crate::tree::{Edit, PAGES, Word};
use crate::zap::SMALL;

/// Pages that are few, whatever is mapped there.
const FEW: u64 = if cfg!(shuttle) { 2 } else { SMALL };
/// The most that are detached at once.
const MOST: u64 = if cfg!(shuttle) { 3 } else { PAGES };

impl<M: Machine> AddressSpace<M> {
    /// Unmaps `pages`, if they can be detached at once; whether they were. Otherwise nothing has
    /// changed, and the caller takes the range.
    #[inline]
    pub(crate) fn unmap_at_once(&self, pages: Pages) -> bool {
        let part = self.part_of(pages);
        if pages.len() > MOST || part == Part::All || self.policy().holds_mmap_lock() {
            return false;
        }
        // If not, nobody has to wait for the look that counts.
        let looks_unused = pages.len() > SMALL && self.looks_unused(pages);
        let mut edit = self.edit(part);
        let start = self.trace_start();
        if self.part_of(pages) != part
            || self.has_note(Note::SEALED)
            || self.has_note(Note::DEVICES)
        {
            return false;
        }
        let list = self.list_of(part);
        let zap = list.try_zap(span(pages), self.machine(), |place| {
            self.detach_alone(&mut edit, pages, Word::zapping(part.writer(place)))
        });
        let Some(zap) = zap else {
            return false;
        };
        self.memory.count(Counter::Munmap);
        if looks_unused && self.has_nothing(pages) {
            // As large ranges often are: reserved, and never used.
            edit.fill(pages, Word::EMPTY);
            drop(zap);
            drop(edit);
            self.trace_hold(start, pages);
            return true;
        }
        drop(edit);
        self.trace_hold(start, pages);
        let number = part.writer(zap.place());
        self.clear_away(part, pages, number, false, zap, ZapGuard::leave);
        true
    }

    /// Whether something was mapped in `pages` that is quickly detached, and now says `note`.
    #[inline]
    fn detach_alone(&self, edit: &mut Edit<'_, M>, pages: Pages, note: Word) -> bool {
        let near = edit.around(pages);
        let is_quick = match pages.len() <= FEW {
            true => !near.is_unmapped(pages),
            false => {
                let run = near.next_until(pages.start, pages.end);
                run.is_some_and(|run| run.pages == pages)
            }
        };
        let is_cut = is_quick
            && self.check_split(edit, pages, None).is_ok()
            && edit.cut_below(&near, pages).is_ok();
        if is_cut {
            self.assign_below(edit, &near, pages, note);
        }
        is_cut
    }
}
