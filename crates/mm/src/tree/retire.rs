//! Removal from the tree: empty parts, replaced parts, and the whole tree.

use core::ptr::NonNull;

use faultless_frames::NoMemory;
use faultless_sync::{Mutant, mutant};

use crate::base::machine::Machine;
use crate::base::memory::{Kind, Memory, Shape};
use crate::tree::mapping::Mapping;
use crate::tree::node::{Node, SLOTS, span};
use crate::tree::split::Split;
use crate::tree::value::{SlotState, SlotValue};

/// Unlinks an empty child from a slot. Its slots are not marked: a late reader finds them empty, as they are.
pub(super) fn drop_empty<M: Machine>(memory: &Memory<M>, node: &Node, number: usize, child: &Node) {
    node.put(number, SlotValue::EMPTY);
    memory.retire_node(child);
}

/// The same for a split.
pub(super) fn drop_empty_split<M: Machine>(
    memory: &Memory<M>,
    node: &Node,
    number: usize,
    split: &Split,
) {
    node.put(number, SlotValue::EMPTY);
    memory.retire_split(split);
}

/// Marks the slots that a replaced value led to as retired, and retires them with everything below.
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
            memory.retire_node(node);
        }
        SlotState::Split(split) => {
            if !mutant(Mutant::NodeNotBuried) {
                split.mark_retired();
            }
            memory.retire_split(split);
        }
        _ => {}
    }
}

/// Frees a node and everything below it immediately; a mapping with its last pages.
pub(super) fn free_subtree<M: Machine>(memory: &Memory<M>, at: NonNull<Node>, level: usize) {
    // SAFETY: the caller alone uses the tree.
    let node = unsafe { at.as_ref() };
    let mut rest = node.occupied();
    while rest != 0 {
        let first = rest.trailing_zeros() as usize;
        let word = node.at(first).load();
        let slots = match word.is_child() {
            true => 1,
            false => node.count_from(first, word),
        };
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

/// Frees a node that was never published, and everything below it but the mappings.
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

/// Counts pages away from the mapping of `word`, and frees it with the last page.
fn free_pages<M: Machine>(memory: &Memory<M>, word: SlotValue, pages: u64) {
    // SAFETY: the caller alone uses the tree.
    if let Some(mapping) = unsafe { word.mapping() }
        && mapping.remove_pages(pages, false)
    {
        memory.release_mapping(NonNull::from(mapping));
    }
}

/// The shape of nodes.
pub(crate) const fn node_shape<M: Machine>() -> Shape<M> {
    Shape {
        size: size_of::<Node>(),
        link: core::mem::offset_of!(Node, link),
        release: |memory, node| memory.free_node(node.cast()),
    }
}

/// The shape of splits.
pub(crate) const fn split_shape<M: Machine>() -> Shape<M> {
    Shape {
        size: size_of::<Split>(),
        link: core::mem::offset_of!(Split, link),
        release: |memory, split| memory.free_split(split.cast()),
    }
}

impl<M: Machine> Memory<M> {
    pub(crate) fn allocate_node(&self) -> Result<NonNull<u8>, NoMemory> {
        self.allocate(Kind::Node)
    }

    pub(crate) fn allocate_split(&self) -> Result<NonNull<u8>, NoMemory> {
        self.allocate(Kind::Split)
    }

    /// Frees a node that no reader can reach.
    pub(crate) fn free_node(&self, node: NonNull<Node>) {
        // SAFETY: nodes are of this kind, and the caller has the last pointer.
        unsafe { self.free(Kind::Node, node.cast()) };
    }

    /// Frees a split that no reader can reach.
    pub(crate) fn free_split(&self, split: NonNull<Split>) {
        // SAFETY: as for nodes.
        unsafe { self.free(Kind::Split, split.cast()) };
    }

    fn retire_node(&self, node: &Node) {
        // SAFETY: a node, which its caller has just unlinked.
        unsafe { self.retire(Kind::Node, NonNull::from(node).cast()) };
    }

    fn retire_split(&self, split: &Split) {
        // SAFETY: as for nodes.
        unsafe { self.retire(Kind::Split, NonNull::from(split).cast()) };
    }

    /// Retires a mapping that no slot leads to any more, and that no other writer retires.
    pub(crate) fn retire_mapping(&self, mapping: NonNull<Mapping>) {
        // SAFETY: a mapping, retired once.
        unsafe { self.retire(Kind::Mapping, mapping.cast()) };
    }
}
