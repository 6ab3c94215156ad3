//! Where the swap devices in use are found.
//!
//! Only room `swap` knows what lies there: a device's slots need rooms above this one, but all address spaces share
//! them, as they share [`crate::base::memory::Memory`].
//!
//! *Writes*: all of it, when a device's use begins or ends.

use faultless_paging::SwapEntry;
use faultless_sync::SpinLock;
use faultless_sync::atomic::{AtomicPtr, AtomicU32};

/// The most devices at a time.
pub(crate) const SWAP_DEVICES: usize = 4;

const _: () = assert!(SWAP_DEVICES <= SwapEntry::DEVICES as usize);

/// A place for each device, and the order in which they are used.
pub(crate) struct SwapPlaces {
    /// By number: null, or the device's part of room `swap`.
    pub(crate) areas: [AtomicPtr<()>; SWAP_DEVICES],
    /// The numbers of devices that give slots, each plus 1, in four bits each, the first lowest.
    pub(crate) order: AtomicU32,
    /// Pages that a fault reads ahead from a slow device.
    pub(crate) read_ahead: AtomicU32,
    /// Held to begin or end a device's use.
    pub(crate) change: SpinLock<()>,
}

impl SwapPlaces {
    /// No devices.
    pub(crate) fn new() -> Self {
        Self {
            areas: core::array::from_fn(|_| AtomicPtr::new(core::ptr::null_mut())),
            order: AtomicU32::new(0),
            read_ahead: AtomicU32::new(0),
            change: SpinLock::new(()),
        }
    }
}
