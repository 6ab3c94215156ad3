//! The machine's swap: the devices of `faultless-swap` in the machine's own memory.

use faultless_frames::NoMemory;
use faultless_mm::SlotCache;
use faultless_soft::{Soft, SoftCpu, SoftMemory};
use faultless_swap::{Compressed, RamDisk, Scratch};

use crate::report::Swap;

/// A device in use, for as long as its machine.
pub enum Device {
    Compressed(&'static Compressed<&'static Soft>),
    Ram(&'static RamDisk<&'static Soft>),
}

impl Device {
    /// Gives the machine its swap. Like the machine, it lives as long as the process.
    pub fn begin(memory: &'static SoftMemory, swap: Swap) -> Result<Self, NoMemory> {
        let (cpus, machine) = (memory.cpus().len(), memory.machine());
        let caches: Vec<_> = (0..cpus).map(|_| SlotCache::default()).collect();
        SoftCpu::attend(memory, 0, || {
            let (device, taken) = match swap {
                Swap::Compressed { slots } => {
                    let scratch: Vec<_> = (0..cpus).map(|_| Scratch::default()).collect();
                    let device = keep(Compressed::new(machine, scratch.leak(), slots)?);
                    let taken = memory.swap_on(device, caches.leak(), None);
                    (Self::Compressed(device), taken)
                }
                Swap::Ram { slots } => {
                    let device = keep(RamDisk::new(machine, slots)?);
                    let taken = memory.swap_on(device, caches.leak(), None);
                    (Self::Ram(device), taken)
                }
            };
            taken.map(|_| device).map_err(|_| NoMemory)
        })
    }

    /// How many frames it has. Called while no CPU runs.
    pub fn frames(&self) -> u64 {
        let mut frames = 0;
        let mut count = |_| frames += 1;
        match self {
            Self::Compressed(device) => device.for_each_frame(&mut count),
            Self::Ram(device) => device.for_each_frame(&mut count),
        }
        frames
    }
}

fn keep<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}
