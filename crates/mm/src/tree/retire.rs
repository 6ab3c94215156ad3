//! What leaves the tree: parts that are empty, parts that were replaced, and all of it.

use core::ptr::NonNull;

use faultless_sync::{Mutant, mutant};

use crate::base::machine::Machine;
use crate::space::memory::{Memory, Retired};
use crate::tree::node::{Node, SLOTS, span};
use crate::tree::split::Split;
use crate::tree::value::{SlotState, SlotValue};

/// Takes an empty child out of a slot: its slots stay empty, which is true of them for ever.
pub(super) fn drop_empty<M: Machine>(memory: &Memory<M>, node: &Node, number: usize, child: &Node) {
    node.put(number, SlotValue::EMPTY);
    memory.retire(Retired::Node(NonNull::from(child)));
}

/// The same of a split.
pub(super) fn drop_empty_split<M: Machine>(
    memory: &Memory<M>,
    node: &Node,
    number: usize,
    split: &Split,
) {
    node.put(number, SlotValue::EMPTY);
    memory.retire(Retired::Split(NonNull::from(split)));
}

/// Marks the slots that a replaced word led to gone, and retires them with all below.
pub(super) fn retire_subtree<M: Machine>(memory: &Memory<M>, word: SlotValue) {
    // SAFETY: the edit lock is held, and what the word leads to was in the tree until now.
    match unsafe { word.content() } {
        SlotState::Child(node) => {
            for number in 0..SLOTS {
                let below = node.at(number).load();
                if below.is_child() {
                    retire_subtree(memory, below);
                }
            }
            if !mutant(Mutant::NodeNotBuried) {
                node.mark_retired();
            }
            memory.retire(Retired::Node(NonNull::from(node)));
        }
        SlotState::Split(split) => {
            if !mutant(Mutant::NodeNotBuried) {
                split.mark_retired();
            }
            memory.retire(Retired::Split(NonNull::from(split)));
        }
        _ => {}
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
            SlotState::Child(child) => free_subtree(memory, NonNull::from(child), level - 1),
            SlotState::Split(split) => {
                for (pages, slot) in split.parts(level) {
                    free_pages(memory, slot.load(), pages.len());
                }
                memory.free_split(NonNull::from(split));
            }
            _ => free_pages(memory, word, slots as u64 * span(level)),
        }
    }
    memory.free_node(at);
}

/// Gives back a node that nobody has seen, and what is below it; not the mappings.
pub(super) fn free_nodes<M: Machine>(memory: &Memory<M>, at: NonNull<Node>) {
    // SAFETY: the caller alone has it.
    let node = unsafe { at.as_ref() };
    let mut children = node.children();
    while children != 0 {
        let word = node.at(children.trailing_zeros() as usize).load();
        // SAFETY: as above.
        match unsafe { word.content() } {
            SlotState::Child(child) => free_nodes(memory, NonNull::from(child)),
            SlotState::Split(split) => memory.free_split(NonNull::from(split)),
            _ => {}
        }
        children &= children - 1;
    }
    memory.free_node(at);
}

/// So many pages point to the mapping of `word` no more.
fn free_pages<M: Machine>(memory: &Memory<M>, word: SlotValue, pages: u64) {
    // SAFETY: the caller alone uses the tree.
    if let Some(mapping) = unsafe { word.mapping() }
        && mapping.remove_pages(pages, false)
    {
        memory.free_mapping(NonNull::from(mapping));
    }
}
