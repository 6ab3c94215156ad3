//! Walks over what is mapped.
//!
//! Walks are exact under the range lock. Without it, inside a read section, every run was true at the moment
//! it was read; runs read at different moments may not fit together. A node's bits of occupied slots are
//! hints from writers: a reader that sees them late misses only what is being mapped right now.

use core::ptr::NonNull;

use faultless_paging::Pages;

use crate::tree::Subtree;
use crate::tree::node::{ALL, Node, SLOTS, index, span};
use crate::tree::value::{SlotState, SlotValue};
use crate::tune::TREE_LEVELS;
use crate::tune::{SHARD_LEVEL, SMALL_SHARD_LEVEL};

/// Neighbouring pages with the same slot value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The pages.
    pub pages: Pages,
    /// Their slot value: never empty.
    pub word: SlotValue,
}

/// The slot values next to some pages.
#[derive(Clone, Copy, Debug)]
pub struct Neighbours {
    /// The value of the page before; empty if there is none.
    pub before: SlotValue,
    /// The value of the page behind.
    pub behind: SlotValue,
}

impl Subtree {
    /// Returns the first run that ends behind `page`, from `page` on. Takes time with the run's length. If
    /// the start is enough, use [`Subtree::next_slot`]; if there is a limit, use [`Subtree::next_until`].
    pub fn next(&self, page: u64) -> Option<Run> {
        self.next_until(page, self.end())
    }

    /// Returns the first run that ends behind `page`, cut to `page` and to `limit`; `None` if no run begins
    /// before `limit`.
    pub fn next_until(&self, page: u64, limit: u64) -> Option<Run> {
        if page >= limit {
            return None;
        }
        let run = self.next_slot_before(page, limit);
        let mut run = run.filter(|run| run.pages.start < limit)?;
        while run.pages.end < limit && self.extend(&mut run) {}
        run.pages.end = run.pages.end.min(limit);
        Some(run)
    }

    /// Returns `pages` as one run, if a few lookups show that all hold the same value. Pages that were mapped
    /// little by little, in many nodes, give `None`.
    pub(crate) fn one_run(&self, pages: Pages) -> Option<Run> {
        let run = self.next_slot_before(pages.start, pages.end);
        let mut run = run.filter(|run| run.pages.start <= pages.start)?;
        // Up from the first slot to the largest, and down to the last.
        for _ in 0..2 * TREE_LEVELS {
            if run.pages.end >= pages.end || !self.extend(&mut run) {
                break;
            }
        }
        let word = run.word;
        (run.pages.end >= pages.end).then_some(Run { pages, word })
    }

    /// Adds the slots behind `run` that hold the same value and are in the same node. Returns whether the run
    /// may continue behind them.
    fn extend(&self, run: &mut Run) -> bool {
        let page = run.pages.end;
        if page >= self.end() {
            return false;
        }
        let mut node = self.root();
        let mut level = self.level;
        loop {
            let number = index(page, level);
            let word = node.at(number).load();
            // SAFETY: inside a section or under the lock, by the module's contract.
            match unsafe { word.content() } {
                SlotState::Child(child) => {
                    (node, level) = (child, level - 1);
                    continue;
                }
                SlotState::Split(split) => {
                    if split.slot(page).load() != run.word {
                        return false;
                    }
                    run.pages.end = split.part(page, level).end;
                    return true;
                }
                _ => {}
            }
            let same = node.count_from(number, run.word);
            if same == 0 {
                // Do not round `page` down: beside a writer the slot may have become a larger one, which
                // begins earlier.
                return false;
            }
            run.pages.end = (page & !(span(level) - 1)) + same as u64 * span(level);
            // The next slot may hold a child that begins with the same value.
            return true;
        }
    }

