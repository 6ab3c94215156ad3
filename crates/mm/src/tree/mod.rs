//! The mapping tree: which mapping a page belongs to, found without a lock.
//!
//! A radix tree over page numbers. A slot covers an aligned power of 64 pages
//! and holds a mapping, a child node that covers the same pages in more detail, or
//! a split: the page at which the slot is cut, if it is in one place, and a slot for
//! either part. A mapping object has no bounds: it is the *attributes* of the pages
//! whose slots point to it. That makes the common changes cheap and removes
//! their races: unmapping a part splits nothing, mapping next to an equal
//! neighbour merges by using the neighbour's object, and the word in the slot is
//! at once the way to the mapping and the state that a fault validates
//! (`docs/decisions/0002-state-in-slots.md`).
//!
//! Readers are lock-free, inside a read section: [`Tree::find`] is at most seven
//! loads. Writers hold the edit lock for the stores alone, never while they
//! wait, flush or zap; what they replaced is retired.
//!
//! * `word`, `node`, `split`: what a slot holds, arrays of slots, and slots in two parts.
//! * `cut`, `edit`: cutting slots at a boundary (can fail, changes no meaning) and
//!   filling a range (cannot fail). `free`: what leaves the tree by that.
//! * `copy`: the same tree again, for a forked address space.
//! * `scan`: walking over what is mapped, for writers and for `/proc/PID/maps`.
//! * `holes`: choosing addresses, highest first, as Linux does.
//! * `pin`: nodes that stay, whose slots have an edit lock of their own (`crate::lock::shard`).
//!
//! *Models*: loom `tree/{readers,writers}.rs`.

pub(crate) mod account;
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
    /// The same, but for what is in arenas.
    outside: Subtree,
    /// The edit lock, but for what is in arenas.
    edit: Padded<SpinLock<GapIndex>>,
}

/// A part of a tree that walks do not leave: a node, and what is below it.
#[derive(Clone, Copy)]
pub struct Subtree {
    root: NonNull<Node>,
    level: usize,
    /// The first page.
    base: u64,
    /// Whether arenas are passed over, each as if [`SlotValue::ARENA`] were mapped there.
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
    /// The lowest part of it around `pages` ([`Subtree::around`]).
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

    /// The page behind the last.
    #[inline]
    fn end(&self) -> u64 {
        self.base + span(self.level + 1)
    }

    /// The same, but for what is in arenas.
    fn outside(self) -> Self {
        Self {
            is_outside: true,
            ..self
        }
    }
}

/// Where a page's word was found.
#[derive(Clone, Copy)]
pub struct Found<'s> {
    /// The slot, to be validated again.
    pub slot: &'s Slot,
    /// What it held.
    pub word: SlotValue,
}

impl Found<'_> {
    /// Whether the slot still holds what was found; after a full fence.
    #[inline]
    pub fn is_valid(&self) -> bool {
        self.slot.holds(self.word) || mutant(Mutant::MappingNotValidated)
    }
}

/// The locks under which a tree, or a part of it, is changed; each guards an index of gaps.
///
/// The tree has one edit lock. What divides it into parts with locks of their own stands above
/// (`crate::lock`), and hangs here what belongs to an edit there.
pub trait EditLocks {
    /// The index of what is edited.
    fn own(&self) -> &GapIndex;
    /// The same, to be changed.
    fn own_mut(&mut self) -> &mut GapIndex;
    /// Changes the indices of all that is edited.
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

/// The right to change the tree, or a part of it, as long as the locks are held.
pub struct Edit<'a, M: Machine, L: EditLocks> {
    stem: &'a Subtree,
    memory: &'a Memory<M>,
    pub(crate) locks: L,
}

impl Tree {
    /// An empty tree. Addresses are mostly chosen below page `ceiling`.
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

    /// The slot of `page` and its word. Inside the read section `'s`, or under
    /// the edit lock: a range lock alone does not keep nodes, because stacks
    /// grow beside it.
    ///
    /// The answer was true at some moment during the call: a node or a split that
    /// has been replaced says so in all its slots, after its successor is in place; one
    /// that was dropped was empty.
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

    /// For models of the tree alone: an edit of what is in no shard.
    #[cfg(loom)]
    pub fn edit<'a, M: Machine>(
        &'a self,
        memory: &'a Memory<M>,
    ) -> Edit<'a, M, SpinGuard<'a, GapIndex>> {
        self.outside.edit(memory, self.lock(memory))
    }

    /// What is in no shard, whose edit lock is [`Tree::lock`].
    pub(crate) fn outside(&self) -> &Subtree {
        &self.outside
    }

    /// That lock alone.
    #[inline]
    pub(crate) fn lock<'a, M: Machine>(&'a self, memory: &Memory<M>) -> SpinGuard<'a, GapIndex> {
        self.edit.lock(memory.machine())
    }

    /// Whether another CPU has that lock.
    pub(crate) fn is_edited(&self) -> bool {
        self.edit.is_locked()
    }

    /// The whole tree, for an edit under all locks.
    pub(crate) fn whole(&self) -> &Subtree {
        &self.stem
    }

    /// Gives back all nodes and mappings: the last use.
    pub fn destroy<M: Machine>(&self, memory: &Memory<M>) {
        retire::free_subtree(memory, self.stem.root, TREE_LEVELS - 1);
    }
}
