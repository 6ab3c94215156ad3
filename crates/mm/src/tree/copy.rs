//! Copying the mappings of a tree, for the child of a fork.
//!
//! The copy is made node by node, with slots of the same value together, while the tree is *frozen*. The
//! caller holds every range and has frozen the tree ([`Edit::freeze_tree`]). Only the copy then writes slots,
//! nodes stay, and the edit lock is not needed. Stacks do not grow, and a zap that ends leaves its marks. The
//! marks are copied too; the caller clears them in the copy. Each mapping's slot is marked as changing when
//! it is copied, in the same pass; [`Tree::show_live`] clears all these marks.
//!
//! *Writes*: every slot of the tree, twice, and the copy's nodes and splits.

use faultless_frames::NoMemory;
use faultless_paging::Pages;
use faultless_sync::{Mutant, mutant};

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::tree::node::{Node, Slot, span};
use crate::tree::split::Split;
use crate::tree::value::{SlotState, SlotValue};
use crate::tree::{Edit, EditLocks, Tree};
use crate::tune::TREE_LEVELS;

/// The caller's action for each run of slots.
pub(crate) trait Copier {
    /// Returns the value that `pages`, which hold `word`, have in the copy. Called before they are marked.
    fn word_for(&mut self, pages: Pages, word: SlotValue) -> Result<SlotValue, NoMemory>;
}

impl<M: Machine, L: EditLocks> Edit<'_, M, L> {
    /// Keeps writers without a range from changing the tree, until [`Edit::let_change`]: no stack grows, and
    /// no zap clears its marks.
    pub(crate) fn freeze_tree(&mut self) {
        self.set_still(true);
    }

    /// Lets the tree change again.
    pub(crate) fn let_change(&mut self) {
        self.set_still(false);
    }

    fn set_still(&mut self, is_frozen: bool) {
        self.locks.for_each(&mut |gaps| gaps.is_frozen = is_frozen);
    }

    /// Whether the tree is frozen for writers without a range.
    pub(crate) fn is_frozen(&self) -> bool {
        self.locks.own().is_frozen
    }
}

impl Tree {
    /// Makes `copy` a copy of this tree, which is frozen. `copy` is empty and not published. On failure it is
    /// a partial copy.
    pub(crate) fn copy_to<M: Machine>(
        &self,
        copy: &Tree,
        memory: &Memory<M>,
        copier: &mut impl Copier,
    ) -> Result<(), NoMemory> {
        if self.root().pinned() == 0 {
            // With shards, this tree's index does not cover the holes inside them.
            let notes = self.edit.lock(memory.machine()).clone();
            let mut to = copy.edit.lock(memory.machine());
            *to = notes;
            to.is_frozen = false;
        }
        copy_node(memory, self.root(), copy.root(), TREE_LEVELS - 1, 0, copier)
    }

    /// Shows every mapping as live. The tree is frozen.
    pub(crate) fn show_live(&self) {
        show_live(self.root());
    }
}

fn copy_node<M: Machine>(
    memory: &Memory<M>,
    from: &Node,
    to: &Node,
    level: usize,
    base: u64,
    copier: &mut impl Copier,
) -> Result<(), NoMemory> {
    let mut rest = from.occupied();
    // Set the bits before the slots: on failure, what the slots hold already must be found.
    to.set_bits_of(from);
    while rest != 0 {
        let first = rest.trailing_zeros() as usize;
        let start = base + first as u64 * span(level);
        let word = from.at(first).load();
        // SAFETY: the tree is frozen, so that nothing in it is retired.
        match unsafe { word.content() } {
            SlotState::Child(child) if is_bare(child) => {
                // The node stays here, but no node is pinned in the copy.
                to.put(first, SlotValue::EMPTY);
                rest &= rest - 1;
                continue;
            }
            SlotState::Child(child) => {
                let place = memory.allocate_node()?;
                // SAFETY: fresh memory of a node's size.
                let node = unsafe { Node::create(place, SlotValue::EMPTY) };
                to.at(first).store(SlotValue::child(node));
                // SAFETY: just made, and in the copy.
                let node = unsafe { node.as_ref() };
                copy_node(memory, child, node, level - 1, start, copier)?;
                rest &= rest - 1;
                continue;
            }
            SlotState::Split(split) => {
                let place = memory.allocate_split()?;
                // SAFETY: fresh memory of a split's size.
                let at = unsafe { Split::create(place, split.middle(), [SlotValue::EMPTY; 2]) };
                to.at(first).store(SlotValue::split(at));
                // SAFETY: just made, and in the copy.
                let copy = unsafe { at.as_ref() };
                for (pages, from) in split.parts(level) {
                    let word = from.load();
                    if !word.is_empty() {
                        let copied = copier.word_for(pages, word)?;
                        copy_slot(from, copy.slot(pages.start), word, copied);
                    }
                }
                rest &= rest - 1;
                continue;
            }
            _ => {}
        }
        let end = first + from.count_from(first, word);
        let pages = Pages::new(start, base + end as u64 * span(level));
        let copied = copier.word_for(pages, word)?;
        for number in first..end {
            copy_slot(from.at(number), to.at(number), word, copied);
        }
        rest &= u64::MAX.checked_shl(end as u32).unwrap_or(0);
    }
    Ok(())
}

/// Whether everything below is pinned nodes.
fn is_bare(node: &Node) -> bool {
    let mut pinned = node.pinned();
    if node.occupied() != pinned {
        return false;
    }
    while pinned != 0 {
        let word = node.at(pinned.trailing_zeros() as usize).load();
        // SAFETY: the tree is frozen, so that nothing in it is retired.
        if let SlotState::Child(child) = unsafe { word.content() }
            && !is_bare(child)
        {
            return false;
        }
        pinned &= pinned - 1;
    }
    true
}

/// Marks a slot that holds `word` as changing, and fills the slot of the copy.
fn copy_slot(from: &Slot, to: &Slot, word: SlotValue, copied: SlotValue) {
    if !mutant(Mutant::ForkWithoutMark) {
        from.store(word.changing());
    }
    to.store(copied);
}

fn show_live(node: &Node) {
    let mut rest = node.occupied();
    while rest != 0 {
        let number = rest.trailing_zeros() as usize;
        rest &= rest - 1;
        let word = node.at(number).load();
        // SAFETY: the tree is frozen, so that nothing in it is retired.
        match unsafe { word.content() } {
            SlotState::Child(child) => show_live(child),
            SlotState::Split(split) => {
                for page in [split.middle() - 1, split.middle()] {
                    show_slot_live(split.slot(page));
                }
            }
            _ => show_slot_live(node.at(number)),
        }
    }
}

fn show_slot_live(slot: &Slot) {
    let word = slot.load();
    let live = word.settled();
    if live != word {
        slot.store(live);
    }
}