    /// Iterates over the runs that overlap `pages`, cut to them.
    pub fn runs(&self, pages: Pages) -> impl Iterator<Item = Run> + '_ {
        let mut at = pages.start;
        core::iter::from_fn(move || {
            let run = self.next_until(at, pages.end)?;
            at = run.pages.end;
            Some(run)
        })
    }

    /// Returns the lowest subtree with `pages` and one page on either side, from which walks can start: most
    /// ranges are small. Valid under the edit lock, until a slot is emptied. In a section alone, the node may
    /// be leaving the tree, and walks that start there do not end.
    pub(crate) fn around(&self, pages: Pages) -> Subtree {
        let first = pages.start.saturating_sub(1).max(self.base);
        let last = pages.end.min(self.end() - 1);
        let mut stem = *self;
        while stem.level > 0 && index(first, stem.level) == index(last, stem.level) {
            // SAFETY: under the lock, by the module's contract.
            match unsafe { stem.root().slot(first, stem.level).load().content() } {
                SlotState::Child(child) => {
                    stem.root = NonNull::from(child);
                    stem.base = first & !(span(stem.level) - 1);
                    stem.level -= 1;
                }
                _ => break,
            }
        }
        stem
    }

    /// Whether its node holds anything. In a section, valid also for a node that is leaving the tree.
    pub(crate) fn is_in_use(&self) -> bool {
        self.root().occupied() != 0
    }

    /// Returns what lies beside `pages`. Under the edit lock.
    pub fn beside(&self, pages: Pages) -> Neighbours {
        self.around(pages).beside_below(pages)
    }

    /// The same, from a node around `pages`.
    #[inline]
    pub(crate) fn beside_below(&self, pages: Pages) -> Neighbours {
        let before = pages.start.checked_sub(1);
        let behind = Some(pages.end).filter(|&page| page < self.end());
        let find = |page: Option<u64>| {
            page.map_or(SlotValue::EMPTY, |at| {
                word_below(self.root(), self.level, at)
            })
        };
        Neighbours {
            before: find(before),
            behind: find(behind),
        }
    }

    /// Returns the whole slot that covers `page`, unless it is empty.
    pub fn slot_of(&self, page: u64) -> Option<Run> {
        'root: loop {
            let mut node = self.root();
            let mut level = self.level;
            loop {
                let word = node.slot(page, level).load();
                // SAFETY: inside a section or under the lock, by the module's contract.
                let (pages, word) = match unsafe { word.content() } {
                    SlotState::Child(child) => {
                        node = child;
                        level -= 1;
                        continue;
                    }
                    SlotState::Split(split) => (split.part(page, level), split.slot(page).load()),
                    _ => (slot_around(page, level), word),
                };
                if word == SlotValue::RETIRED {
                    continue 'root;
                }
                return (!word.is_empty()).then_some(Run { pages, word });
            }
        }
    }

    /// Whether every slot of `pages` holds a value that `is_meant` accepts; none is empty.
    pub(crate) fn all_slots(&self, pages: Pages, is_meant: impl Fn(SlotValue) -> bool) -> bool {
        let mut at = pages.start;
        while at < pages.end {
            match self.slot_of(at) {
                Some(run) if is_meant(run.word) => at = run.pages.end,
                _ => return false,
            }
        }
        true
    }

    /// Returns the first slot that is not empty and ends behind `page`, cut to `page`.
    pub fn next_slot(&self, page: u64) -> Option<Run> {
        self.next_slot_before(page, self.end())
    }

    /// The same; may return `None` if the slot does not begin before `limit`.
    pub fn next_slot_before(&self, page: u64, limit: u64) -> Option<Run> {
        let spot = self.nearest::<Later>(page, limit)?;
        Some(Run {
            pages: Pages::new(spot.page, spot.slot.end),
            word: spot.word,
        })
    }

    /// Returns the last pages before `page` that are not empty: a stretch that ends at a hole, or at `page`,
    /// and begins no earlier than its node. `word` is the value of its last page.
    pub fn last_before(&self, page: u64) -> Option<Run> {
        self.last_between(Earlier::FAR, page)
    }

    /// The same; may return `None` if those pages end at `limit` or before.
    pub(crate) fn last_between(&self, limit: u64, page: u64) -> Option<Run> {
        let spot = self.nearest::<Earlier>(page.checked_sub(1)?, limit)?;
        let start = match spot.is_part || spot.word == SlotValue::SHARD {
            true => spot.slot.start,
            false => stretch(spot.node, spot.level, spot.page),
        };
        Some(Run {
            pages: Pages::new(start, spot.page + 1),
            word: spot.word,
        })
    }

    /// Whether a slot's child is a shard, and this subtree skips shards.
    #[inline]
    fn passes_over(&self, node: &Node, child: &Node, page: u64, level: usize) -> bool {
        node.pinned() != 0
            && self.is_outside
            && (SMALL_SHARD_LEVEL + 1..=SHARD_LEVEL + 1).contains(&level)
            && node.pinned() & 1 << index(page, level) != 0
            // A node on the path to a shard has a pinned child, and a shard's node has none.
            && child.pinned() == 0
    }

    /// Finds the slot of `page` or, if that is empty, the nearest one in a direction. Ascends no further than
    /// it must, and not if everything found there would lie at `limit` or beyond.
    #[inline]
    pub(super) fn nearest<D: Direction>(&self, page: u64, limit: u64) -> Option<Spot<'_>> {
        let mut page = page;
        if page < self.base || page >= self.end() {
            return None;
        }
        'root: loop {
            let mut path = [self.root(); TREE_LEVELS];
            let mut level = self.level;
            // Whether all of the node at `level` lies in the direction.
            let mut is_ahead = false;
            loop {
                let mut word = path[level].slot(page, level).load();
                // SAFETY: inside a section or under the lock, by the module's contract.
                while let Some(child) = unsafe { word.child_node() } {
                    if self.passes_over(path[level], child, page, level) {
                        word = SlotValue::SHARD;
                        break;
                    }
                    level -= 1;
                    path[level] = child;
                    if is_ahead && let Some(first) = D::first(child, level, page) {
                        if D::is_beyond(first, limit) {
                            return None;
                        }
                        page = first;
                    }
                    word = child.slot(page, level).load();
                }
                let node = path[level];
                // SAFETY: as above.
                let (slot, word, other) = match unsafe { word.content() } {
                    SlotState::Split(split) => {
                        let other = D::across(split.middle(), page);
                        let (part, slot) = (split.part(page, level), split.slot(page));
                        (part, slot.load(), Some(other))
                    }
                    _ => (slot_around(page, level), word, None),
                };
                if word == SlotValue::RETIRED {
                    continue 'root;
                }
                if !word.is_empty() {
                    let is_part = other.is_some();
                    return Some(Spot {
                        node,
                        level,
                        slot,
                        is_part,
                        page,
                        word,
                    });
                }
                if let Some(across) = other.flatten() {
                    page = across;
                    continue;
                }
                page = loop {
                    match D::beyond(path[level], level, page) {
                        Some(page) => break page,
                        None if level == self.level => return None,
                        None if D::ends_at(level, page, limit) => return None,
                        None => level += 1,
                    }
                };
                is_ahead = true;
                if D::is_beyond(page, limit) {
                    // The caller may not be allowed to look there.
                    return None;
                }
            }
        }
    }
}

