//! Loom model (b): a table is freed beside a live neighbour in it (rule R5).
//!
//! A writer unmaps page 0 and frees the table if it is empty. One fault uses page 0; another uses page 1 of
//! the same table, and may have to install a new table.

use crate::model::{Memory, ROOT, explore};
use faultless_paging::{EntryFormat, Frame, Gather, Pages, Walk, X86_64, free};
use faultless_sync::atomic::{AtomicU64, Ordering};
use faultless_sync::{Cpu, Mutant, Phase, State, with_flaw};
use loom::sync::Arc;
use loom::thread;

const FORMAT: faultless_paging::Format = X86_64::FORMAT;
const TABLE: Frame = Frame(2);
const SPARE: Frame = Frame(3);

struct Shared {
    memory: Memory,
    /// The state of page 0's mapping. Page 1's never changes.
    mapping: State,
    /// The table that was freed.
    freed: AtomicU64,
}

impl Shared {
    fn new() -> Arc<Self> {
        let memory = Memory::new(2);
        memory.entry(ROOT, 0).set(FORMAT.table(TABLE));
        Arc::new(Self {
            memory,
            mapping: State::new(),
            freed: AtomicU64::new(0),
        })
    }

    /// Faults on `page`, with a spare table in hand. Returns whether the fault published.
    ///
    /// As in the engine, an attempt that meets another operation is abandoned. Here the fault does not wait,
    /// because two spinning threads would blow up the model.
    fn fault(&self, page: u64, cpu: Cpu, is_live: impl Fn() -> bool) -> bool {
        for _ in 0..3 {
            if !is_live() {
                return false;
            }
            match self.memory.walk(page) {
                Walk::Missing { entry, link, .. } => {
                    if let Ok(claim) = entry.claim::<X86_64>(0, cpu)
                        && is_live()
                        && link.is_valid()
                    {
                        claim.publish(FORMAT.table(SPARE));
                    }
                }
                Walk::Leaf { entry, value, link } => {
                    if value == 0
                        && let Ok(claim) = entry.claim::<X86_64>(0, cpu)
                        && is_live()
                        && link.is_valid()
                    {
                        claim.publish(FORMAT.leaf(Frame(8 + page), true, false, true));
                        return true;
                    }
                }
                Walk::Busy | Walk::Huge { .. } => {}
            }
        }
        false
    }

    /// Unmaps page 0 and frees its table.
    fn unmap(&self, cpu: Cpu) {
        self.mapping.advance(Phase::Dead);
        if let Walk::Leaf { entry, .. } = self.memory.walk(0) {
            loop {
                let value = entry.load();
                if FORMAT.is_claimed(value) {
                    thread::yield_now();
                } else if value == 0 || entry.replace(value, 0).is_ok() {
                    break;
                }
            }
        }
        let pages = Pages::new(0, 1);
        let mut gather = Gather::new();
        // SAFETY: tables are not reused; this CPU alone detaches.
        unsafe {
            free::detach::<X86_64, _>(&self.memory, ROOT, pages, 1, cpu, &mut gather, &|_| true);
            free::unlink::<X86_64, _>(&self.memory, ROOT, pages, 1, cpu, &mut |table| {
                self.freed.store(table.0, Ordering::Relaxed);
            });
        }
    }
}

/// A walk finds page 1 if and only if its fault has published it.
fn neighbour_lives(with_fault_in_range: bool, bound: Option<usize>) {
    explore(bound, move || {
        let shared = Shared::new();
        let neighbour = {
            let shared = shared.clone();
            thread::spawn(move || shared.fault(1, Cpu(1), || true))
        };
        let late = with_fault_in_range.then(|| {
            let shared = shared.clone();
            thread::spawn(move || {
                let is_live = || shared.mapping.phase() == Phase::Live;
                shared.fault(0, Cpu(2), is_live)
            })
        });
        shared.unmap(Cpu(0));
        let published = neighbour.join().unwrap();
        late.map(|late| late.join().unwrap());

        let linked = shared.memory.entry(ROOT, 0).load();
        assert!(!FORMAT.is_claimed(linked), "a claim is left");
        let found = match shared.memory.walk(1) {
            Walk::Leaf { value, .. } => value,
            _ => 0,
        };
        assert_eq!(published, found != 0, "the neighbour's page is lost");
        for table in [TABLE, SPARE] {
            assert_eq!(shared.memory.entry(table, 0).load(), 0, "page 0 is left");
        }
        let freed = Frame(shared.freed.load(Ordering::Relaxed));
        if freed != Frame(0) {
            assert_ne!(FORMAT.frame(linked), freed, "a freed table is linked");
            assert_eq!(
                shared.memory.entry(freed, 1).load(),
                0,
                "a freed table is used"
            );
        }
    });
}

#[test]
fn a_table_is_freed_beside_a_fault_on_its_neighbour() {
    neighbour_lives(false, None);
}

#[test]
fn a_table_is_freed_beside_two_faults() {
    neighbour_lives(true, Some(2));
}

#[test]
#[should_panic(expected = "the neighbour's page is lost")]
fn broken_link_not_validated() {
    with_flaw(Mutant::LinkNotValidated, || neighbour_lives(false, None));
}

#[test]
#[should_panic(expected = "the neighbour's page is lost")]
fn broken_table_not_scanned() {
    with_flaw(Mutant::TableNotScanned, || neighbour_lives(false, None));
}

#[test]
#[should_panic(expected = "the neighbour's page is lost")]
fn broken_claim_without_a_fence() {
    with_flaw(Mutant::ClaimWithoutFence, || neighbour_lives(false, None));
}
