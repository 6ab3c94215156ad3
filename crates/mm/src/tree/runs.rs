//! Runs of pages that are mapped alike, for a writer that holds their range but no edit lock.
//!
//! The range lock keeps the mappings. Meanwhile a neighbouring writer can replace nodes and splits, and
//! another zap can clear its marks. Each lookup is therefore a read section of its own.

use faultless_paging::Pages;

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::tree::{Run, Tree};

impl Tree {
    /// Returns the first run that ends behind `page`, cut to `limit`.
    pub(crate) fn run_in<M: Machine>(
        &self,
        memory: &Memory<M>,
        page: u64,
        limit: u64,
    ) -> Option<Run> {
        let _section = memory.enter();
        self.next_until(page, limit)
    }

    /// Returns the first mapped run of `pages`.
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

    /// Whether nothing is mapped in `span`, provided that nothing is mapped in `pages`.
    pub(crate) fn is_vacant_beside(&self, span: Pages, pages: Pages) -> bool {
        let before = Pages::new(span.start, pages.start.clamp(span.start, span.end));
        let behind = Pages::new(pages.end.clamp(span.start, span.end), span.end);
        // Mostly the pages next to `pages` decide.
        let next = [before.end.checked_sub(1), Some(behind.start)];
        let is_mapped = |page: Option<u64>| {
            page.filter(|page| span.start <= *page && *page < span.end)
                .is_some_and(|page| self.find(page).word.is_mapped())
        };
        !next.into_iter().any(is_mapped) && self.is_unmapped(behind) && self.is_unmapped(before)
    }
}
