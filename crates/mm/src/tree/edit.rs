//! Changing the tree, under the edit lock.
//!
//! A change has two parts. *Cut* ([`crate::tree::cut`]) makes the range's ends fall between slots; it
//! allocates and can fail, and changes no page's mapping. *Fill* then writes the range's slots; it cannot
//! fail. Each slot changes by one store, so that a reader sees the old or the new value of a page and never a
//! third.
//!
//! When a child or a split is replaced, its slots are then marked as retired. A fault that still holds one of
//! these slots must not find the old value there when it validates.

use core::ops::Range;

use faultless_paging::Pages;

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::tree::node::{ALL, Node, index, span};
use crate::tree::retire::{drop_empty, drop_empty_split, retire_subtree};
use crate::tree::value::{SlotState, SlotValue};
use crate::tree::{Edit, EditLocks, Subtree};
use crate::tune::TREE_LEVELS;

impl<M: Machine, L: EditLocks> Edit<'_, M, L> {
    /// Sets the slot value of all `pages`. Both ends of `pages` are cut.
    pub fn fill(&mut self, pages: Pages, word: SlotValue) {
        self.fill_below(self.stem, pages, word);
    }

    /// The same below a node around `pages`, for a value that is not empty.
    pub(crate) fn fill_below(&mut self, stem: &Subtree, pages: Pages, word: SlotValue) {
        debug_assert!(!word.is_empty() || stem.level == self.stem.level);
        if word.is_empty() {
            let beside = self.look_beside(pages);
            self.empty(&beside);
        } else if !pages.is_empty() {
            fill(self.memory, stem, pages, word);
        }
    }
}

/// Fills `pages` of a subtree.
pub(super) fn fill<M: Machine>(memory: &Memory<M>, stem: &Subtree, pages: Pages, word: SlotValue) {
    // Descend to where the range begins to matter: most ranges are small.
    let mut path = [stem.root(); TREE_LEVELS];
    let mut level = stem.level;
    let differ = pages.start ^ (pages.end - 1);
    while differ < span(level) && pages.len() < span(level) {
        // SAFETY: the edit lock is held.
        match unsafe { path[level].slot(pages.start, level).load().content() } {
            SlotState::Child(child) => {
                level -= 1;
                path[level] = child;
            }
            _ => break,
        }
    }
    let is_one_slot = differ == 0 && level == 0;
    if is_one_slot && path[0].pinned() == 0 {
        path[0].put(index(pages.start, 0), word);
    } else {
        let base = pages.start & !(span(level + 1) - 1);
        fill_part(memory, path[level], level, base, pages, word);
    }
    while word.is_empty() && level < stem.level && path[level].occupied() == 0 {
        let child = path[level];
        level += 1;
        let number = index(pages.start, level);
        if path[level].pinned() & 1 << number != 0 {
            break;
        }
        drop_empty(memory, path[level], number, child);
    }
}

/// Fills the part of `pages` that `node` covers. The node is at `level` and begins at page `base`.
fn fill_part<M: Machine>(
    memory: &Memory<M>,
    node: &Node,
    level: usize,
    base: u64,
    pages: Pages,
    word: SlotValue,
) {
    let size = span(level);
    let (start, end) = (
        pages.start.max(base) - base,
        pages.end.min(base + span(level + 1)) - base,
    );
    // Slots covered whole lie between at most two that are covered in part. `number` numbers slots.
    let number = |page: u64| (page / size) as usize;
    let (first, whole_end) = (number(start), number(end));
    let whole = first + usize::from(start % size != 0);
    let has_last_part = end % size != 0 && whole_end >= whole;
    let whole_end = whole_end.max(whole);
    let pinned = node.pinned();
    if pinned == 0 {
        node.put_all(whole..whole_end, word, &mut |old| {
            retire_subtree(memory, old)
        });
    } else {
        fill_beside_pinned(memory, (node, level, base), whole..whole_end, pages, word);
    }
    let parts = [(first, first < whole), (whole_end, has_last_part)];
    for (number, is_part) in parts {
        if !is_part {
            continue;
        }
        let base = base + number as u64 * size;
        // SAFETY: the edit lock is held. Both ends are cut, so a slot covered in part has a child, or a split
        // with one covered part.
        match unsafe { node.at(number).load().content() } {
            SlotState::Child(child) => {
                fill_part(memory, child, level - 1, base, pages, word);
                if child.occupied() == 0 && pinned & 1 << number == 0 {
                    drop_empty(memory, node, number, child);
                }
            }
            SlotState::Split(split) => {
                split.slot(pages.start.max(base)).store(word);
                if split.words() == [SlotValue::EMPTY; 2] {
                    drop_empty_split(memory, node, number, split);
                }
            }
            // The end is not cut, which is right only if there is nothing to change.
            _ => debug_assert_eq!(node.at(number).load(), word, "an end was not cut"),
        }
    }
}

/// Fills slots that are covered whole; `node` is at `level` and begins at page `base`. A pinned child is not
/// replaced, but filled.
#[cold]
fn fill_beside_pinned<M: Machine>(
    memory: &Memory<M>,
    (node, level, base): (&Node, usize, u64),
    slots: Range<usize>,
    pages: Pages,
    word: SlotValue,
) {
    let pinned = node.pinned();
    let mut at = slots.start;
    while at < slots.end {
        let rest = pinned & (ALL << at);
        let stays = (rest.trailing_zeros() as usize).min(slots.end);
        node.put_all(at..stays, word, &mut |old| retire_subtree(memory, old));
        at = stays + 1;
        if stays == slots.end {
            break;
        }
        // SAFETY: the edit lock is held.
        if let SlotState::Child(child) = unsafe { node.at(stays).load().content() } {
            let base = base + stays as u64 * span(level);
            fill_part(memory, child, level - 1, base, pages, word);
        }
    }
}

impl Subtree {
    /// Whether every slot of `pages` is empty.
    pub fn is_vacant(&self, pages: Pages) -> bool {
        pages.is_empty()
            || self
                .next_slot_before(pages.start, pages.end)
                .is_none_or(|run| run.pages.start >= pages.end)
    }

    /// Returns `pages` from the first to the last that is not empty. Its ends fall between slots if only
    /// holes cross the ends of `pages`.
    pub fn extent(&self, pages: Pages) -> Pages {
        let first = self.next_slot_before(pages.start, pages.end);
        let last = self.last_before(pages.end);
        let start = first.map_or(pages.end, |run| run.pages.start.min(pages.end));
        let end = last.map_or(start, |run| run.pages.end.max(start));
        Pages::new(start, end)
    }

    /// Whether every slot of `pages` is empty or zapping.
    pub fn is_unmapped(&self, pages: Pages) -> bool {
        let mut at = pages.start;
        while at < pages.end {
            match self.next_slot_before(at, pages.end) {
                Some(run) if run.pages.start < pages.end && !run.word.is_zapping() => return false,
                Some(run) => at = run.pages.end,
                None => return true,
            }
        }
        true
    }
}
