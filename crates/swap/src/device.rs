//! The interface of a swap device.

use core::fmt;

use faultless_paging::PAGE_SIZE;

/// The bytes of a page.
pub type Page = [u8; PAGE_SIZE as usize];

/// The reason that a device did not write or read a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceError {
    /// The device has no memory for the page. A later write may succeed.
    Full,
    /// The device could not do it, or has nothing in that slot.
    Failed,
    /// The slot's content is not what was written. It is lost.
    Damaged,
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "the swap device is full",
            Self::Failed => "the swap device failed",
            Self::Damaged => "a page on the swap device is damaged",
        })
    }
}

impl core::error::Error for DeviceError {}

/// A page to write, and its slot.
#[derive(Clone, Copy, Debug)]
pub struct SwapWrite<'a> {
    /// What the caller calls it.
    pub number: usize,
    /// The slot.
    pub slot: u64,
    /// The page.
    pub page: &'a Page,
}

/// A slot to read, and where its page goes.
#[derive(Debug)]
pub struct SwapRead<'a> {
    /// What the caller calls it.
    pub number: usize,
    /// The slot.
    pub slot: u64,
    /// The page.
    pub page: &'a mut Page,
}

/// A swap device: numbered slots, each with a page or empty.
///
/// * All slots are empty at first.
/// * Different slots may be used concurrently, and one slot may be read concurrently. Other operations on one slot
///   never overlap, and the caller orders them: the first happens before the second.
/// * [`SwapDevice::write`] and [`SwapDevice::read`] may wait. The caller holds no claim and no spin lock.
pub trait SwapDevice: Send + Sync {
    /// Returns the number of slots. It never changes.
    fn slots(&self) -> u64;

    /// Writes a page to a slot, in place of its content. Nothing writes the page meanwhile.
    ///
    /// # Errors
    /// [`DeviceError::Full`] and [`DeviceError::Failed`]. The slot is empty afterwards.
    fn write(&self, slot: u64, page: &Page) -> Result<(), DeviceError>;

    /// Writes several pages, each to a slot of its own, as [`SwapDevice::write`] does. Calls `done` with the number of
    /// each and how it ended, in any order. A device that waits has several under way at a time.
    fn write_all(
        &self,
        writes: &mut dyn Iterator<Item = SwapWrite<'_>>,
        done: &mut dyn FnMut(usize, Result<(), DeviceError>),
    ) {
        for write in writes {
            done(write.number, self.write(write.slot, write.page));
        }
    }

    /// Reads a slot. Its content stays there.
    ///
    /// # Errors
    /// [`DeviceError::Failed`] and [`DeviceError::Damaged`]. The page's content is undefined afterwards.
    fn read(&self, slot: u64, page: &mut Page) -> Result<(), DeviceError>;

    /// Reads several slots, as [`SwapDevice::read`] does. Calls `done` with the number of each and how it ended, in any
    /// order. A device that waits has several under way at a time.
    fn read_all(
        &self,
        reads: &mut dyn Iterator<Item = SwapRead<'_>>,
        done: &mut dyn FnMut(usize, Result<(), DeviceError>),
    ) {
        for read in reads {
            done(read.number, self.read(read.slot, read.page));
        }
    }

    /// Makes a slot empty, because its content is no longer needed. Never fails and never waits for the
    /// device.
    fn discard(&self, slot: u64);

    /// Whether a read takes microseconds, so that reading neighbours ahead is not worthwhile.
    fn is_fast(&self) -> bool;
}
