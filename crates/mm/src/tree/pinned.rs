//! Nodes that stay in the tree, with an edit lock of their own for their slots ([`crate::lock::shard`]).
//!
//! Such a node is *pinned*: its slot in the parent node holds it for as long as the tree lives, with or
//! without mappings below it. So do the slots on the path from the root. An edit outside shards skips a
//! pinned node, and an edit of a shard never leaves it. The two therefore write different cache lines.

use core::ptr::NonNull;

use faultless_frames::NoMemory;
use faultless_paging::Pages;

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::tree::edit::fill;
use crate::tree::node::{Node, index, span};
use crate::tree::retire::retire_subtree;
use crate::tree::value::{SlotState, SlotValue};
use crate::tree::{Edit, EditLocks, Subtree};
use crate::tune::TREE_LEVELS;

impl Subtree {
    /// Returns the pages that it covers.
    pub(crate) fn pages(&self) -> Pages {
        Pages::new(self.base, self.end())
    }

    /// Begins an edit of it, under its edit lock, which is among `locks`.
    pub(crate) fn edit<'a, M: Machine, L: EditLocks>(
        &'a self,
        memory: &'a Memory<M>,
        locks: L,
    ) -> Edit<'a, M, L> {
        Edit {
            stem: self,
            memory,
            locks,
        }
    }
}

/// For models of the tree alone: subtrees as shards have them.
#[cfg(loom)]
impl crate::tree::Tree {
    /// Pins the lowest node around page `base`.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn pin_node<M: Machine>(&self, memory: &Memory<M>, base: u64) -> Result<Subtree, NoMemory> {
        self.edit(memory).pin(base, crate::tune::SHARD_LEVEL)
    }
}

#[cfg(loom)]
impl Subtree {
    /// Begins an edit of it, under a lock of its own.
    pub fn edit_alone<'a, M: Machine>(
        &'a self,
        memory: &'a Memory<M>,
        lock: &'a faultless_sync::SpinLock<super::GapIndex>,
    ) -> Edit<'a, M, faultless_sync::SpinGuard<'a, super::GapIndex>> {
        self.edit(memory, lock.lock(memory.machine()))
    }
}

impl<M: Machine, L: EditLocks> Edit<'_, M, L> {
    /// Pins a node at level `bottom` for the pages of a shard, from `base` on, whatever is mapped there. No
    /// shard lies in it or around it. The edit is of everything.
    ///
    /// # Errors
    /// [`NoMemory`]; no page's mapping has changed.
    pub(crate) fn pin(&mut self, base: u64, bottom: usize) -> Result<Subtree, NoMemory> {
        let node = self.reach(base, bottom).inspect_err(|_| {
            let pages = Pages::new(base, base + span(bottom + 1));
            if self.stem.is_vacant(pages) {
                // Drop the nodes that were added on the way.
                fill(self.memory, self.stem, pages, SlotValue::EMPTY);
            }
        })?;
        let mut above = self.stem.root();
        for level in (bottom + 1..TREE_LEVELS).rev() {
            above.pin(index(base, level));
            // SAFETY: the edit lock is held.
            if let SlotState::Child(child) = unsafe { above.slot(base, level).load().content() } {
                above = child;
            }
        }
        Ok(Subtree {
            root: node,
            level: bottom,
            base,
            is_outside: false,
        })
    }

    /// Returns the shard's node. Creates it if it is missing, and the nodes on the way.
    fn reach(&self, base: u64, bottom: usize) -> Result<NonNull<Node>, NoMemory> {
        let mut node = self.stem.root();
        for level in (bottom + 1..TREE_LEVELS).rev() {
            let number = index(base, level);
            let word = node.at(number).load();
            // SAFETY: the edit lock keeps what the tree holds from being retired.
            node = match unsafe { word.content() } {
                SlotState::Child(child) => child,
                _ => {
                    let child = self.expand(word, level)?;
                    node.put(number, SlotValue::child(child));
                    retire_subtree(self.memory, word);
                    // SAFETY: in the tree.
                    unsafe { child.as_ref() }
                }
            };
        }
        Ok(NonNull::from(node))
    }

    /// Creates a node that is equivalent to a slot at `level` with value `word`, which is no child.
    fn expand(&self, word: SlotValue, level: usize) -> Result<NonNull<Node>, NoMemory> {
        let place = self.memory.allocate_node()?;
        // SAFETY: the edit lock is held.
        let SlotState::Split(split) = (unsafe { word.content() }) else {
            // SAFETY: fresh memory of a node's size.
            return Ok(unsafe { Node::create(place, word) });
        };
        let (words, middle, below) = (split.words(), split.middle(), level - 1);
        // SAFETY: as above.
        let at = unsafe { Node::create(place, words[1]) };
        // SAFETY: just made.
        let node = unsafe { at.as_ref() };
        let cut = index(middle, below);
        node.put_all(0..cut, words[0], &mut |_| ());
        if !middle.is_multiple_of(span(below)) {
            let both = self.cut_once(middle, words);
            // The node is not published yet.
            node.put(cut, both.inspect_err(|_| self.memory.free_node(at))?);
        }
        Ok(at)
    }
}
