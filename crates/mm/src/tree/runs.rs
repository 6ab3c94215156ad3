//! Runs of pages that are mapped alike, for a writer that has their range and no edit lock.
//!
//! The range keeps what is mapped. Beside it a neighbour can replace nodes and splits, and another
//! zap's marks can go, so that each look is a read section of its own.

use faultless_paging::Pages;

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::tree::{Run, Tree};

impl Tree {
    /// The first run that ends behind `page`, cut to `limit`.
    pub(crate) fn run_in<M: Machine>(
        &self,
        memory: &Memory<M>,
        page: u64,
        limit: u64,
    ) -> Option<Run> {
        let _section = memory.enter();
        self.next_until(page, limit)
    }

    /// The first run of `pages` that is mapped.
    pub(crate) fn mapped_run<M: Machine>(&self, memory: &Memory<M>, pages: Pages) -> Option<Run> {
        let mut at = pages.start;
        loop {
            let run = self.run_in(memory, at, pages.end)?;
            at = run.pages.end;
            if !run.word.is_zapping() {
                return Some(run);
            }
        }
    }

    /// Whether nothing is mapped in `span`, where nothing is in `pages`.
    pub(crate) fn is_vacant_beside(&self, span: Pages, pages: Pages) -> bool {
        let before = Pages::new(span.start, pages.start.clamp(span.start, span.end));
        let behind = Pages::new(pages.end.clamp(span.start, span.end), span.end);
        // Mostly what is next to them is enough.
        let next = [before.end.checked_sub(1), Some(behind.start)];
        let is_mapped = |page: Option<u64>| {
            page.filter(|page| span.start <= *page && *page < span.end)
                .is_some_and(|page| self.find(page).word.is_mapped())
        };
        !next.into_iter().any(is_mapped) && self.is_unmapped(behind) && self.is_unmapped(before)
    }
}
