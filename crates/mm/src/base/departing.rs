//! Counts of the writers that have detached pages which no frame counts, and not flushed them yet.
//!
//! The protocol is [`crate::lock::departing`]; this is what all address spaces share of it.
//!
//! *Writes*: one of the two counts of a lane, by a writer that detaches and again when it has flushed;
//! the line of devices, by writers that detach a device's pages.

use crate::tune::LANES;

use faultless_sync::atomic::Local;
use faultless_sync::{Gate, Mutant, Padded, SpinLock, mutant};

/// The writers that are at work.
pub(crate) struct Departing {
    pub(crate) lanes: [Padded<Gate>; LANES],
    pub(crate) devices: Padded<SpinLock<Devices>>,
}

/// Those who have detached something of a device, in two generations: those of the one that is not current had
/// begun when it was changed.
#[derive(Default)]
pub(crate) struct Devices {
    generation: usize,
    at_work: [u32; 2],
    /// Mappings that no slot leads to any more, chained by their links: those that wait for the older
    /// generation, and those that have come since.
    old: u64,
    new: u64,
}

impl Devices {
    pub(crate) fn begin(&mut self) -> usize {
        self.at_work[self.generation] += 1;
        self.generation
    }

    /// Keeps a mapping, by its address, whose link is `link`.
    pub(crate) fn push(&mut self, mapping: u64, link: &Local) {
        link.set(self.new);
        self.new = mapping;
    }

    /// One less is at work. What to retire: what was there when all who are still at work had not begun.
    pub(crate) fn end(&mut self, generation: usize) -> [u64; 2] {
        self.at_work[generation] -= 1;
        let older = 1 - self.generation;
        if self.at_work[older] != 0 && !mutant(Mutant::DeviceGoneWithFirstFlush) {
            return [0; 2];
        }
        let done = core::mem::replace(&mut self.old, core::mem::take(&mut self.new));
        // Nobody has begun before what is now old but the current generation.
        self.generation = older;
        match self.at_work[1 - older] == 0 || mutant(Mutant::DeviceGoneWithFirstFlush) {
            true => [done, core::mem::take(&mut self.old)],
            false => [done, 0],
        }
    }
}

impl Departing {
    /// Nobody.
    pub(crate) fn new() -> Self {
        Self {
            lanes: Default::default(),
            devices: Padded(SpinLock::new(Devices::default())),
        }
    }

    /// The number of a store's lane.
    pub(crate) fn lane_of<T>(object: &T) -> usize {
        let address = core::ptr::from_ref(object).addr() as u64;
        // Fibonacci hashing (Knuth): the highest bits of the product depend on all below.
        (address.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 60) as usize % LANES
    }
}
