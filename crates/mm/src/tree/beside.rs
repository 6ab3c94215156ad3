//! The slots on either side of pages that an edit empties.
//!
//! Two questions have the same answer: how large the gap becomes, which the gap index must know, and whether a page
//! table over the pages has other users, which decides whether the zap can end under the edit. The neighbours are
//! looked up once for both.
//!
//! * Under one edit, slots of its lock domain do not change: the answer stays true as long as the edit.
//! * A neighbour that is being zapped counts as unmapped for a page table, so that of two neighbours one frees it.
//! * The gap below is often the largest of all, and its other end far away in the tree. It is looked for only if the
//!   gap index asks how large the gap is.

use faultless_paging::{ENTRIES, Pages};

use crate::base::machine::Machine;
use crate::tree::iter::{Direction, Earlier, Later};
use crate::tree::{Edit, EditLocks, SlotValue, Subtree, Tree, edit};

/// The nearest slots on either side of pages that are not empty.
pub(crate) struct Beside {
    pages: Pages,
    /// All pages that the edit covers.
    domain: Pages,
    /// Nothing from here to the pages was overlooked.
    floor: u64,
    /// The end of the one before, and its value, if it is near.
    before: Option<(u64, SlotValue)>,
    /// The start of the one behind, and its value.
    behind: Option<(u64, SlotValue)>,
}

impl Beside {
    /// Returns the end of the gap around the pages, once they are empty.
    fn hole_end(&self) -> u64 {
        self.behind.map_or(self.domain.end, |(start, _)| start)
    }

    /// Returns the start of that gap; `stem` is what the edit covers.
    fn hole_start(&self, stem: &Subtree) -> u64 {
        let far = || stem.before(self.floor, Earlier::FAR);
        let before = self.before.or_else(far);
        before.map_or(self.domain.start, |(end, _)| end)
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
        let is_known = self.floor <= span.start && span.end <= self.domain.end;
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
        if beside.pages.is_empty() {
            return;
        }
        edit::fill(self.memory, self.stem, beside.pages, SlotValue::EMPTY);
        let (end, mut start, stem) = (beside.hole_end(), None, self.stem);
        self.locks.for_each(&mut |gaps| {
            if gaps.may_rise(end) {
                let start = *start.get_or_insert_with(|| beside.hole_start(stem));
                gaps.opened(Pages::new(start, end));
            }
        });
    }
}

impl Subtree {
    fn look_beside(&self, pages: Pages) -> Beside {
        // The neighbours are mostly near.
        let near = self.around(pages);
        let table = pages.start & !(ENTRIES as u64 - 1);
        let floor = table.max(self.base);
        let behind = |stem: &Subtree| {
            let spot = stem.nearest::<Later>(pages.end, stem.end())?;
            Some((spot.page, spot.word))
        };
        let is_all = near.base <= floor;
        Beside {
            pages,
            domain: self.pages(),
            floor,
            before: near.before(pages.start, floor).or_else(|| match is_all {
                true => None,
                false => self.before(pages.start, floor),
            }),
            behind: behind(&near).or_else(|| behind(self)),
        }
    }

    /// Returns the end of the last slot before `page` that is not empty, and its value. May return `None` if it ends
    /// at `limit` or before.
    fn before(&self, page: u64, limit: u64) -> Option<(u64, SlotValue)> {
        let spot = self.nearest::<Earlier>(page.checked_sub(1)?, limit)?;
        Some((spot.page + 1, spot.word))
    }
}
