//! Changing the tree, under the edit lock.
//!
//! A change has two parts. *Cut* makes the range's ends fall between slots; it
//! allocates and can fail, and changes no page's mapping. *Fill* then writes the
//! range's slots; it cannot fail. Each slot changes by one store, so that a
//! reader sees the old or the new word of a page and never a third.
//!
//! When a slot takes the place of a child, the child's slots are then marked
//! gone: a fault that still holds one of them must not find its old word
//! there when it validates.

use core::ptr::NonNull;

use faultless_frames::NoMemory;
use faultless_paging::Pages;
use faultless_sync::{Flaw, flawed};

use super::node::{LEVELS, Node, SLOTS, index, span};
use super::word::{Content, Word};
use super::{Edit, Tree};
use crate::machine::Machine;
use crate::memory::{Memory, Retired};

impl<M: Machine> Edit<'_, M> {
    /// Makes both ends of `pages` fall between slots.
    ///
    /// # Errors
    /// [`NoMemory`]; no page's mapping has changed.
    pub fn cut(&self, pages: Pages) -> Result<(), NoMemory> {
        self.cut_at(pages.start)?;
        self.cut_at(pages.end)
    }

    fn cut_at(&self, page: u64) -> Result<(), NoMemory> {
        if page >= span(LEVELS) {
            return Ok(());
        }
        let mut node = self.tree.root();
        for level in (1..LEVELS).rev() {
            if page.is_multiple_of(span(level)) {
                return Ok(());
            }
            let number = index(page, level);
            let word = node.at(number).load();
            // SAFETY: the edit lock keeps what the tree holds from being retired.
            node = match unsafe { word.content() } {
                Content::Child(child) => child,
                _ => {
                    let place = self.memory.allocate_node()?;
                    // SAFETY: fresh memory of a node's size.
                    let child = unsafe { Node::create(place, word) };
                    node.put(number, Word::child(child));
                    // SAFETY: just made, and in the tree.
                    unsafe { child.as_ref() }
                }
            };
        }
        Ok(())
    }

    /// Sets the word of all `pages`, whose ends were cut.
    pub fn fill(&mut self, pages: Pages, word: Word) {
        if !pages.is_empty() {
            fill(self.memory, self.tree.root(), pages, word);
            if word.is_empty() {
                let hole = self.hole_around(pages);
                self.holes.opened(hole);
            }
        }
    }

    /// The pages from the mapping before `pages` to the one behind.
    fn hole_around(&self, pages: Pages) -> Pages {
        let start = self
            .tree
            .last_before(pages.start)
            .map_or(0, |run| run.pages.end);
        let end = self
            .tree
            .next_slot(pages.end)
            .map_or(super::PAGES, |run| run.pages.start);
        Pages::new(start, end)
    }
}

/// Fills `pages` below `root`.
fn fill<M: Machine>(memory: &Memory<M>, root: &Node, pages: Pages, word: Word) {
    // Down to where the range begins to matter: most ranges are small.
    let mut path = [root; LEVELS];
    let mut level = LEVELS - 1;
    while pages.len() < span(level) && pages.start / span(level) == (pages.end - 1) / span(level) {
        // SAFETY: the edit lock is held. Cut at both ends, so a slot covered in part has a child.
        let Content::Child(child) =
            (unsafe { path[level].slot(pages.start, level).load().content() })
        else {
            return;
        };
        level -= 1;
        path[level] = child;
    }
    let base = pages.start & !(span(level + 1) - 1);
    fill_part(memory, path[level], level, base, pages, word);
    while word.is_empty() && level < LEVELS - 1 && path[level].occupied() == 0 {
        let child = path[level];
        level += 1;
        drop_empty(memory, path[level], index(pages.start, level), child);
    }
}

/// Fills the part of `pages` that `node` covers. The node is at `level` and
/// begins at page `base`.
fn fill_part<M: Machine>(
    memory: &Memory<M>,
    node: &Node,
    level: usize,
    base: u64,
    pages: Pages,
    word: Word,
) {
    let size = span(level);
    let (start, end) = (
        pages.start.max(base) - base,
        pages.end.min(base + span(level + 1)) - base,
    );
    // Slots covered whole lie between two that may be covered in part.
    let (whole, part_end) = (start.div_ceil(size) as usize, end.div_ceil(size) as usize);
    let whole_end = ((end / size) as usize).max(whole);
    node.put_all(whole..whole_end, word, &mut |old| bury_subtree(memory, old));
    let parts = [(start / size) as usize..whole, whole_end..part_end];
    for number in parts.into_iter().flatten() {
        // SAFETY: the edit lock is held. As above, it has a child.
        if let Content::Child(child) = unsafe { node.at(number).load().content() } {
            let start = base + number as u64 * size;
            fill_part(memory, child, level - 1, start, pages, word);
            if child.occupied() == 0 {
                drop_empty(memory, node, number, child);
            }
        }
    }
}

/// Takes an empty child out of a slot: its slots stay empty, which is true of them for ever.
fn drop_empty<M: Machine>(memory: &Memory<M>, node: &Node, number: usize, child: &Node) {
    node.put(number, Word::EMPTY);
    memory.retire(Retired::Node(NonNull::from(child)));
}

/// Marks the slots of a replaced child gone, and retires it with all below it.
fn bury_subtree<M: Machine>(memory: &Memory<M>, word: Word) {
    // SAFETY: the edit lock is held, and the child was in the tree until now.
    if let Content::Child(node) = unsafe { word.content() } {
        for number in 0..SLOTS {
            let below = node.at(number).load();
            if below.is_child() {
                bury_subtree(memory, below);
            }
        }
        if !flawed(Flaw::NodeNotBuried) {
            node.bury();
        }
        memory.retire(Retired::Node(NonNull::from(node)));
    }
}

/// Gives back a node and all below it, at once; a mapping with its last pages.
pub(super) fn free_subtree<M: Machine>(memory: &Memory<M>, at: NonNull<Node>, level: usize) {
    // SAFETY: the caller alone uses the tree.
    let node = unsafe { at.as_ref() };
    let mut rest = node.occupied();
    while rest != 0 {
        let first = rest.trailing_zeros() as usize;
        let word = node.at(first).load();
        let same = (first..SLOTS).take_while(|&n| node.at(n).load() == word);
        let slots = if word.is_child() { 1 } else { same.count() };
        rest &= u64::MAX.checked_shl((first + slots) as u32).unwrap_or(0);
        // SAFETY: as above.
        match unsafe { word.content() } {
            Content::Child(child) => free_subtree(memory, NonNull::from(child), level - 1),
            Content::Live(mapping) | Content::Changing(mapping)
                if mapping.remove_pages(slots as u64 * span(level)) =>
            {
                memory.free_mapping(NonNull::from(mapping));
            }
            _ => {}
        }
    }
    memory.free_node(at);
}

impl Tree {
    /// Whether every slot of `pages` is empty.
    pub fn is_vacant(&self, pages: Pages) -> bool {
        pages.is_empty()
            || self
                .next_slot_before(pages.start, pages.end)
                .is_none_or(|run| run.pages.start >= pages.end)
    }
}
