//! The slots of a swap device: their allocation, and how often each is used.
//!
//! Every slot has a count of its uses: swap entries, and whatever else needs its content. A free slot has none.
//! The last use that goes discards the slot's content and frees the slot.
//!
//! Slots are grouped in clusters of 256. A CPU owns a cluster, and allocates its slots in order, so that pages
//! that leave together lie together. A cluster that no CPU owns and that has free slots is in a bitmap.
//!
//! * A slot is allocated by a compare-and-swap of its count from 0 to 1. Owning its cluster is no right to it,
//!   only a place to look first.
//! * The content is discarded before the count is 0, so never after the slot's next owner has written it.
//! * A cluster with free slots is owned or in the bitmap, or will be once an operation on it has ended. A CPU
//!   that gives up a cluster and a CPU that frees a slot there change the same word: the later one sees the
//!   other, and enters the cluster in the bitmap.
//!
//! *Writes*: an allocation writes the slot's count, its cluster's line and its CPU's [`SlotCache`]; the bitmap
//! once per cluster. A use that is added or goes writes the count; the last one also the cluster's line, and
//! the bitmap if nothing owns the cluster.

mod cluster;
mod take;
mod uses;

use faultless_frames::NoMemory;
use faultless_paging::Frame;
use faultless_sync::atomic::{Local, amortised};
use faultless_sync::{Mutant, mutant};

use crate::array::FrameArray;
use crate::machine::SwapMachine;
use cluster::{Cluster, Word};
use uses::Uses;
pub use uses::{MOST_USES, NotAdded};

/// The slots of a cluster.
const CLUSTER: u64 = if cfg!(any(loom, shuttle)) { 2 } else { 256 };

/// One CPU's part of the slots of a device.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct SlotCache {
    /// The cluster that the CPU owns, plus 1.
    cluster: Local,
    /// The slot of it to look at next.
    next: Local,
    /// The word of the bitmap to look at first.
    word: Local,
    /// This CPU's part of the slots in use: a difference, which wraps.
    used: Local,
}

/// The slots of a device.
pub struct Slots<M: SwapMachine> {
    machine: M,
    cpus: &'static [SlotCache],
    uses: FrameArray<Uses>,
    clusters: FrameArray<Cluster>,
    available: FrameArray<Word>,
}

impl<M: SwapMachine> Slots<M> {
    /// Makes `slots` slots, all free. `cpus` has a part for each CPU, new, which no other device uses.
    ///
    /// # Errors
    /// [`NoMemory`] when the source has no frames for the counts: about 4.6 bytes for each slot.
    pub fn new(machine: M, cpus: &'static [SlotCache], slots: u64) -> Result<Self, NoMemory> {
        let length = usize::try_from(slots).map_err(|_| NoMemory)?;
        let clusters = length.div_ceil(CLUSTER as usize);
        let uses = FrameArray::new(&machine, length)?;
        let owners = FrameArray::new(&machine, clusters).inspect_err(|_| {
            // SAFETY: the array is not used again.
            unsafe { uses.free(&machine) }
        })?;
        let available = FrameArray::new(&machine, clusters.div_ceil(64)).inspect_err(|_| {
            // SAFETY: as above.
            unsafe {
                uses.free(&machine);
                owners.free(&machine);
            }
        })?;
        let slots = Self {
            machine,
            cpus,
            uses,
            clusters: owners,
            available,
        };
        (0..clusters as u64).for_each(|cluster| slots.offer(cluster));
        Ok(slots)
    }

    /// Returns the number of slots.
    pub fn slots(&self) -> u64 {
        self.uses.len() as u64
    }

    /// Returns the number of slots in use, summed over all CPUs: exact when nothing runs.
    pub fn used(&self) -> u64 {
        let parts = self.cpus.iter().map(|cpu| cpu.used.get());
        let sum = parts.fold(0, u64::wrapping_add);
        // The parts are read one after the other, and may not fit together.
        u64::try_from(sum.cast_signed()).unwrap_or(0)
    }

    /// Allocates a slot, with one use. `None` when all are in use.
    pub fn allocate(&self) -> Option<u64> {
        let own = self.own();
        let slot = self
            .take_in_own(own)
            .or_else(|| amortised(|| self.take_in_next(own)))
            .or_else(|| amortised(|| self.take_anywhere()))?;
        own.used.add(1);
        Some(slot)
    }