/// Returns the pages of the slot of `page` in a node at `level`.
fn slot_around(page: u64, level: usize) -> Pages {
    let start = page & !(span(level) - 1);
    Pages::new(start, start + span(level))
}

/// Returns the value of a page that `node` covers.
fn word_below(node: &Node, level: usize, page: u64) -> SlotValue {
    let (mut node, mut level) = (node, level);
    loop {
        let word = node.slot(page, level).load();
        // SAFETY: under the lock, by the module's contract.
        match unsafe { word.content() } {
            SlotState::Child(child) => (node, level) = (child, level - 1),
            SlotState::Split(split) => return split.slot(page).load(),
            _ => return word,
        }
    }
}

/// The end of a search: a slot that is not empty.
pub(super) struct Spot<'s> {
    node: &'s Node,
    level: usize,
    /// The slot's pages: a slot of the node, or a part of a split there.
    slot: Pages,
    is_part: bool,
    /// The page of the slot that is nearest to where the search began.
    pub(super) page: u64,
    pub(super) word: SlotValue,
}

/// The direction of a search.
pub(super) trait Direction {
    /// Returns the nearest page of the other part of a split with this middle, if that part is ahead.
    fn across(middle: u64, page: u64) -> Option<u64>;

    /// The limit of a search without one.
    const FAR: u64;

