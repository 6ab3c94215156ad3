//! A device of frames: the machine's own frames outside of the allocator.

use std::sync::atomic::AtomicU64;

use faultless_mm::{Caching, Device, Errno, Frame, OpenedDevice, PhysicalMemory, flags};
use faultless_soft::{Soft, SoftMemory, SoftSpace};

use crate::inject::Stage;

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Shared, at a fixed address.
pub const SHARED: u32 = flags::SHARED | flags::FIXED;

/// The machine's device.
///
/// # Panics
/// If there is no memory for the device's object.
pub fn device(memory: &'static SoftMemory) -> Device<Soft> {
    let frames = memory.machine().device_frames();
    Device::new(memory, frames, Caching::Uncached, None, 9).expect("there is memory")
}

/// Maps `pages` pages of a device from page `first` on.
///
/// # Errors
/// Those of `mmap`.
pub fn map(
    space: &SoftSpace,
    device: &Device<Soft>,
    at: u64,
    (first, pages): (u64, u64),
    prot: u32,
    how: u32,
) -> Result<u64, Errno> {
    let opened = OpenedDevice {
        device: Ok(device),
        offset: first * PAGE,
        file: 3,
        writable: true,
    };
    space.mmap_device(at, pages * PAGE, prot, how, &opened)
}

/// The first word of a page of the device.
pub fn word(memory: &'static SoftMemory, index: u64) -> &'static AtomicU64 {
    let frame = Frame(memory.machine().device_frames().start + index);
    let start = memory.machine().pointer(frame).cast::<AtomicU64>();
    // SAFETY: the machine's memory stays.
    unsafe { start.as_ref() }
}

impl Stage for Device<Soft> {
    fn end(self) {}
}
