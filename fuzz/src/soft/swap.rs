//! The soft machine's swap device: pages in the host's memory.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use faultless_mm::{DeviceError, Errno, SlotCache, SwapDevice};
use faultless_soft::SoftMemory;

type Page = [u8; 4096];

/// More than all programs' pages.
const SLOTS: u64 = 1 << 14;

/// A device. Only slots that were written can be read.
#[derive(Default)]
pub struct Device(Mutex<HashMap<u64, Page>>);

impl Device {
    /// Makes a device and begins its use. Called as a CPU of the machine.
    ///
    /// # Errors
    /// Those of [`faultless_mm::Memory::swap_on`].
    pub fn begin(memory: &'static SoftMemory) -> Result<Swap, Errno> {
        let device: &'static Device = Box::leak(Box::default());
        let cpus = memory.cpus().iter().map(|_| SlotCache::default());
        let cpus: &'static [SlotCache] = Vec::leak(cpus.collect());
        let swap = Swap {
            memory,
            device,
            cpus,
        };
        swap.set(true)?;
        Ok(swap)
    }

    fn pages(&self) -> MutexGuard<'_, HashMap<u64, Page>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SwapDevice for Device {
    fn slots(&self) -> u64 {
        SLOTS
    }

    fn write(&self, slot: u64, page: &Page) -> Result<(), DeviceError> {
        self.pages().insert(slot, *page);
        Ok(())
    }

    fn read(&self, slot: u64, page: &mut Page) -> Result<(), DeviceError> {
        *page = *self.pages().get(&slot).ok_or(DeviceError::Failed)?;
        Ok(())
    }

    fn discard(&self, slot: u64) {
        self.pages().remove(&slot);
    }

    fn is_fast(&self) -> bool {
        true
    }
}

/// The machine's device in use.
pub struct Swap {
    memory: &'static SoftMemory,
    device: &'static Device,
    cpus: &'static [SlotCache],
}

impl Swap {
    /// Ends or begins the use of the device. Called as a CPU of the machine.
    pub fn set(&self, on: bool) -> Result<(), Errno> {
        match on {
            true => self.memory.swap_on(self.device, self.cpus, None).map(drop),
            // The machine's only device.
            false => self.memory.swap_off(0, &|| Ok(())),
        }
    }

    /// Begins the use of the device for the next program, if one has ended it.
    pub fn begin_again(&self) -> Result<(), Errno> {
        match self.set(true) {
            Err(Errno::EBUSY) => Ok(()),
            result => result,
        }
    }

    /// Returns how many pages the device has.
    pub fn used(&self) -> usize {
        self.device.pages().len()
    }
}