    /// Whether `page` is at the limit or beyond.
    fn is_beyond(page: u64, limit: u64) -> bool;

    /// Whether a node at `level` around `page` reaches the limit.
    fn ends_at(level: usize, page: u64, limit: u64) -> bool;

    /// Returns the nearest page of the first occupied slot of `node`, which covers `page`.
    fn first(node: &Node, level: usize, page: u64) -> Option<u64>;

    /// Returns the nearest page of the next occupied slot of `node`.
    fn beyond(node: &Node, level: usize, page: u64) -> Option<u64>;
}

/// Towards higher addresses.
pub(super) struct Later;

impl Direction for Later {
    fn across(middle: u64, page: u64) -> Option<u64> {
        (page < middle).then_some(middle)
    }

    const FAR: u64 = u64::MAX;

    #[inline]
    fn is_beyond(page: u64, limit: u64) -> bool {
        page >= limit
    }

    #[inline]
    fn ends_at(level: usize, page: u64, limit: u64) -> bool {
        page | (span(level + 1) - 1) >= limit - 1
    }

    #[inline]
    fn first(node: &Node, level: usize, page: u64) -> Option<u64> {
        let base = page & !(span(level + 1) - 1);
        let slots = node.occupied();
        (slots != 0).then(|| base + u64::from(slots.trailing_zeros()) * span(level))
    }

    fn beyond(node: &Node, level: usize, page: u64) -> Option<u64> {
        let base = page & !(span(level + 1) - 1);
        let slots = node.occupied() & !((2u64 << index(page, level)).wrapping_sub(1));
        (slots != 0).then(|| base + u64::from(slots.trailing_zeros()) * span(level))
    }
}

/// Towards lower addresses.
pub(super) struct Earlier;

impl Direction for Earlier {
    fn across(middle: u64, page: u64) -> Option<u64> {
        (page >= middle).then(|| middle - 1)
    }

    const FAR: u64 = 0;

    #[inline]
    fn is_beyond(page: u64, limit: u64) -> bool {
        page < limit
    }

    #[inline]
    fn ends_at(level: usize, page: u64, limit: u64) -> bool {
        page & !(span(level + 1) - 1) <= limit
    }

    #[inline]
    fn first(node: &Node, level: usize, page: u64) -> Option<u64> {
        let base = page & !(span(level + 1) - 1);
        let slots = node.occupied();
        (slots != 0).then(|| base + u64::from(64 - slots.leading_zeros()) * span(level) - 1)
    }

    fn beyond(node: &Node, level: usize, page: u64) -> Option<u64> {
        let base = page & !(span(level + 1) - 1);
        let slots = node.occupied() & ((1u64 << index(page, level)) - 1);
        (slots != 0).then(|| base + u64::from(64 - slots.leading_zeros()) * span(level) - 1)
    }
}

/// Returns the first page of the contiguous occupied slots of `node` up to `last`. Slots that hold a child or
/// a split may have holes, and end the stretch.
fn stretch(node: &Node, level: usize, last: u64) -> u64 {
    let base = last & !(span(level + 1) - 1);
    let number = index(last, level);
    let ends = (!node.occupied() | node.children()) & ALL & ((1u64 << number) - 1);
    let first = (64 - ends.leading_zeros()) as usize;
    debug_assert!(number < SLOTS);
    base + first as u64 * span(level)
}
