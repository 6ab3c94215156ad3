//! Loom models of the gate and of a wait group.
//!
//! * A waiter uses the page, a cell that loom watches, only once the threads that used it inside have left.
//! * Waiters park and are woken.
//! * A wait does not cover later entries.
//!
//! All interleavings, or at most as many preemptions as a model says.

use crate::model::{Machine, explore};
use faultless_sync::atomic::{AtomicU32, Ordering};
use faultless_sync::{Gate, Mutant, WaitGroup, with_flaw};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

struct Shared {
    gate: Gate,
    group: WaitGroup,
    turn: AtomicU32,
    /// Whether the page can still be found; an unmap clears it.
    found: AtomicU32,
    page: UnsafeCell<u32>,
    machine: Machine,
}

// SAFETY: loom checks what is done with the cell.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            gate: Gate::new(),
            group: WaitGroup::new(),
            turn: AtomicU32::new(0),
            found: AtomicU32::new(1),
            page: UnsafeCell::new(0),
            machine: Machine::default(),
        })
    }

    fn use_page(&self) {
        // SAFETY: loom checks it.
        self.page.with(|page| unsafe { *page });
    }

    fn free_page(&self) {
        // SAFETY: loom checks it.
        self.page.with_mut(|page| unsafe { *page = 1 });
    }

    /// Acts as an unmap: enters, makes the page unreachable, and uses it until the flush.
    fn unmap(&self) {
        let ticket = self.gate.enter();
        self.found.store(0, Ordering::Release);
        self.use_page();
        self.gate.leave(ticket, &self.machine);
    }

    /// Acts as a truncation that comes after the unmap.
    fn truncate(&self) {
        if self.found.load(Ordering::Acquire) == 0 {
            self.gate.wait(&self.machine);
            self.free_page();
        }
    }
}

fn beside(shared: &Arc<Shared>, program: fn(&Shared)) -> thread::JoinHandle<()> {
    let shared = shared.clone();
    thread::spawn(move || program(&shared))
}

/// Another wait may change the generation between the unmap's read of it and the count.
fn an_unmap_between_two_waits(preemptions: Option<usize>) {
    explore(preemptions, || {
        let shared = Shared::new();
        let unmap = beside(&shared, Shared::unmap);
        let other = beside(&shared, |shared| shared.gate.wait(&shared.machine));
        shared.truncate();
        unmap.join().unwrap();
        other.join().unwrap();
    });
}

#[test]
fn a_wait_takes_in_what_has_entered() {
    an_unmap_between_two_waits(Some(3));
}

#[test]
#[should_panic]
fn broken_wait_for_one_generation() {
    with_flaw(Mutant::OneGenerationAwaited, || {
        an_unmap_between_two_waits(Some(3));
    });
}

fn a_parked_waiter() {
    explore(None, || {
        let shared = Shared::new();
        let unmap = beside(&shared, Shared::unmap);
        shared.truncate();
        unmap.join().unwrap();
    });
}

#[test]
fn the_last_wakes_the_waiter() {
    a_parked_waiter();
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_last_without_a_wake() {
    with_flaw(Mutant::LastWakesNone, a_parked_waiter);
}

/// A thread enters again and again, and the wait still ends.
#[test]
fn a_wait_does_not_take_in_what_enters_later() {
    explore(Some(3), || {
        let shared = Shared::new();
        let unmaps = beside(&shared, |shared| {
            let mut ticket = shared.gate.enter();
            for _ in 0..2 {
                let next = shared.gate.enter();
                shared.gate.leave(ticket, &shared.machine);
                ticket = next;
            }
            shared.gate.leave(ticket, &shared.machine);
        });
        shared.gate.wait(&shared.machine);
        unmaps.join().unwrap();
    });
}

/// Two threads are in a group, which its waiter then frees: the last one wakes the waiter by a word that
/// stays.
fn a_group_that_goes() {
    explore(Some(3), || {
        let shared = Shared::new();
        shared.group.enter();
        shared.group.enter();
        let leave: fn(&Shared) = |shared| {
            shared.use_page();
            shared.group.leave_for(&shared.turn, &shared.machine);
        };
        let visitors = [beside(&shared, leave), beside(&shared, leave)];
        shared.group.wait_on(&shared.turn, &shared.machine);
        shared.free_page();
        for visitor in visitors {
            visitor.join().unwrap();
        }
    });
}

#[test]
fn a_group_is_waited_for_by_another_word() {
    a_group_that_goes();
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_group_without_a_wake() {
    with_flaw(Mutant::LastWakesNone, a_group_that_goes);
}
