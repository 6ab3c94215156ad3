//! Loom model: a whole table moves while an operation has claimed an entry of it. The operation walks back to
//! the entry by the page's address, as DONTNEED does after its flush. The claim must not move with the table.

use crate::model::{Memory, ROOT, explore};
use faultless_paging::relink::{Detached, detach_whole, relink};
use faultless_paging::{EntryFormat, Frame, Gather, Pages, Walk, X86_64};
use faultless_sync::{Cpu, Mutant, Phase, State, with_flaw};
use loom::sync::Arc;
use loom::thread;

const FORMAT: faultless_paging::Format = X86_64::FORMAT;
const TABLE: Frame = Frame(2);
/// The page's frame.
const PAGE: Frame = Frame(9);

struct Shared {
    memory: Memory,
    /// The state of the mapping at the table's old place.
    mapping: State,
}

impl Shared {
    /// Discards page 0 if its mapping is live: claims, validates, walks back, and empties the entry. Returns
    /// whether it did.
    fn discard(&self, cpu: Cpu) -> bool {
        let Walk::Leaf { entry, value, link } = self.memory.walk(0) else {
            return false;
        };
        if value == 0 || FORMAT.is_claimed(value) {
            return false;
        }
        let Ok(claim) = entry.claim::<X86_64>(value, cpu) else {
            return false;
        };
        if self.mapping.phase() != Phase::Live || !link.is_valid() {
            return false;
        }
        claim.keep();
        loop {
            match self.memory.walk(0) {
                Walk::Leaf { entry, value, .. } => {
                    assert_eq!(
                        value,
                        FORMAT.claim_of(value, cpu),
                        "the claim is not where it was"
                    );
                    entry.set(0);
                    return true;
                }
                Walk::Missing { .. } => panic!("the claim is not where it was"),
                _ => thread::yield_now(),
            }
        }
    }
}

fn moved_beside_a_claim() {
    explore(None, || {
        let shared = Arc::new(Shared {
            memory: Memory::new(1),
            mapping: State::new(),
        });
        shared.memory.entry(ROOT, 0).set(FORMAT.table(TABLE));
        let page = FORMAT.leaf(PAGE, true, false, true);
        shared.memory.entry(TABLE, 0).set(page);
        let other = shared.clone();
        let discard = thread::spawn(move || other.discard(Cpu(1)));
        shared.mapping.advance(Phase::Changing);
        let mut gather = Gather::new();
        let memory = &shared.memory;
        // SAFETY: tables are not reused; this CPU alone detaches.
        let mut detach =
            || unsafe { detach_whole::<X86_64, _>(memory, ROOT, 0, Cpu(0), &mut gather) };
        let mut discard = Some(discard);
        let mut is_gone = false;
        let mut tried = detach();
        if tried == Detached::Busy {
            // Waits until the claim has ended.
            is_gone = discard.take().is_some_and(|thread| thread.join().unwrap());
            tried = detach();
        }
        assert_eq!(tried, Detached::Done);
        // SAFETY: as above.
        unsafe {
            relink::<X86_64, _>(
                memory,
                ROOT,
                Pages::new(0, 2),
                Cpu(0),
                &mut |base, table| {
                    assert_eq!(base, 0);
                    let target = memory.entry(ROOT, 1);
                    assert!(target.replace(0, FORMAT.table(table)).is_ok());
                },
            );
        }
        is_gone |= discard.is_some_and(|thread| thread.join().unwrap());
        assert_eq!(memory.entry(ROOT, 0).load(), 0, "it is at both places");
        let Walk::Leaf { value, .. } = memory.walk(2) else {
            panic!("the table is lost");
        };
        assert_eq!(value, if is_gone { 0 } else { page });
    });
}

#[test]
fn a_whole_table_moves_beside_a_claim() {
    moved_beside_a_claim();
}

#[test]
#[should_panic(expected = "the claim is not where it was")]
fn broken_claim_goes_along() {
    with_flaw(Mutant::ClaimedTableMoved, moved_beside_a_claim);
}

/// The claim does not see that the mapping is changing, and the scan of the table does not see the claim.
#[test]
#[should_panic]
fn broken_claim_without_a_fence() {
    with_flaw(Mutant::ClaimWithoutFence, moved_beside_a_claim);
}
