//! The mapping tree: which mapping a page belongs to, found without a lock.
//!
//! A radix tree over page numbers. A slot covers an aligned power of 64 pages. It holds a mapping, a child
//! node that covers the same pages in more detail, or a split: the one page at which the slot is cut, and a
//! slot for either part. A mapping object has no bounds: it is the *attributes* of all pages with slots that
//! point to it. That makes the common changes cheap and removes their races:
//!
//! * Unmapping a part splits nothing.
//! * A mapping next to an equal neighbour merges by using the neighbour's object.
//! * The slot value leads to the mapping and is also the state that a fault validates
//!   (`docs/decisions/0002-state-in-slots.md`).
//!
//! Readers are lock-free, inside a read section: [`Tree::find`] is at most seven loads. Writers hold the edit
//! lock only for the stores, never while they wait, flush or zap. Objects that they replace are retired.
//!
//! * `value`, `node`, `split`: what a slot holds, arrays of slots, and slots in two parts.
//! * `cut`, `edit`: cutting slots at a boundary (can fail, changes no meaning) and filling a range (cannot
//!   fail).
//! * `retire`: removal of nodes and splits from the tree.
//! * `copy`: a copy of the tree, for a forked address space.
//! * `iter`, `runs`: walks over mapped pages, for writers and for `/proc/PID/maps`; `walk`: over all of it.
//! * `gaps`: choosing addresses, highest first, as Linux does.
//! * `pinned`: nodes that stay, with an edit lock of their own for their slots (`crate::lock::shard`).
//! * `mapping`, `vma_lock`, `account`: the mapping object, its lock, and the statistics of what is mapped.
//!
//! *Models*: loom `tree/{readers,writers}.rs`.

pub(crate) mod account;
mod beside;
mod copy;
mod cut;
mod edit;
mod gaps;
mod iter;
pub(crate) mod mapping;
mod node;
pub(crate) mod pinned;
mod retire;
mod runs;
mod split;
mod value;
pub(crate) mod vma_lock;
mod walk;

use core::ops::Deref;
use core::ptr::NonNull;

use faultless_frames::NoMemory;
use faultless_paging::Pages;
use faultless_sync::{Mutant, Padded, SpinGuard, SpinLock, mutant};

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::tune::TREE_LEVELS;
pub(crate) use copy::Copier;
pub use gaps::GapIndex;
pub use iter::{Neighbours, Run};
pub use node::{Node, Slot, span};
pub(crate) use retire::{node_shape, split_shape};
pub(crate) use value::WRITERS;
pub use value::{SlotState, SlotValue};

/// Pages that the tree can cover.
pub const PAGES: u64 = span(TREE_LEVELS);

/// The mappings of one address space.
pub struct Tree {
    stem: Subtree,
    /// The same tree without what is in shards.
    outside: Subtree,
    /// The edit lock of everything outside shards.
    edit: Padded<SpinLock<GapIndex>>,
}

/// A subtree that bounds a walk: a node, and everything below it.
#[derive(Clone, Copy)]
pub struct Subtree {
    root: NonNull<Node>,
    level: usize,
    /// The first page.
    base: u64,
    /// Whether walks skip shards, as if [`SlotValue::SHARD`] were mapped in each.
    is_outside: bool,
}

// SAFETY: nodes are shared through atomics and reclaimed through sections.
unsafe impl Send for Subtree {}
// SAFETY: as above; editing needs the lock.
unsafe impl Sync for Subtree {}

impl Deref for Tree {
    type Target = Subtree;

    #[inline]
    fn deref(&self) -> &Subtree {
        &self.stem
    }
}

impl<M: Machine, L: EditLocks> Edit<'_, M, L> {
    /// Returns the lowest subtree of the edited one around `pages` ([`Subtree::around`]).
    #[inline]
    pub(crate) fn around(&self, pages: Pages) -> Subtree {
        self.stem.around(pages)
    }
}

impl Subtree {
    #[inline]
    fn root(&self) -> &Node {
        // SAFETY: the root lives as long as the tree, and so does a node that is pinned.
        unsafe { self.root.as_ref() }
    }

    /// Returns the page behind the last.
    #[inline]
    fn end(&self) -> u64 {
        self.base + span(self.level + 1)
    }

    /// Returns the same subtree without what is in shards.
    fn outside(self) -> Self {
        Self {
            is_outside: true,
            ..self
        }
    }
}

/// The slot and the slot value found for a page.
#[derive(Clone, Copy)]
pub struct Found<'s> {
    /// The slot, to be validated again.
    pub slot: &'s Slot,
    /// The slot value that was read.
    pub word: SlotValue,
}

