//! The slots on either side of pages that an edit empties.
//!
//! Two questions have the same answer: how large the gap becomes, which the gap index must know, and whether a page
//! table over the pages has other users, which decides whether the zap can end under the edit. The neighbours are
//! looked up once for both.
//!
//! * Under one edit, slots of its lock domain do not change: the answer stays true as long as the edit.
//! * A neighbour that is being zapped counts as unmapped for a page table, so that of two neighbours one frees it.

use faultless_paging::Pages;

use crate::base::machine::Machine;
use crate::tree::iter::{Earlier, Later};
use crate::tree::node::span;
use crate::tree::{Edit, EditLocks, SlotValue, Subtree, Tree, edit};

/// The nearest slots on either side of pages that are not empty.
pub(crate) struct Beside {
    pages: Pages,
    /// All pages that the edit covers.
    domain: Pages,
    /// The end of the one before, and its value.
    before: Option<(u64, SlotValue)>,
    /// The start of the one behind, and its value.
    behind: Option<(u64, SlotValue)>,
}

impl Beside {
    /// Returns the gap around the pages, once they are empty.
    pub(super) fn hole(&self) -> Pages {
        let start = self.before.map_or(self.domain.start, |(end, _)| end);
        let end = self.behind.map_or(self.domain.end, |(start, _)| start);
        Pages::new(start, end)
    }

    /// Whether nothing is mapped in `span`, provided that nothing is mapped in the pages.
    pub(crate) fn is_vacant(&self, tree: &Tree, span: Pages) -> bool {
        let before = self.before.filter(|(end, _)| *end > span.start);
        let behind = self.behind.filter(|(start, _)| *start < span.end);
        let words = || [before, behind].into_iter().flatten().map(|(_, word)| word);
        // The slots beyond a zapped one decide, and those of a shard.
        let is_open = |word: SlotValue| word.is_zapping() || word == SlotValue::SHARD;
        if !words().all(is_open) {
            return false;
        }
        let is_known = self.domain.start <= span.start && span.end <= self.domain.end;
        is_known && words().next().is_none() || tree.is_vacant_beside(span, self.pages)
    }
}

impl<M: Machine, L: EditLocks> Edit<'_, M, L> {
    /// Looks up the neighbours of `pages`.
    pub(crate) fn look_beside(&self, pages: Pages) -> Beside {
        self.stem.look_beside(pages)
    }

    /// Empties the pages of which `beside` has the neighbours, under the edit that has looked them up.
    pub(crate) fn empty(&mut self, beside: &Beside) {
        if !beside.pages.is_empty() {
            edit::fill(self.memory, self.stem, beside.pages, SlotValue::EMPTY);
            self.hole_opened(beside.hole());
        }
    }
}

impl Subtree {
    fn look_beside(&self, pages: Pages) -> Beside {
        // Of few pages both neighbours are mostly near. Beside many lies a large gap, or another node.
        let is_few = pages.len() <= span(1);
        let near = if is_few { self.around(pages) } else { *self };
        let before = |stem: &Subtree| {
            let spot = stem.nearest::<Earlier>(pages.start.checked_sub(1)?, u64::MAX)?;
            Some((spot.page + 1, spot.word))
        };
        let behind = |stem: &Subtree| {
            let spot = stem.nearest::<Later>(pages.end, stem.end())?;
            Some((spot.page, spot.word))
        };
        Beside {
            pages,
            domain: self.pages(),
            before: before(&near).or_else(|| if is_few { before(self) } else { None }),
            behind: behind(&near).or_else(|| if is_few { behind(self) } else { None }),
        }
    }
}
