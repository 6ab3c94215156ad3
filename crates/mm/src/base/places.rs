//! Where the swap devices in use are found.
//!
//! Only room `swap` knows what lies there: a device's slots need rooms above this one, but all address spaces share
//! them, as they share [`crate::base::memory::Memory`].
//!
//! *Writes*: a place, when its device's use begins or ends.

use faultless_paging::SwapEntry;
use faultless_sync::atomic::AtomicPtr;

/// The most devices at a time.
pub(crate) const SWAP_DEVICES: usize = 4;

const _: () = assert!(SWAP_DEVICES <= SwapEntry::DEVICES as usize);

/// A place for each device, by number: null, or the device's part of room `swap`.
pub(crate) struct SwapPlaces(pub(crate) [AtomicPtr<()>; SWAP_DEVICES]);

impl SwapPlaces {
    /// No devices.
    pub(crate) fn new() -> Self {
        Self(core::array::from_fn(|_| {
            AtomicPtr::new(core::ptr::null_mut())
        }))
    }
}