impl Found<'_> {
    /// Whether the slot still holds the value found. Call it after a full fence.
    #[inline]
    pub fn is_valid(&self) -> bool {
        self.slot.holds(self.word) || mutant(Mutant::MappingNotValidated)
    }
}

/// The locks under which a tree, or a subtree, is changed; each guards an index of gaps.
///
/// The tree has one edit lock. `crate::lock`, above, divides the tree into lock domains, and attaches its own
/// per-edit data here.
pub trait EditLocks {
    /// Returns the index of the edited subtree.
    fn own(&self) -> &GapIndex;
    /// Returns the same index, to be changed.
    fn own_mut(&mut self) -> &mut GapIndex;
    /// Changes the indices of everything that is edited.
    fn for_each(&mut self, change: &mut dyn FnMut(&mut GapIndex));
}

impl EditLocks for SpinGuard<'_, GapIndex> {
    fn own(&self) -> &GapIndex {
        self
    }

    fn own_mut(&mut self) -> &mut GapIndex {
        self
    }

    fn for_each(&mut self, change: &mut dyn FnMut(&mut GapIndex)) {
        change(self);
    }
}

/// The right to change the tree, or a subtree, while the locks are held.
pub struct Edit<'a, M: Machine, L: EditLocks> {
    stem: &'a Subtree,
    memory: &'a Memory<M>,
    pub(crate) locks: L,
}

impl Tree {
    /// Creates an empty tree. Addresses are mostly chosen below page `ceiling`.
    ///
    /// # Errors
    /// [`NoMemory`].
    pub fn new<M: Machine>(memory: &Memory<M>, ceiling: u64) -> Result<Self, NoMemory> {
        let place = memory.allocate_node()?;
        // SAFETY: fresh memory of a node's size.
        let root = unsafe { Node::create(place, SlotValue::EMPTY) };
        let stem = Subtree {
            root,
            level: TREE_LEVELS - 1,
            base: 0,
            is_outside: false,
        };
        Ok(Self {
            stem,
            outside: stem.outside(),
            edit: Padded(SpinLock::new(GapIndex::new(ceiling))),
        })
    }

    /// Finds the slot of `page` and its value. The caller is in the read section `'s`, or holds the edit
    /// lock. A range lock alone does not keep nodes, because stacks grow beside it.
    ///
    /// The answer was true at some moment during the call. A replaced node or split holds
    /// [`SlotValue::RETIRED`] in all its slots, stored after its successor is in place. A dropped node or
    /// split was empty.
    #[inline]
    pub fn find<'s>(&'s self, page: u64) -> Found<'s> {
        'root: loop {
            let mut node = self.root();
            let mut level = TREE_LEVELS - 1;
            loop {
                let slot = node.slot(page, level);
                let word = slot.load();
                if !word.is_child() {
                    if word == SlotValue::RETIRED {
                        continue 'root;
                    }
                    return Found { slot, word };
                }
                // SAFETY: read in this section.
                match unsafe { word.content::<'s>() } {
                    SlotState::Child(child) => (node, level) = (child, level - 1),
                    SlotState::Split(split) => {
                        let slot = split.slot(page);
                        let word = slot.load();
                        if word == SlotValue::RETIRED {
                            continue 'root;
                        }
                        return Found { slot, word };
                    }
                    _ => continue 'root,
                }
            }
        }
    }

    /// For models of the tree alone: begins an edit outside shards.
    #[cfg(loom)]
    pub fn edit<'a, M: Machine>(
        &'a self,
        memory: &'a Memory<M>,
    ) -> Edit<'a, M, SpinGuard<'a, GapIndex>> {
        self.outside.edit(memory, self.lock(memory))
    }

    /// Returns the subtree outside shards; its edit lock is [`Tree::lock`].
    pub(crate) fn outside(&self) -> &Subtree {
        &self.outside
    }

    /// Takes the edit lock of everything outside shards.
    #[inline]
    pub(crate) fn lock<'a, M: Machine>(&'a self, memory: &Memory<M>) -> SpinGuard<'a, GapIndex> {
        self.edit.lock(memory.machine())
    }

    /// Whether that lock is held.
    pub(crate) fn is_edited(&self) -> bool {
        self.edit.is_locked()
    }

    /// Returns the whole tree, for an edit under all locks.
    pub(crate) fn whole(&self) -> &Subtree {
        &self.stem
    }

    /// Frees all nodes and mappings: the last use.
    pub fn destroy<M: Machine>(&self, memory: &Memory<M>) {
        retire::free_subtree(memory, self.stem.root, TREE_LEVELS - 1);
    }
}
