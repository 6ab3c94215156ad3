//! Loom model (g): hardware sets accessed and dirty bits in a present entry (rule R8).
//!
//! Meanwhile a fault claims the entry in place and withdraws or publishes, and a writer removes the page. The
//! final holder of the entry finds every bit that hardware has set.

use crate::model::explore;
use faultless_paging::{Entry, EntryFormat, Frame, X86_64};
use faultless_sync::{Cpu, Mutant, with_flaw};
use loom::sync::Arc;
use loom::thread;

const BITS: u64 = X86_64::FORMAT.hardware();
/// Read-only and present, neither accessed nor dirty.
const PAGE: u64 = X86_64::FORMAT.leaf(Frame(7), false, false, false) & !BITS;
const WRITE: u64 = X86_64::FORMAT.write.yes;

/// The end of a fault's claim.
#[derive(Clone, Copy, PartialEq)]
enum Then {
    Withdraw,
    Publish,
    Hide,
}

fn claim(entry: &Entry, then: Then) {
    let seen = entry.load();
    if seen == 0 || X86_64::FORMAT.is_claimed(seen) {
        return;
    }
    let Ok(claim) = entry.claim_present::<X86_64>(seen) else {
        return;
    };
    match then {
        Then::Withdraw => drop(claim),
        Then::Publish => {
            claim.publish(|value| value | WRITE);
        }
        // As before a table is freed, but the claim is then withdrawn.
        Then::Hide => drop(claim.hide(Cpu(0))),
    }
}

/// Uses the entry as a table walk does. Returns whether the TLB has it afterwards.
fn touch(entry: &Entry) -> bool {
    for _ in 0..2 {
        let seen = entry.load();
        if !X86_64::FORMAT.is_present(seen) {
            return false;
        }
        if entry.touch(seen, BITS).is_ok() {
            return true;
        }
    }
    false
}

/// Removes the page as a writer does, in at most two attempts. Returns the removed value.
fn remove(entry: &Entry) -> Option<u64> {
    for _ in 0..2 {
        let seen = entry.load();
        if X86_64::FORMAT.is_claimed(seen) {
            thread::yield_now();
        } else if entry.replace(seen, 0).is_ok() {
            return Some(seen);
        }
    }
    None
}

fn bits_against(then: Then) {
    explore(None, move || {
        let entry = Arc::new(Entry::new());
        entry.set(PAGE);
        let fault = {
            let entry = entry.clone();
            thread::spawn(move || claim(&entry, then))
        };
        let hardware = {
            let entry = entry.clone();
            thread::spawn(move || touch(&entry))
        };
        let removed = remove(&entry);
        fault.join().unwrap();
        let cached = hardware.join().unwrap();
        let left = entry.load();
        assert!(!X86_64::FORMAT.is_claimed(left), "entry: a claim is left");
        let held = match removed {
            Some(held) => {
                assert_eq!(left, 0, "a page that was taken away is back");
                held
            }
            None => left,
        };
        assert!(
            !cached || held & BITS == BITS,
            "entry: hardware's bits are lost"
        );
    });
}

#[test]
fn bits_survive_a_withdrawal() {
    bits_against(Then::Withdraw);
}

#[test]
fn bits_survive_a_publication() {
    bits_against(Then::Publish);
}

#[test]
fn bits_survive_hiding() {
    bits_against(Then::Hide);
}

/// Loom does not order the store and hardware's RMW, so that it may also show the claim in place of the bits.
#[test]
#[should_panic(expected = "entry: ")]
fn broken_withdrawal_by_a_store() {
    with_flaw(Mutant::WithdrawByStore, || bits_against(Then::Withdraw));
}
