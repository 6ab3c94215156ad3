//! Loom models of slots that are allocated, shared and freed.
//!
//! * A slot has one owner: what it wrote is what it reads.
//! * The last use discards the content, after every read and before the next owner's write.
//! * At the end the counts agree, and every cluster with free slots is owned or can be found.
//!
//! Every interleaving; with three slots and two clusters, those with at most four preemptions.

use crate::explore::explore;
use crate::machine::{Cells, Machine, set_cpu};
use faultless_swap::{Page, SlotCache, Slots, SwapDevice};
use faultless_sync::{Mutant, with_flaw};
use loom::sync::Arc;
use loom::thread;

struct Shared {
    slots: Slots<Machine>,
    device: Cells,
}

impl Shared {
    fn new(count: u64) -> Arc<Self> {
        set_cpu(0);
        let cpus = Vec::leak((0..2).map(|_| SlotCache::default()).collect());
        Arc::new(Self {
            slots: Slots::new(Machine::new(), cpus, count).unwrap(),
            device: Cells::new(count as usize),
        })
    }

    fn write(&self, slot: u64, byte: u8) {
        let page: Page = [byte; 4096];
        self.device.write(slot, &page).unwrap();
    }

    fn check(&self, slot: u64, byte: u8) {
        let mut page: Page = [0; 4096];
        self.device.read(slot, &mut page).unwrap();
        assert_eq!(page[0], byte);
    }

    fn free(&self, slot: u64) -> bool {
        self.slots.remove_use(slot, || self.device.discard(slot))
    }

    /// Allocates a slot if there is one, uses it, and frees it.
    fn use_once(&self, byte: u8) -> bool {
        let Some(slot) = self.slots.allocate() else {
            return false;
        };
        self.write(slot, byte);
        self.check(slot, byte);
        assert!(self.free(slot));
        true
    }

    /// The other CPU.
    fn beside(
        shared: &Arc<Self>,
        work: impl FnOnce(&Shared) + Send + 'static,
    ) -> thread::JoinHandle<()> {
        let shared = shared.clone();
        thread::spawn(move || {
            set_cpu(1);
            work(&shared);
        })
    }
}

/// Two CPUs use the only slot.
fn one_slot() {
    explore(None, || {
        let shared = Shared::new(1);
        let other = Shared::beside(&shared, |shared| {
            shared.use_once(1);
        });
        shared.use_once(2);
        other.join().unwrap();
        assert_eq!(shared.slots.used(), 0);
        shared.slots.verify().unwrap();
    });
}

/// Two CPUs have a use each of one slot, read it, and remove their uses. One shares it once more.
fn two_uses() {
    explore(None, || {
        let shared = Shared::new(2);
        let slot = shared.slots.allocate().unwrap();
        shared.write(slot, 7);
        shared.slots.add_use(slot).unwrap();
        let other = Shared::beside(&shared, move |shared| {
            shared.check(slot, 7);
            shared.free(slot);
        });
        shared.slots.add_use(slot).unwrap();
        shared.check(slot, 7);
        assert!(!shared.free(slot));
        shared.free(slot);
        other.join().unwrap();
        assert_eq!(shared.slots.used(), 0);
        assert!(shared.device.read(slot, &mut [0; 4096]).is_err());
        shared.slots.verify().unwrap();
    });
}

/// A CPU goes on to another cluster while the other CPU frees a slot of its cluster.
fn freed_beside_giving_up() {
    explore(None, || {
        let shared = Shared::new(4);
        let first = shared.slots.allocate().unwrap();
        let second = shared.slots.allocate().unwrap();
        let other = Shared::beside(&shared, move |shared| {
            shared.free(first);
        });
        let third = shared.slots.allocate().unwrap();
        assert!(third != second);
        other.join().unwrap();
        assert_eq!(shared.slots.used(), 2);
        shared.slots.verify().unwrap();
    });
}

/// Both CPUs take clusters, give them up, and take each other's slots.
fn clusters_run_out() {
    explore(Some(4), || {
        let shared = Shared::new(3);
        let other = Shared::beside(&shared, |shared| {
            let first = shared.slots.allocate().unwrap();
            shared.use_once(1);
            shared.free(first);
        });
        // At most two slots are the other CPU's.
        assert!(shared.use_once(2));
        other.join().unwrap();
        assert_eq!(shared.slots.used(), 0);
        shared.slots.verify().unwrap();
    });
}

#[test]
fn a_slot_has_one_owner() {
    one_slot();
}

#[test]
fn the_last_use_discards() {
    two_uses();
}

#[test]
fn no_cluster_is_lost() {
    freed_beside_giving_up();
}

#[test]
fn clusters_of_two_cpus() {
    clusters_run_out();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_slot_freed_before_discard() {
    with_flaw(Mutant::SlotFreedBeforeDiscard, one_slot);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn broken_uses_relaxed() {
    with_flaw(Mutant::UsesRelaxed, two_uses);
}

#[test]
#[should_panic(expected = "a cluster with free slots is lost")]
fn broken_cluster_given_up_blindly() {
    with_flaw(Mutant::ClusterGivenUpBlindly, freed_beside_giving_up);
}
