//! Pending unmaps of pages without a count: how many writers have detached such pages and not flushed them
//! yet.
//!
//! The protocol is in [`crate::lock::departing`]. This module has the part that all address spaces share.
//!
//! *Writes*: one of the two counts of a lane, by a writer that detaches and again when it has flushed; the
//! line of devices, by writers that detach a device's pages.

use crate::tune::LANES;

use faultless_sync::atomic::Local;
use faultless_sync::{Gate, Mutant, Padded, SpinLock, mutant};

/// The pending unmaps of a machine.
pub(crate) struct Departing {
    pub(crate) lanes: [Padded<Gate>; LANES],
    pub(crate) devices: Padded<SpinLock<Devices>>,
}

/// Pending unmaps of device mappings, counted in two generations. Writers of the generation that is not
/// current began before the last change of generations.
#[derive(Default)]
pub(crate) struct Devices {
    generation: usize,
    at_work: [u32; 2],
    /// Mappings that no slot leads to any more, chained by their links. Those in `old` wait for the older
    /// generation; those in `new` have come since.
    old: u64,
    new: u64,
}

impl Devices {
    pub(crate) fn begin(&mut self) -> usize {
        self.at_work[self.generation] += 1;
        self.generation
    }

    /// Keeps a mapping, given by its address, of which the link is `link`.
    pub(crate) fn push(&mut self, mapping: u64, link: &Local) {
        link.set(self.new);
        self.new = mapping;
    }

    /// Ends one pending unmap. Returns what to retire: mappings that left before every writer still at work
    /// began.
    pub(crate) fn end(&mut self, generation: usize) -> [u64; 2] {
        self.at_work[generation] -= 1;
        let older = 1 - self.generation;
        if self.at_work[older] != 0 && !mutant(Mutant::DeviceGoneWithFirstFlush) {
            return [0; 2];
        }
        let done = core::mem::replace(&mut self.old, core::mem::take(&mut self.new));
        // The writers that began before the mappings now in `old` left are all in the generation that ends
        // here.
        self.generation = older;
        match self.at_work[1 - older] == 0 || mutant(Mutant::DeviceGoneWithFirstFlush) {
            true => [done, core::mem::take(&mut self.old)],
            false => [done, 0],
        }
    }
}

impl Departing {
    /// No pending unmap.
    pub(crate) fn new() -> Self {
        Self {
            lanes: Default::default(),
            devices: Padded(SpinLock::new(Devices::default())),
        }
    }

    /// Returns the number of an object's lane.
    pub(crate) fn lane_of<T>(object: &T) -> usize {
        let address = core::ptr::from_ref(object).addr() as u64;
        // Fibonacci hashing (Knuth): the highest bits of the product depend on all lower ones.
        (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize % LANES
    }
}
