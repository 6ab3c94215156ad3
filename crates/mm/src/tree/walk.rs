//! Walks over all of the tree, node by node, while nothing changes it.

use core::ptr::NonNull;

use crate::tree::Subtree;
use crate::tree::node::Node;
use crate::tree::value::{SlotState, SlotValue};

impl Subtree {
    /// Calls `visit` with every node and every split. Under the range lock, or while no writer is at work.
    pub fn for_each_object<E>(
        &self,
        visit: &mut dyn FnMut(NonNull<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        for_each_below(self.root(), visit)
    }

    /// Calls `visit` with the value of every slot that is not empty; once for equal slots side by side in a node.
    /// The caller alone uses the tree.
    pub(crate) fn for_each_value(&self, visit: &mut dyn FnMut(SlotValue)) {
        for_each_value_below(self.root(), visit);
    }
}

fn for_each_below<E>(
    node: &Node,
    visit: &mut dyn FnMut(NonNull<u8>) -> Result<(), E>,
) -> Result<(), E> {
    visit(NonNull::from(node).cast())?;
    let mut children = node.children();
    while children != 0 {
        let word = node.at(children.trailing_zeros() as usize).load();
        // SAFETY: inside a section or under the lock, by the module's contract.
        match unsafe { word.content() } {
            SlotState::Child(child) => for_each_below(child, visit)?,
            SlotState::Split(split) => visit(NonNull::from(split).cast())?,
            _ => {}
        }
        children &= children - 1;
    }
    Ok(())
}

fn for_each_value_below(node: &Node, visit: &mut dyn FnMut(SlotValue)) {
    let mut rest = node.occupied();
    while rest != 0 {
        let number = rest.trailing_zeros() as usize;
        let word = node.at(number).load();
        let mut end = number + 1;
        // SAFETY: the caller alone uses the tree.
        match unsafe { word.content() } {
            SlotState::Child(child) => for_each_value_below(child, visit),
            SlotState::Split(split) => split.words().into_iter().for_each(&mut *visit),
            _ => {
                end = number + node.count_from(number, word);
                visit(word);
            }
        }
        rest &= u64::MAX.checked_shl(end as u32).unwrap_or(0);
    }
}
