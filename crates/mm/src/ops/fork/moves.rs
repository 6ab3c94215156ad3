//! What a fork copies of pages that are just being moved: the child has them where they go.
//!
//! No move goes on meanwhile ([`crate::lock::moves`]), and no store reaches these pages: what was carried is in tables that
//! are frozen, and the rest was write-protected before.

use faultless_frames::NoMemory;
use faultless_paging::{ENTRIES, Pages, Table};

use crate::base::machine::Machine;
use crate::lock::moves::Move;
use crate::ops::fork::{Fork, Gets, copy_guard};
use crate::space::{AddressSpace, Note};
use crate::table::rss::RssDelta;
use crate::tree::Run;

impl<M: Machine> Fork<'_, M> {
    /// Of one of the parent's tables: copies, for a run of the child's that takes the place of something
    /// else in the parent, what was carried there.
    #[cold]
    pub(crate) fn copy_carried(&mut self, table: &Table, run: &Run) -> Result<(), NoMemory> {
        let (parent, moves) = (self.parent, self.moves);
        moves.try_for_each(|record| {
            let part = Run {
                pages: run.pages.and(record.carried(parent.machine())),
                word: run.word,
            };
            match part.pages.is_empty() {
                true => Ok(()),
                false => self.copy_run(table, &part, |value| parent.shown_to_child(record, value)),
            }
        })
    }

    /// Copies what was not carried yet, from where it was.
    pub(crate) fn copy_left(&mut self) -> Result<(), NoMemory> {
        let moves = self.moves;
        moves.try_for_each(|record| {
            // The child has at least one page elsewhere than where its parent had it when it was shared.
            self.parent.note(Note::MOVED);
            self.copy_left_of(record)
        })
    }

    fn copy_left_of(&mut self, record: &Move) -> Result<(), NoMemory> {
        let left = record.left(self.parent.machine());
        let goes_to = Pages::new(record.goes_to(left.start), record.goes_to(left.end));
        let child = self.child;
        for run in child.tree.runs(goes_to) {
            // SAFETY: nobody else changes the child.
            let mapping = unsafe { run.word.mapping() };
            let gets = mapping.map_or(Gets::Nothing, |mapping| self.gets_of(mapping.attributes()));
            if gets != Gets::Nothing {
                let pages = run.pages;
                let from = Pages::new(record.comes_from(pages.start), record.comes_from(pages.end));
                self.copy_pages(record, from, gets)?;
            }
        }
        Ok(())
    }

    /// Copies pages of a move's source, those together that are in one table here and there.
    fn copy_pages(&mut self, record: &Move, pages: Pages, gets: Gets) -> Result<(), NoMemory> {
        let (parent, format) = (self.parent, AddressSpace::<M>::FORMAT);
        let mut at = pages.start;
        while let Some(page) = parent.first_entry(Pages::new(at, pages.end)) {
            let to = record.goes_to(page);
            // Not in a section: this may need memory.
            let table = self.child_table(to & !(ENTRIES as u64 - 1))?;
            let rest = |page: u64| ENTRIES as u64 - page % ENTRIES as u64;
            let end = pages.end.min(page + rest(page).min(rest(to)));
            let zero = self.zero;
            let mut result = Ok(());
            let mut came = RssDelta::default();
            let _section = parent.memory.enter();
            parent.for_each_entry(Pages::new(page, end), &mut |entry, page| {
                let to = record.goes_to(page);
                let copy = &table.entries()[to as usize % ENTRIES];
                if gets == Gets::Guards {
                    copy_guard(entry, copy, format);
                } else if result.is_ok() {
                    let shown = |value| parent.shown_to_child(record, value);
                    result = self
                        .copy_entry(entry, (copy, to), zero, shown)
                        .map(|kind| came.add(kind));
                }
            });
            self.child.rss.came_all(parent.machine().cpu(), &came);
            result?;
            at = end;
        }
        Ok(())
    }
}
