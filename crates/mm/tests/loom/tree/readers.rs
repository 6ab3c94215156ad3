//! Loom model (j): the mapping tree.
//!
//! * Lock-free lookups against a first and a second cut of a slot, a replacement and a refill.
//! * A fault that has found a slot of a split or node, which then leaves the tree.
//!
//! A node holds four slots here, and there are two levels. (Two writers: `writers.rs`.)
//!
//! Nodes are not reused in these models: reclamation has a model of its own.

use crate::model::{Model, explore};
use faultless_mm::tree::{SlotValue, Tree};
use faultless_mm::{
    Attributes, Flags, Mapping, Memory, Participant, PerCpu, Protection, SoftDirtyEpoch,
};
use faultless_paging::{Entry, EntryFormat, Frame, Pages, X86_64};
use faultless_sync::atomic::{Ordering, fence};
use faultless_sync::{Cpu, Mutant, with_flaw};
use loom::thread;
use std::sync::Arc;

/// A tree and three mappings to put into it.
pub struct Forest {
    pub memory: &'static Memory<Model>,
    pub tree: Tree,
    mappings: [Mapping; 3],
    /// The page-table entry of the page that faults use.
    pub entry: Entry,
}

impl Forest {
    /// A tree of which pages 0 to 3 point to mapping 0.
    pub fn new() -> Arc<Self> {
        Self::of::<1>()
    }

    /// Like `new`, for `CPUS` writing CPUs.
    pub fn of<const CPUS: usize>() -> Arc<Self> {
        crate::model::set_cpu(0);
        // Leaked: small, once in each execution.
        // One by one: a model's stack is small.
        let per_cpu = (0..CPUS).map(|_| PerCpu::new()).collect::<Vec<_>>().leak();
        let participants = (0..CPUS).map(|_| Participant::new());
        let participants = participants.collect::<Vec<_>>().leak();
        let memory = Memory::new(Model::new(12, CPUS), per_cpu, participants);
        let memory: &'static Memory<Model> = Box::leak(Box::new(memory));
        let attributes = Attributes {
            protection: Protection::default(),
            flags: Flags::default(),
            backed: None,
            birth: SoftDirtyEpoch::default(),
            handler: faultless_mm::Handler::NONE,
        };
        let tree = Tree::new(memory, faultless_mm::tree::PAGES).expect("there are frames");
        let forest = Arc::new(Self {
            memory,
            tree,
            mappings: [(); 3].map(|()| Mapping::new(attributes)),
            entry: Entry::new(),
        });
        forest.set(0, 4, forest.word(0));
        forest
    }

    pub fn word(&self, number: usize) -> SlotValue {
        SlotValue::live(&self.mappings[number])
    }

    /// Cuts and fills pages `start..end`.
    pub fn set(&self, start: u64, end: u64, word: SlotValue) {
        let pages = Pages::new(start, end);
        let mut edit = self.tree.edit(self.memory);
        edit.cut(pages).expect("there are frames");
        edit.fill(pages, word);
    }

    /// Zaps the page, as a writer does after it has changed the mapping: it waits for earlier claims.
    pub fn take_page(&self) {
        fence(Ordering::SeqCst);
        loop {
            let value = self.entry.load();
            if X86_64::FORMAT.is_claimed(value) {
                thread::yield_now();
            } else if value == 0 || self.entry.replace(value, 0).is_ok() {
                return;
            }
        }
    }

    /// The position in `history` of the slot value that a lookup of `page` finds.
    pub fn find(&self, page: u64, history: &[SlotValue]) -> usize {
        let word = self.tree.find(page).word;
        let place = history.iter().position(|w| *w == word);
        place.expect("a lookup finds what was never there")
    }
}

/// Page 0 changes, page 1 never does; no lookup goes back in time.
#[test]
fn lookups_against_a_cut() {
    explore(None, || {
        let forest = Forest::new();
        let reader = {
            let forest = forest.clone();
            thread::spawn(move || {
                let history = [forest.word(0), forest.word(1)];
                let first = forest.find(0, &history);
                assert_eq!(forest.find(1, &history), 0);
                assert!(first <= forest.find(0, &history));
            })
        };
        forest.set(0, 1, forest.word(1));
        reader.join().unwrap();
    });
}

