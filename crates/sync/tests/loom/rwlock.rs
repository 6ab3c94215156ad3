//! Loom models of the reader-writer lock: exclusion, visibility of the previous holder's writes, no lost
//! wake-up, and the lock's downgrade. Loom reports a thread that parks for ever as a deadlock.
//!
//! At most two preemptions in the quick form.

use crate::model::{Machine, explore};
use faultless_sync::{Mutant, RwLock, with_flaw};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// A lock and the value that it protects. The cell reports two users, one of which writes, and a reader that
/// does not see the last write as done.
struct Shared {
    lock: RwLock,
    machine: Machine,
    value: UnsafeCell<u32>,
}

// SAFETY: the cell is used under the lock, which is what the models check.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn new(parks_blindly: bool) -> Arc<Self> {
        Arc::new(Self {
            lock: RwLock::new(),
            machine: Machine {
                parks_blindly,
                ..Machine::default()
            },
            value: UnsafeCell::new(0),
        })
    }

    fn write(&self, value: u32) {
        // SAFETY: loom checks it.
        self.value.with_mut(|v| unsafe { *v = value });
    }

    fn read(&self) -> u32 {
        // SAFETY: loom checks it.
        self.value.with(|v| unsafe { *v })
    }
}

/// Two writers and a reader.
fn exclusion(parks_blindly: bool) {
    explore(Some(2), move || {
        let shared = Shared::new(parks_blindly);
        let writers = [1, 2].map(|number| {
            let shared = shared.clone();
            thread::spawn(move || {
                let _write = shared.lock.write(&shared.machine);
                shared.write(number);
            })
        });
        {
            let _read = shared.lock.read(&shared.machine);
            assert!(shared.read() <= 2);
        }
        writers.into_iter().for_each(|w| w.join().unwrap());
        let _read = shared.lock.read(&shared.machine);
        assert_ne!(shared.read(), 0);
    });
}

#[test]
fn holders_exclude_each_other_and_wake_each_other() {
    exclusion(false);
}

/// A deadlock ends loom's process, so that the model runs in one of its own.
#[test]
fn broken_park_without_a_second_look() {
    const NAME: &str = "rwlock::broken_park_without_a_second_look";
    if std::env::var_os(NAME).is_some() {
        return exclusion(true);
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", NAME, "--nocapture"])
        .env(NAME, "1")
        .output()
        .unwrap();
    assert!(!output.status.success(), "the model did not notice");
    assert!(String::from_utf8_lossy(&output.stderr).contains("deadlock"));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_unlock_without_release() {
    with_flaw(Mutant::UnlockRelaxed, || exclusion(false));
}

/// Two readers share the lock; a writer must not starve or be forgotten.
#[test]
fn readers_share() {
    explore(Some(2), || {
        let shared = Shared::new(false);
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || {
                let _read = shared.lock.read(&shared.machine);
                shared.read();
            })
        };
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || {
                let _write = shared.lock.write(&shared.machine);
                shared.write(1);
            })
        };
        {
            let _read = shared.lock.read(&shared.machine);
            shared.read();
        }
        reader.join().unwrap();
        writer.join().unwrap();
    });
}

/// A writer downgrades while another writer and a reader wait: the reader may enter, the writer may not.
fn downgrade() {
    explore(Some(2), || {
        let shared = Shared::new(false);
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || {
                let _write = shared.lock.write(&shared.machine);
                shared.write(2);
            })
        };
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || {
                let _read = shared.lock.read(&shared.machine);
                shared.read();
            })
        };
        let seen = {
            let write = shared.lock.write(&shared.machine);
            shared.write(1);
            let _read = write.downgrade();
            shared.read()
        };
        writer.join().unwrap();
        reader.join().unwrap();
        assert_eq!(seen, 1, "a writer came in while the lock was downgraded");
    });
}

#[test]
fn downgrade_lets_no_writer_in() {
    downgrade();
}

#[test]
#[should_panic(expected = "a writer came in")]
fn broken_downgrade_by_unlocking() {
    with_flaw(Mutant::DowngradeByUnlocking, downgrade);
}
