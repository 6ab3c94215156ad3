//! Where frames come from, as the memory core sees it.

use core::fmt;
use core::ops::Range;

use faultless_paging::Frame;
use faultless_sync::Cpu;

use crate::descriptor::Descriptor;

/// No frame could be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("out of physical memory")
    }
}

impl core::error::Error for NoMemory {}

/// A source of frames. [`crate::Frames`] is the default; a port may bring its own.
///
/// `cpu` is always the calling CPU, and the caller is not moved to another one
/// during the call.
pub trait FrameSource {
    /// A frame with undefined content.
    ///
    /// # Errors
    /// [`NoMemory`] when there is none.
    fn allocate(&self, cpu: Cpu) -> Result<Frame, NoMemory>;

    /// A frame filled with zeroes.
    ///
    /// # Errors
    /// [`NoMemory`] when there is none.
    fn allocate_zeroed(&self, cpu: Cpu) -> Result<Frame, NoMemory>;

    /// Gives a frame back. Nothing maps it and no TLB holds it.
    fn free(&self, cpu: Cpu, frame: Frame);

    /// The descriptor of a frame that came from here.
    fn descriptor(&self, frame: Frame) -> &Descriptor;

    /// The numbers among which all frames are that this source has descriptors for.
    fn extent(&self) -> Range<u64>;

    /// The descriptor of any frame, if there is one.
    fn find(&self, frame: Frame) -> Option<&Descriptor> {
        let is_there = self.extent().contains(&frame.0);
        is_there.then(|| self.descriptor(frame))
    }

    /// The shared zero page: never written, never freed.
    fn zero_frame(&self) -> Frame;
}