    /// Adds a use of a slot. A caller without a use of its own learns whether the slot is in use, but not that
    /// its content is still what the caller means.
    ///
    /// # Errors
    /// [`NotAdded::Free`], and [`NotAdded::TooMany`] for a slot with [`MOST_USES`]: the caller reads the page
    /// and does without the slot. A count never saturates, so no slot is lost.
    pub fn add_use(&self, slot: u64) -> Result<(), NotAdded> {
        self.count(slot).ok_or(NotAdded::Free)?.add()
    }

    /// Removes a use of a slot. The last one discards the slot's content by `discard`, and then frees the slot.
    /// Returns whether it was the last one.
    ///
    /// The caller has a use, which is the one that goes.
    pub fn remove_use(&self, slot: u64, discard: impl FnOnce()) -> bool {
        let Some(uses) = self.count(slot) else {
            return false;
        };
        if !uses.remove() {
            return false;
        }
        if mutant(Mutant::SlotFreedBeforeDiscard) {
            uses.free();
        }
        discard();
        uses.free();
        self.own().used.add(1u64.wrapping_neg());
        let cluster = slot / CLUSTER;
        if self.cluster(cluster).is_some_and(Cluster::subtract) {
            self.offer(cluster);
        }
        true
    }

    /// Returns the number of uses of a slot: 0 if it is free or being freed.
    pub fn uses(&self, slot: u64) -> u32 {
        self.count(slot).map_or(0, Uses::get)
    }

    /// Whether no slot is used, or being freed. `pause` is called between clusters.
    pub fn is_empty(&self, pause: &mut dyn FnMut()) -> bool {
        // By the counts of slots alone: those of clusters and CPUs follow them.
        (0..self.clusters.len() as u64).all(|cluster| {
            pause();
            let mut slots = self.slots_of(cluster);
            slots.all(|slot| self.count(slot).is_none_or(Uses::is_free))
        })
    }

    /// Returns the first slot in use that is not below `from`: the walk of an operation that empties a device.
    pub fn next_used(&self, from: u64) -> Option<u64> {
        let mut slot = from;
        while slot < self.slots() {
            let cluster = self.cluster(slot / CLUSTER)?;
            if slot.is_multiple_of(CLUSTER) && cluster.used() == 0 {
                slot += CLUSTER;
            } else if self.uses(slot) != 0 {
                return Some(slot);
            } else {
                slot += 1;
            }
        }
        None
    }

    /// Calls `visit` with every frame of the counts.
    pub fn for_each_frame(&self, visit: &mut dyn FnMut(Frame)) {
        self.uses.for_each_frame(&self.machine, visit);
        self.clusters.for_each_frame(&self.machine, visit);
        self.available.for_each_frame(&self.machine, visit);
    }

    /// Checks the invariants. Nothing else uses the slots meanwhile.
    ///
    /// # Errors
    /// The rule that is violated.
    pub fn verify(&self) -> Result<(), &'static str> {
        let mut all = 0;
        for number in 0..self.clusters.len() as u64 {
            let slots = self.slots_of(number);
            let size = slots.end - slots.start;
            let used = slots.filter(|slot| self.uses(*slot) != 0).count() as u64;
            let cluster = self.cluster(number).ok_or("a cluster is missing")?;
            if u64::from(cluster.used()) != used {
                return Err("a cluster counts other slots than those in use");
            }
            let word = self.available.get(&self.machine, number as usize / 64);
            let is_available = word.is_some_and(|word| word.has(number % 64));
            if used < size && !cluster.is_owned() && !is_available {
                return Err("a cluster with free slots is lost");
            }
            all += used;
        }
        match all == self.used() {
            true => Ok(()),
            false => Err("the CPUs count other slots than those in use"),
        }
    }

    fn own(&self) -> &SlotCache {
        &self.cpus[self.machine.cpu().index()]
    }

    fn count(&self, slot: u64) -> Option<&Uses> {
        self.uses.get(&self.machine, usize::try_from(slot).ok()?)
    }

    fn cluster(&self, number: u64) -> Option<&Cluster> {
        self.clusters
            .get(&self.machine, usize::try_from(number).ok()?)
    }

    fn slots_of(&self, cluster: u64) -> core::ops::Range<u64> {
        let start = cluster * CLUSTER;
        start..(start + CLUSTER).min(self.slots())
    }
}

impl<M: SwapMachine> Drop for Slots<M> {
    fn drop(&mut self) {
        // SAFETY: the arrays are not used again.
        unsafe {
            self.uses.free(&self.machine);
            self.clusters.free(&self.machine);
            self.available.free(&self.machine);
        }
    }
}
