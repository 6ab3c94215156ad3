//! Loom model (j) with two writers: lookups, and faults that claim and validate, beside two writers of the
//! mapping tree.
//!
//! The writers cut, fill and replace slots of the same node, or of two nodes. Of two nodes one belongs to a
//! shard with an edit lock of its own, and the two lock domains meet only above.
//!
//! At most three preemptions where a model says so, else all interleavings. (One writer: `readers.rs`.)

use crate::model::explore;
use crate::tree::readers::Forest;
use faultless_mm::tree::{GapIndex, PAGES, SlotValue};
use faultless_paging::{EntryFormat, Frame, Pages, X86_64};
use faultless_sync::{Cpu, Mutant, SpinLock, with_flaw};
use loom::thread;
use std::sync::Arc;

/// Runs a writer on CPU `cpu`, in a new thread.
fn writes(
    forest: &Arc<Forest>,
    cpu: u32,
    program: impl FnOnce(&Forest) + Send + 'static,
) -> thread::JoinHandle<()> {
    let forest = forest.clone();
    thread::spawn(move || {
        crate::model::set_cpu(cpu);
        program(&forest);
    })
}

/// Each writer cuts off one end of a slot; the second one turns the first one's split into a node. The pages
/// between never change.
#[test]
fn lookups_between_two_cuts() {
    explore(None, || {
        let forest = Forest::of::<3>();
        let low = writes(&forest, 1, |forest| forest.set(0, 1, forest.word(1)));
        let high = writes(&forest, 2, |forest| forest.set(3, 4, forest.word(2)));
        assert_eq!(forest.find(1, &[forest.word(0)]), 0);
        let first = forest.find(0, &[forest.word(0), forest.word(1)]);
        assert_eq!(forest.find(2, &[forest.word(0)]), 0);
        assert!(first <= forest.find(0, &[forest.word(0), forest.word(1)]));
        low.join().unwrap();
        high.join().unwrap();
        for (page, number) in [(0, 1), (1, 0), (2, 0), (3, 2)] {
            assert_eq!(forest.find(page, &[forest.word(number)]), 0);
        }
    });
}

/// One writer cuts a slot that the other replaces as a whole. The result is that of one after the other.
#[test]
fn lookups_beside_a_cut_and_a_replacement() {
    explore(Some(3), || {
        let forest = Forest::of::<3>();
        let cutting = writes(&forest, 1, |forest| forest.set(0, 1, forest.word(1)));
        let replacing = writes(&forest, 2, |forest| forest.set(0, 4, forest.word(2)));
        let history = [forest.word(0), forest.word(2)];
        let first = forest.find(3, &history);
        forest.find(0, &[forest.word(0), forest.word(1), forest.word(2)]);
        assert!(first <= forest.find(3, &history));
        cutting.join().unwrap();
        replacing.join().unwrap();
        forest.find(0, &[forest.word(1), forest.word(2)]);
        assert_eq!(forest.find(1, &[forest.word(2)]), 0);
        assert_eq!(forest.find(3, &[forest.word(2)]), 0);
    });
}

/// One writer empties what the other fills: the cut slots leave the tree and are made again.
#[test]
fn lookups_beside_an_emptying_and_a_filling_writer() {
    explore(None, || {
        let forest = Forest::of::<3>();
        forest.set(0, 1, SlotValue::EMPTY);
        let emptying = writes(&forest, 1, |forest| forest.set(1, 4, SlotValue::EMPTY));
        let filling = writes(&forest, 2, |forest| forest.set(0, 1, forest.word(1)));
        let history = [forest.word(0), SlotValue::EMPTY];
        let first = forest.find(2, &history);
        assert!(first <= forest.find(2, &history));
        emptying.join().unwrap();
        filling.join().unwrap();
        assert_eq!(forest.find(0, &[forest.word(1)]), 0);
        assert_eq!(forest.find(2, &[SlotValue::EMPTY]), 0);
    });
}

/// A fault has found mapping 1 in a split. Another writer turns the split into a node before, while, or after
/// mapping 1 is replaced. No page is published for a mapping that is gone.
fn validation_beside_two() {
    const LEAF: u64 = X86_64::FORMAT.leaf(Frame(9), true, false, true);
    explore(Some(3), || {
        let forest = Forest::of::<3>();
        forest.set(0, 1, forest.word(1));
        let fault = writes(&forest, 1, |forest| {
            let found = forest.tree.find(0);
            if found.word == forest.word(1)
                && let Ok(claim) = forest.entry.claim::<X86_64>(0, Cpu(1))
                && found.is_valid()
            {
                claim.publish(LEAF);
            }
        });
        let widening = writes(&forest, 2, |forest| forest.set(2, 4, forest.word(2)));
        forest.set(0, 1, forest.word(2));
        forest.take_page();
        fault.join().unwrap();
        widening.join().unwrap();
        let left = forest.entry.load();
        assert_eq!(left, 0, "published for a mapping that is gone");
    });
}

#[test]
fn a_split_that_another_widens_does_not_validate() {
    validation_beside_two();
}

#[test]
#[should_panic(expected = "published for a mapping that is gone")]
fn broken_split_not_buried_by_another() {
    with_flaw(Mutant::NodeNotBuried, validation_beside_two);
}

/// Pages 4 to 7 are a lock domain with an edit lock of its own, as in a shard. The pages before them change
/// under the tree's edit lock. Each domain is emptied and filled again, and lookups see the states of each in
/// order.
#[test]
fn lookups_in_two_parts() {
    explore(None, || {
        let forest = Forest::of::<3>();
        forest.set(4, 8, forest.word(1));
        let part = forest.tree.pin_node(forest.memory, 4).expect("frames");
        let part = Arc::new((part, SpinLock::new(GapIndex::new(PAGES))));
        let own = part.clone();
        let inside = writes(&forest, 1, move |forest| {
            let (stem, lock) = &*own;
            for word in [SlotValue::EMPTY, forest.word(2)] {
                let mut edit = stem.edit_alone(forest.memory, lock);
                edit.fill(Pages::new(4, 8), word);
            }
        });
        let outside = writes(&forest, 2, |forest| {
            forest.set(1, 4, SlotValue::EMPTY);
            forest.set(0, 4, forest.word(2));
        });
        let history = [forest.word(1), SlotValue::EMPTY, forest.word(2)];
        let first = forest.find(5, &history);
        let before = [forest.word(0), SlotValue::EMPTY, forest.word(2)];
        let seen = forest.find(2, &before);
        assert!(first <= forest.find(5, &history));
        assert!(seen <= forest.find(2, &before));
        inside.join().unwrap();
        outside.join().unwrap();
        for page in 0..8 {
            assert_eq!(forest.find(page, &[forest.word(2)]), 0, "page {page}");
        }
        // The pinned node does not hinder a fill of the slots around it.
        forest
            .tree
            .edit(forest.memory)
            .fill(Pages::new(0, 4), SlotValue::EMPTY);
        assert_eq!(forest.find(4, &[forest.word(2)]), 0);
    });
}
