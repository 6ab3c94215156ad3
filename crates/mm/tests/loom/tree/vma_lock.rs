//! Loom model of a mapping's own lock (policy `vma-lock`). A fault that holds the mapping and a writer that
//! has locked faults out exclude each other.
//!
//! Loom watches the protected data as a cell. Models of whole operations cannot show this exclusion: under
//! this policy, too, the entry protocol prevents damage if a fault and a writer meet.

#[path = "../../../../sync/tests/model/mod.rs"]
mod model;

/// The file of the core itself, because its lock is not public.
#[path = "../../../src/tree/vma_lock.rs"]
#[allow(dead_code)]
mod vma_lock;

use faultless_sync::atomic::{AtomicU32, Ordering};
use faultless_sync::{Mutant, with_flaw};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use model::{Machine, explore};
use vma_lock::VmaLock;

/// A mapping's lock, the address space's current write hold, and the data that they protect.
struct Shared {
    lock: VmaLock,
    write_hold: AtomicU32,
    content: UnsafeCell<u32>,
    machine: Machine,
}

// SAFETY: the cell is used under the lock, which is what the models check.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            lock: VmaLock::new(),
            write_hold: AtomicU32::new(1),
            content: UnsafeCell::new(0),
            machine: Machine::default(),
        })
    }

    /// A fault's attempt. Returns the value read, unless the fault was locked out.
    fn fault(&self) -> Option<u32> {
        let _read = self.lock.try_read(&self.write_hold)?;
        // SAFETY: loom checks it.
        Some(self.content.with(|content| unsafe { *content }))
    }

    /// One write hold of a writer. It ends as in `MmapLock::end_hold`.
    fn change(&self) {
        let hold = self.write_hold.load(Ordering::Relaxed);
        self.lock.lock_out_readers(hold, &self.machine);
        // SAFETY: loom checks it.
        self.content.with_mut(|content| unsafe { *content += 1 });
        self.write_hold.store(hold + 1, Ordering::Release);
    }
}

/// `faults` CPUs with two attempts each, and a writer with two write holds.
fn faults_and_a_writer(faults: u32, bound: Option<usize>) {
    explore(bound, move || {
        let shared = Shared::new();
        let faults = (0..faults).map(|_| {
            let shared = shared.clone();
            thread::spawn(move || {
                let seen = [shared.fault(), shared.fault()];
                assert!(seen[1].is_none() || seen[0] <= seen[1]);
            })
        });
        let faults = faults.collect::<Vec<_>>();
        shared.change();
        shared.change();
        faults.into_iter().for_each(|f| f.join().unwrap());
        assert_eq!(shared.fault(), Some(2), "the lock has not ended");
    });
}

#[test]
fn a_fault_and_a_writer_exclude_each_other() {
    faults_and_a_writer(1, None);
}

#[test]
fn so_do_two_faults_and_a_writer() {
    faults_and_a_writer(2, Some(2));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_hold_without_a_fence() {
    with_flaw(Mutant::HoldWithoutFence, || faults_and_a_writer(1, None));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_lock_without_a_fence() {
    with_flaw(Mutant::LockOutWithoutFence, || faults_and_a_writer(1, None));
}
