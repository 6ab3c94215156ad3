//! Loom model (i): a read section is entered while an object is unlinked, retired and released.
//!
//! Objects are cells that loom watches: a release that is not ordered after a reader's last look is a
//! causality violation.

use crate::model::{Machine, explore};
use faultless_sync::atomic::{AtomicU64, Ordering};
use faultless_sync::reclaim::{Domain, Grace, Owner, Participant};
use faultless_sync::{Cpu, Mutant, with_flaw};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::sync::Mutex;

/// Objects 1 and up. Only the CPU that has retired an object uses its link; readers look at its body.
struct Objects {
    bodies: Vec<UnsafeCell<bool>>,
    links: Mutex<Vec<u64>>,
}

impl Objects {
    fn look(&self, object: u64) {
        // SAFETY: loom checks it.
        let alive = self.bodies[object as usize].with(|alive| unsafe { *alive });
        assert!(alive, "a reader looks at a released object");
    }

    fn is_released(&self, object: u64) -> bool {
        // SAFETY: loom checks it.
        !self.bodies[object as usize].with(|alive| unsafe { *alive })
    }
}

impl Owner for Objects {
    fn next(&self, object: u64) -> u64 {
        self.links.lock().unwrap()[object as usize]
    }
    fn set_next(&self, object: u64, next: u64) {
        self.links.lock().unwrap()[object as usize] = next;
    }
    fn release(&self, _cpu: Cpu, object: u64) {
        // SAFETY: loom checks it.
        self.bodies[object as usize].with_mut(|alive| unsafe { *alive = false });
    }
}

struct Shared {
    domain: Domain,
    cpus: Vec<Participant>,
    objects: Objects,
    machine: Machine,
    /// The link by which readers find an object.
    linked: AtomicU64,
    /// A second link to the same object, and the number of links that lead to it.
    linked_too: AtomicU64,
    places: AtomicU64,
}

// SAFETY: the bodies are used as reclamation allows, which is what the models check.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn new(cpus: u32, objects: usize) -> Arc<Self> {
        let shared = Self {
            domain: Domain::new(),
            cpus: (0..cpus).map(|_| Participant::new()).collect(),
            objects: Objects {
                bodies: (0..=objects).map(|_| UnsafeCell::new(true)).collect(),
                links: Mutex::new(vec![0; objects + 1]),
            },
            machine: Machine::default(),
            linked: AtomicU64::new(1),
            linked_too: AtomicU64::new(1),
            places: AtomicU64::new(2),
        };
        (0..cpus).for_each(|cpu| shared.domain.online(Cpu(cpu)));
        Arc::new(shared)
    }

    /// Reads the object as a lock-free reader does.
    fn read(&self, cpu: u32) {
        let _section = self.domain.enter(&self.cpus[cpu as usize]);
        let object = self.linked.load(Ordering::Acquire);
        if object != 0 {
            self.objects.look(object);
        }
    }

    fn retire(&self, cpu: u32, object: u64) {
        self.retire_as(cpu, (object, Grace::Gone));
    }

    fn retire_as(&self, cpu: u32, object: (u64, Grace)) {
        self.domain
            .retire(Cpu(cpu), &self.cpus, object, &self.objects, &self.machine);
    }

    /// Clears one of the object's two links. Retires the object if the other link does not lead to it any
    /// more, or soon will not.
    fn unlink_from(&self, cpu: u32, place: &AtomicU64, in_section: bool) {
        let section = in_section.then(|| self.domain.enter(&self.cpus[cpu as usize]));
        let is_last = self.places.fetch_sub(1, Ordering::AcqRel) == 1;
        place.store(0, Ordering::Release);
        drop(section);
        if is_last {
            self.retire_as(cpu, (1, Grace::Going));
            self.expedite(cpu);
        }
    }

    fn expedite(&self, cpu: u32) {
        self.domain
            .expedite(Cpu(cpu), &self.cpus, &self.objects, &self.machine);
    }
}

/// A reader, a CPU that retires, and a CPU that is short of memory.
fn enter_against_retire() {
    explore(Some(2), || {
        let shared = Shared::new(3, 1);
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || shared.read(0))
        };
        let hurried = {
            let shared = shared.clone();
            thread::spawn(move || shared.expedite(1))
        };
        shared.linked.store(0, Ordering::Release);
        shared.retire(2, 1);
        shared.expedite(2);
        reader.join().unwrap();
        hurried.join().unwrap();
        shared.expedite(2);
        shared.expedite(2);
        assert!(shared.objects.is_released(1), "nothing is left behind");
    });
}

#[test]
fn a_retired_object_outlives_its_readers() {
    enter_against_retire();
}

/// A reader with two sections, and a CPU that retires: every interleaving.
#[test]
fn a_reader_may_come_again() {
    explore(None, || {
        let shared = Shared::new(2, 1);
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.read(0);
                shared.read(0);
            })
        };
        shared.linked.store(0, Ordering::Release);
        shared.retire(1, 1);
        shared.expedite(1);
        reader.join().unwrap();
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_enter_without_a_fence() {
    with_flaw(Mutant::EnterWithoutFence, enter_against_retire);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_release_after_one_epoch() {
    with_flaw(Mutant::OneEpoch, enter_against_retire);
}

/// Two CPUs unlink one object, each by a link of its own, while a reader follows one of these. The CPU that
/// counts the last link away retires the object, while the other CPU may not have cleared its counted link
/// yet.
fn unlinked_by_two(in_section: bool) {
    explore(Some(3), move || {
        let shared = Shared::new(3, 1);
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || shared.read(0))
        };
        let other = {
            let shared = shared.clone();
            thread::spawn(move || shared.unlink_from(1, &shared.linked, in_section))
        };
        shared.unlink_from(2, &shared.linked_too, in_section);
        reader.join().unwrap();
        other.join().unwrap();
        shared.expedite(2);
        assert!(shared.objects.is_released(1), "nothing is left behind");
    });
}

#[test]
fn an_object_that_two_unlink_outlives_its_readers() {
    unlinked_by_two(true);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_unlinked_outside_a_section() {
    unlinked_by_two(false);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_retired_too_early() {
    with_flaw(Mutant::RetiredTooEarly, || unlinked_by_two(true));
}

/// A reader takes its CPU offline afterwards. The CPU that advances the epoch then no longer looks at that
/// section, and must learn from the set of CPUs that it has ended.
#[test]
fn a_cpu_that_goes_offline_has_read_before() {
    explore(Some(3), || {
        let shared = Shared::new(2, 1);
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || {
                shared.read(0);
                shared.domain.offline(Cpu(0));
            })
        };
        shared.linked.store(0, Ordering::Release);
        shared.retire(1, 1);
        shared.expedite(1);
        reader.join().unwrap();
    });
}

/// Another CPU advances the epoch. The next retirement into a chain's slot, three epochs later, finds the
/// chain ripe.
#[test]
fn a_ripe_chain_is_released_after_its_readers() {
    explore(Some(2), || {
        const BATCH: u64 = 4;
        let shared = Shared::new(3, 2 + 3 * BATCH as usize);
        let reader = {
            let shared = shared.clone();
            thread::spawn(move || shared.read(0))
        };
        let other = {
            let shared = shared.clone();
            thread::spawn(move || {
                // Each batch advances the epoch by one, if possible.
                (3..3 + 3 * BATCH).for_each(|object| shared.retire(1, object));
            })
        };
        shared.linked.store(0, Ordering::Release);
        shared.retire(2, 1);
        shared.retire(2, 2);
        reader.join().unwrap();
        other.join().unwrap();
    });
}
