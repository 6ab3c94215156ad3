//! Swap: devices that keep pages, and the allocation of their slots.
//!
//! A page goes out to a slot and comes back:
//!
//! ```
//! use faultless_swap::{DeviceError, Page, SwapDevice};
//!
//! /// Copies a slot of one device to another device.
//! fn copy(from: (&dyn SwapDevice, u64), to: (&dyn SwapDevice, u64)) -> Result<(), DeviceError> {
//!     let mut page: Page = [0; 4096];
//!     from.0.read(from.1, &mut page)?;
//!     to.0.write(to.1, &page)
//! }
//! ```
//!
//! Where to look:
//!
//! * [`SwapDevice`]: the interface of a device.
//! * [`Compressed`]: compressed memory as a device. Its memory comes from a frame source, page by page.
//! * [`RamDisk`]: pages copied to frames, as they are.
//! * [`Slots`]: the allocation of a device's slots, and how often each is used.
//! * [`SlotPages`]: where a slot's page is until the device has it.
//! * [`SwapMachine`]: what this crate needs of a machine: frames, and the number of the calling CPU.
//!
//! Every allocation is fallible. Nothing here parks.
#![cfg_attr(not(any(loom, shuttle, record)), no_std)]

mod array;
mod compressed;
mod device;
mod frames;
mod machine;
mod pages;
mod ram;
mod slots;

pub use compressed::{Compressed, Scratch, Usage};
pub use device::{DeviceError, Page, SwapDevice, SwapRead, SwapWrite};
pub use machine::SwapMachine;
pub use pages::{SlotPage, SlotPages};
pub use ram::RamDisk;
pub use slots::{MOST_USES, NotAdded, SlotCache, Slots};