/// A split becomes a node, and page 2 changes; pages 0 and 1 never do.
#[test]
fn lookups_against_a_second_cut() {
    explore(None, || {
        let forest = Forest::new();
        forest.set(0, 1, forest.word(1));
        let reader = {
            let forest = forest.clone();
            thread::spawn(move || {
                assert_eq!(forest.find(0, &[forest.word(1)]), 0);
                assert_eq!(forest.find(1, &[forest.word(0)]), 0);
                let history = [forest.word(0), forest.word(2)];
                let first = forest.find(2, &history);
                assert_eq!(forest.find(0, &[forest.word(1)]), 0);
                assert!(first <= forest.find(2, &history));
            })
        };
        forest.set(2, 4, forest.word(2));
        reader.join().unwrap();
    });
}

/// A slot is cut, emptied, filled again, and replaced as a whole.
#[test]
fn lookups_against_a_replacement() {
    explore(None, || {
        let forest = Forest::new();
        forest.set(0, 1, SlotValue::EMPTY);
        let reader = {
            let forest = forest.clone();
            thread::spawn(move || {
                // Page 1's split empties and leaves the tree; then comes another, then none.
                let history = [
                    forest.word(0),
                    SlotValue::EMPTY,
                    forest.word(1),
                    forest.word(2),
                ];
                let first = forest.find(1, &history);
                let second = forest.find(1, &history);
                assert!(first <= second, "{first} before {second}");
            })
        };
        forest.set(1, 4, SlotValue::EMPTY);
        forest.set(1, 4, forest.word(1));
        forest.set(0, 4, forest.word(2));
        reader.join().unwrap();
    });
}

/// How page 0 gets a slot of its own, and how that slot leaves the tree when its mapping is replaced.
#[derive(Clone, Copy)]
enum Leaves {
    /// In a split, replaced by a mapping of all its pages.
    Split,
    /// In a node, replaced likewise.
    Node,
    /// In a split that becomes a node before page 0 is mapped over.
    Widened,
}

/// Faults that have found mapping 1 in a split or a node claim and validate. Meanwhile a writer replaces the
/// mapping, fences, and waits for claims. No page is published for a mapping that is gone.
fn validation_against(leaves: Leaves, faults: u32, bound: Option<usize>) {
    const LEAF: u64 = X86_64::FORMAT.leaf(Frame(9), true, false, true);
    explore(bound, move || {
        let forest = Forest::new();
        forest.set(0, 1, forest.word(1));
        if let Leaves::Node = leaves {
            forest.set(2, 4, forest.word(2));
        }
        let faults = (0..faults).map(|cpu| {
            let forest = forest.clone();
            thread::spawn(move || {
                let found = forest.tree.find(0);
                if found.word == forest.word(1)
                    && let Ok(claim) = forest.entry.claim::<X86_64>(0, Cpu(cpu))
                    && found.is_valid()
                {
                    claim.publish(LEAF);
                }
            })
        });
        let faults = faults.collect::<Vec<_>>();
        match leaves {
            Leaves::Split | Leaves::Node => forest.set(0, 4, forest.word(2)),
            Leaves::Widened => {
                forest.set(2, 4, forest.word(2));
                forest.set(0, 1, forest.word(2));
            }
        }
        forest.take_page();
        faults.into_iter().for_each(|f| f.join().unwrap());
        assert_eq!(
            forest.entry.load(),
            0,
            "published for a mapping that is gone"
        );
    });
}

#[test]
fn a_split_that_left_the_tree_does_not_validate() {
    validation_against(Leaves::Split, 1, None);
}

#[test]
fn nor_does_a_node() {
    validation_against(Leaves::Node, 1, None);
}

#[test]
fn nor_does_a_split_that_became_a_node() {
    validation_against(Leaves::Widened, 1, None);
}

#[test]
fn nor_for_either_of_two_faults() {
    validation_against(Leaves::Split, 2, Some(3));
}

#[test]
#[should_panic(expected = "published for a mapping that is gone")]
fn broken_node_not_buried() {
    with_flaw(Mutant::NodeNotBuried, || {
        validation_against(Leaves::Node, 1, None);
    });
}

#[test]
#[should_panic(expected = "published for a mapping that is gone")]
fn broken_split_not_buried() {
    with_flaw(Mutant::NodeNotBuried, || {
        validation_against(Leaves::Widened, 1, None);
    });
}

#[test]
#[should_panic(expected = "published for a mapping that is gone")]
fn broken_claim_without_a_fence() {
    with_flaw(Mutant::ClaimWithoutFence, || {
        validation_against(Leaves::Split, 1, None);
    });
}
