//! Where an allocation finds a slot: in the CPU's cluster, in the next one of the bitmap, or anywhere.

use faultless_sync::{Mutant, mutant};

use super::cluster::Cluster;
use super::uses::Uses;
use super::{CLUSTER, SlotCache, Slots};
use crate::machine::SwapMachine;

impl<M: SwapMachine> Slots<M> {
    /// Takes the next free slot of the CPU's cluster.
    pub(super) fn take_in_own(&self, own: &SlotCache) -> Option<u64> {
        let cluster = own.cluster.get().checked_sub(1)?;
        let slot = self.take_in(cluster, own.next.get())?;
        own.next.set(slot + 1);
        Some(slot)
    }

    /// Gives up the CPU's cluster, and takes a slot of another one.
    #[cold]
    pub(super) fn take_in_next(&self, own: &SlotCache) -> Option<u64> {
        // As many turns as there are clusters, because slots that are taken anywhere may leave a cluster in the
        // bitmap that has no free slot.
        for _ in 0..=self.clusters.len() {
            if let Some(cluster) = own.cluster.get().checked_sub(1) {
                own.cluster.set(0);
                self.give_up(cluster);
            }
            let cluster = self.claim(own)?;
            own.cluster.set(cluster + 1);
            own.next.set(cluster * CLUSTER);
            if let Some(slot) = self.take_in_own(own) {
                return Some(slot);
            }
        }
        None
    }

    /// Takes a free slot of any cluster: the last ones are in clusters of other CPUs.
    #[cold]
    pub(super) fn take_anywhere(&self) -> Option<u64> {
        (0..self.clusters.len() as u64).find_map(|cluster| self.take_in(cluster, 0))
    }

    /// Takes the first free slot of a cluster that is not below `from`.
    fn take_in(&self, number: u64, from: u64) -> Option<u64> {
        let cluster = self.cluster(number)?;
        let slots = self.slots_of(number);
        if u64::from(cluster.used()) >= slots.end - slots.start {
            return None;
        }
        let mut slots = slots.start.max(from)..slots.end;
        let slot = slots.find(|slot| self.count(*slot).is_some_and(Uses::take))?;
        cluster.add();
        Some(slot)
    }

    /// Takes a cluster out of the bitmap. This CPU owns it now.
    fn claim(&self, own: &SlotCache) -> Option<u64> {
        let words = self.available.len() as u64;
        let start = own.word.get();
        for at in (start..words).chain(0..start) {
            let word = self.available.get(&self.machine, at as usize)?;
            if let Some(bit) = word.take() {
                own.word.set(at);
                let number = at * 64 + bit;
                self.cluster(number)?.own();
                return Some(number);
            }
        }
        None
    }

    /// Ends this CPU's ownership of a cluster.
    fn give_up(&self, number: u64) {
        let slots = self.slots_of(number);
        let used = self.cluster(number).map(Cluster::give_up);
        let has_free = used.is_some_and(|used| u64::from(used) < slots.end - slots.start);
        if has_free && !mutant(Mutant::ClusterGivenUpBlindly) {
            self.offer(number);
        }
    }

    /// Enters a cluster in the bitmap.
    pub(super) fn offer(&self, number: u64) {
        if let Some(word) = self.available.get(&self.machine, number as usize / 64) {
            word.set(number % 64);
        }
    }
}
