//! Loom model of spin locks that are taken one by one and all together: exclusion, and visibility of the
//! previous holder's writes.

use crate::model::{Machine, explore};
use faultless_sync::{Mutant, SpinGuards, SpinLock, with_flaw};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// Two locks, and the value that each protects. The cells report concurrent users.
struct Shared {
    locks: [SpinLock<()>; 2],
    machine: Machine,
    values: [UnsafeCell<u32>; 2],
}

// SAFETY: the cells are used under the locks, which is what the models check.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn add(&self, number: usize) {
        // SAFETY: loom checks it.
        self.values[number].with_mut(|value| unsafe { *value += 1 });
    }

    fn add_all(&self) {
        let _guards = SpinGuards::lock(&self.locks, |lock| lock, &self.machine);
        (0..2).for_each(|number| self.add(number));
    }
}

/// One thread takes all locks, another takes one.
fn all_beside_each() {
    explore(Some(2), || {
        let shared = Arc::new(Shared {
            locks: [(); 2].map(|()| SpinLock::new(())),
            machine: Machine::default(),
            values: [0; 2].map(UnsafeCell::new),
        });
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                let _guard = shared.locks[1].lock(&shared.machine);
                shared.add(1);
            })
        };
        shared.add_all();
        other.join().unwrap();
        for (value, added) in shared.values.iter().zip([1, 2]) {
            // SAFETY: all threads are joined.
            value.with(|value| assert_eq!(unsafe { *value }, added));
        }
    });
}

#[test]
fn all_ranges_exclude_one() {
    all_beside_each();
}

#[test]
#[should_panic]
fn broken_unlock_relaxed() {
    with_flaw(Mutant::UnlockRelaxed, all_beside_each);
}
