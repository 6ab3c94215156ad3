//! A node of the mapping tree: an array of slots, and what writers know about it.
//!
//! Faults read slots. Writers, under the tree's edit lock, write slots and the line behind them. In models a
//! node is small.
//!
//! A slot that is not empty has its bit in `occupied`: writers set the bit before the slot, and clear it
//! after. A truncation that has seen the effect of a fault through a slot's mapping therefore finds that slot
//! by its bit.

use core::ptr::NonNull;

use faultless_sync::atomic::{AtomicPtr, Local, Ordering};

use crate::tree::value::SlotValue;
use crate::tune::TREE_BITS;

/// Slots of a node.
pub const SLOTS: usize = 1 << TREE_BITS;

/// Pages that one slot at `level` covers.
#[inline]
pub const fn span(level: usize) -> u64 {
    1 << (TREE_BITS as usize * level)
}

/// Returns the number of the slot of a node at `level` that covers `page`.
#[inline]
pub fn index(page: u64, level: usize) -> usize {
    (page >> (TREE_BITS as usize * level)) as usize % SLOTS
}

/// A slot.
#[repr(transparent)]
#[derive(Debug)]
pub struct Slot(AtomicPtr<()>);

impl Slot {
    pub(super) fn new(word: SlotValue) -> Self {
        Self(AtomicPtr::new(word.raw()))
    }

    /// Acquire: pairs with `Slot::store`, so that the object behind the pointer is seen initialised.
    #[inline]
    pub fn load(&self) -> SlotValue {
        SlotValue::from_raw(self.0.load(Ordering::Acquire))
    }

    /// Whether the slot holds `word`: for validation, after the caller's own full fence (the claim's).
    /// Partner: the fence in `crate::lock::RangeWriteGuard::validation_fence`, after the writer's stores.
    #[inline]
    pub fn holds(&self, word: SlotValue) -> bool {
        self.0.load(Ordering::Relaxed) == word.raw()
    }

    pub(super) fn store(&self, word: SlotValue) {
        self.0.store(word.raw(), Ordering::Release);
    }
}

/// A node.
#[repr(C, align(64))]
pub struct Node {
    slots: [Slot; SLOTS],
    /// A bit for each slot that is not empty. Written under the edit lock.
    occupied: Local,
    /// A bit for each slot that holds a child or a split. Written under the edit lock.
    children: Local,
    /// A bit for each slot with a pinned child, empty or not ([`crate::tree::pinned`]).
    pinned: Local,
    /// Reclamation's link.
    pub(crate) link: Local,
}

impl Node {
    /// Creates a node in `place`, with `word` in every slot.
    ///
    /// # Safety
    /// `place` is memory for a node that the caller alone uses.
    pub(super) unsafe fn create(place: NonNull<u8>, word: SlotValue) -> NonNull<Node> {
        let node = place.cast::<Node>();
        let occupied = if word.is_empty() { 0 } else { ALL };
        // SAFETY: by the caller's promise.
        unsafe {
            node.write(Node {
                slots: core::array::from_fn(|_| Slot::new(word)),
                occupied: Local::new(occupied),
                children: Local::new(0),
                pinned: Local::new(0),
                link: Local::new(0),
            });
        }
        node
    }

    /// Returns the slot that covers `page`; this node is at `level`.
    #[inline]
    pub fn slot(&self, page: u64, level: usize) -> &Slot {
        &self.slots[index(page, level)]
    }

    /// Returns the slot with this number.
    pub fn at(&self, number: usize) -> &Slot {
        &self.slots[number]
    }

    /// Returns the number of slots from this one on that hold `word`.
    #[inline]
    pub(super) fn count_from(&self, number: usize, word: SlotValue) -> usize {
        let is_same = |slot: &Slot| slot.load() == word;
        let differs = |slot: &Slot| slot.load().raw().addr() ^ word.raw().addr();
        let slots = &self.slots[number..];
        let (groups, _) = slots.as_chunks::<8>();
        let all_same =
            |group: &&[Slot; 8]| group.iter().fold(0, |all, slot| all | differs(slot)) == 0;
        let same = 8 * groups.iter().take_while(all_same).count();
        same + slots[same..]
            .iter()
            .take_while(|slot| is_same(slot))
            .count()
    }

    /// Writes a slot and its bits, under the edit lock.
    pub(super) fn put(&self, number: usize, word: SlotValue) {
        let bit = 1 << number;
        if !word.is_empty() {
            set_bits(&self.occupied, bit, true);
        }
        self.slots[number].store(word);
        if word.is_empty() {
            set_bits(&self.occupied, bit, false);
        }
        set_bits(&self.children, bit, word.is_child());
    }

    /// Writes several slots and their bits, under the edit lock. `word` is neither a child nor a split, and
    /// none of the slots is pinned. Calls `replaced` with each child or split that was in one of them.
    pub(super) fn put_all(
        &self,
        slots: core::ops::Range<usize>,
        word: SlotValue,
        replaced: &mut impl FnMut(SlotValue),
    ) {
        if slots.is_empty() {
            return;
        }
        let bits = (ALL >> (SLOTS - slots.len())) << slots.start;
        if !word.is_empty() {
            set_bits(&self.occupied, bits, true);
        }
        let mut children = self.children.get() & bits;
        set_bits(&self.children, bits, false);
        while children != 0 {
            let slot = &self.slots[children.trailing_zeros() as usize];
            let old = slot.load();
            slot.store(word);
            replaced(old);
            children &= children - 1;
        }
        // Slots that held a child are stored a second time, which changes nothing.
        let (groups, rest) = self.slots[slots].as_chunks::<8>();
        for group in groups {
            group.iter().for_each(|slot| slot.store(word));
        }
        rest.iter().for_each(|slot| slot.store(word));
        if word.is_empty() {
            set_bits(&self.occupied, bits, false);
        }
    }

    /// Copies `occupied` and `children` from another node, into a node that no other CPU can reach.
    pub(super) fn set_bits_of(&self, other: &Node) {
        self.occupied.set(other.occupied.get());
        self.children.set(other.children.get());
    }

    /// Returns the bits of slots that are not empty.
    pub fn occupied(&self) -> u64 {
        self.occupied.get()
    }

    /// Returns the bits of slots that hold a child or a split.
    pub fn children(&self) -> u64 {
        self.children.get()
    }

    /// Returns the bits of slots with a pinned child.
    pub(super) fn pinned(&self) -> u64 {
        self.pinned.get()
    }

    /// Pins the child of a slot.
    pub(super) fn pin(&self, number: usize) {
        set_bits(&self.pinned, 1 << number, true);
    }

    /// Shows late readers of this node that it has left the tree.
    pub(super) fn mark_retired(&self) {
        self.slots
            .iter()
            .for_each(|slot| slot.store(SlotValue::RETIRED));
    }
}

/// Sets or clears bits of a set that the edit lock protects.
fn set_bits(set: &Local, bits: u64, on: bool) {
    let before = set.get();
    let after = if on { before | bits } else { before & !bits };
    if after != before {
        set.set(after);
    }
}

/// The value of [`Node::occupied`] for a node without empty slots.
pub const ALL: u64 = if SLOTS == 64 {
    u64::MAX
} else {
    (1 << SLOTS) - 1
};
