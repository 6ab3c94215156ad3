//! Loom model (a) at the level of the entry (rule R1). Two faults on one page claim its entry and validate a
//! state word; a writer changes the word, fences, and waits for claims. With one fault, every interleaving.

use crate::model::explore;
use faultless_paging::{Entry, EntryFormat, Frame, X86_64};
use faultless_sync::atomic::{AtomicU32, Ordering};
use faultless_sync::{Cpu, Mutant, Phase, State, mutant, with_flaw};
use loom::sync::Arc;
use loom::thread;

const LEAF: u64 = X86_64::FORMAT.leaf(Frame(7), true, false, true);

#[derive(Default)]
struct Shared {
    entry: Entry,
    mapping: State,
    published: AtomicU32,
    taken: AtomicU32,
}

impl Shared {
    /// Performs steps 2 to 9 of a fault.
    fn fault(&self, cpu: u32) {
        if self.mapping.phase() != Phase::Live {
            return;
        }
        let Ok(claim) = self.entry.claim::<X86_64>(0, Cpu(cpu)) else {
            return;
        };
        if self.mapping.phase() == Phase::Live || mutant(Mutant::MappingNotValidated) {
            self.published.fetch_add(1, Ordering::Relaxed);
            claim.publish(LEAF + u64::from(cpu) * 4096);
        }
    }

    /// Unmaps as a writer does: changes the mapping's state, which fences, then empties the entry.
    fn unmap(&self) {
        self.mapping.advance(Phase::Dead);
        loop {
            let value = self.entry.load();
            if value == 0 {
                return;
            }
            if X86_64::FORMAT.is_claimed(value) {
                thread::yield_now();
            } else if self.entry.replace(value, 0).is_ok() {
                self.taken.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
    }
}

fn faults_and_a_writer(count: u32, bound: Option<usize>) {
    explore(bound, move || {
        let shared = Arc::new(Shared::default());
        let faults = (0..count).map(|cpu| {
            let shared = shared.clone();
            thread::spawn(move || shared.fault(cpu))
        });
        let faults = faults.collect::<Vec<_>>();
        shared.unmap();
        faults.into_iter().for_each(|f| f.join().unwrap());
        assert_eq!(shared.entry.load(), 0, "a page outlives its mapping");
        let published = shared.published.load(Ordering::Relaxed);
        assert!(published <= 1, "two faults published one page each");
        assert_eq!(published, shared.taken.load(Ordering::Relaxed));
    });
}

#[test]
fn a_fault_sees_the_change_or_the_writer_sees_the_claim() {
    faults_and_a_writer(1, None);
}

#[test]
fn so_it_is_with_two_faults() {
    faults_and_a_writer(2, Some(3));
}

#[test]
#[should_panic(expected = "a page outlives its mapping")]
fn broken_claim_without_a_fence() {
    with_flaw(Mutant::ClaimWithoutFence, || faults_and_a_writer(1, None));
}

#[test]
#[should_panic(expected = "a page outlives its mapping")]
fn broken_publication_without_validation() {
    with_flaw(Mutant::MappingNotValidated, || faults_and_a_writer(1, None));
}

/// A fault fills a page and publishes it to the users of its entry: a table walk, or a writer that reuses the
/// frame.
fn publication() {
    struct Page {
        entry: Entry,
        content: loom::cell::UnsafeCell<u64>,
    }
    // SAFETY: the model checks which thread may use the content.
    unsafe impl Sync for Page {}
    // SAFETY: as above.
    unsafe impl Send for Page {}
    explore(None, || {
        let page = Arc::new(Page {
            entry: Entry::new(),
            content: loom::cell::UnsafeCell::new(0),
        });
        let fault = {
            let page = page.clone();
            thread::spawn(move || {
                if let Ok(claim) = page.entry.claim::<X86_64>(0, Cpu(1)) {
                    // After the claim, as for a copy: the claim's fence releases all that comes before it.
                    // SAFETY: loom checks it.
                    page.content.with_mut(|content| unsafe { *content = 1 });
                    claim.publish(LEAF);
                }
            })
        };
        if page.entry.load() == LEAF {
            // SAFETY: loom checks it.
            assert_eq!(page.content.with(|content| unsafe { *content }), 1);
        }
        fault.join().unwrap();
    });
}

#[test]
fn what_is_found_was_filled_before() {
    publication();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_publication_relaxed() {
    with_flaw(Mutant::PublishRelaxed, publication);
}
