//! The interface through which the memory core allocates frames.

use core::fmt;
use core::ops::Range;

use faultless_paging::{ENTRIES, Frame};
use faultless_sync::Cpu;

use crate::descriptor::Descriptor;
use crate::pool::HugePool;

/// The error that no frame is available.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoMemory;

impl fmt::Display for NoMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("out of physical memory")
    }
}

impl core::error::Error for NoMemory {}

/// What the last frames are kept for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reserve {
    /// Small objects, tables, and the port itself: half of them.
    Kernel,
    /// Work that frees frames, such as swapping pages out: all of them.
    Reclaim,
}

/// A frame allocator. [`crate::Frames`] is the default; a port may supply its own.
///
/// `cpu` is always the calling CPU, and the caller does not migrate during the call.
pub trait FrameSource {
    /// Allocates a frame with undefined content.
    ///
    /// # Errors
    /// [`NoMemory`] when there is none.
    fn allocate(&self, cpu: Cpu) -> Result<Frame, NoMemory>;

    /// Allocates a frame filled with zeroes.
    ///
    /// # Errors
    /// [`NoMemory`] when there is none.
    fn allocate_zeroed(&self, cpu: Cpu) -> Result<Frame, NoMemory>;

    /// Allocates a frame with undefined content that may be one of those kept from programs' pages.
    ///
    /// # Errors
    /// [`NoMemory`] when there is none for this use.
    fn allocate_reserved(&self, cpu: Cpu, _reserve: Reserve) -> Result<Frame, NoMemory> {
        self.allocate(cpu)
    }

    /// Frees a frame that was reclaimed, or that came from [`FrameSource::allocate_reserved`]: the source keeps it for that
    /// again, if it has too few. As [`FrameSource::free`].
    fn free_reserved(&self, cpu: Cpu, frame: Frame) {
        self.free(cpu, frame);
    }

    /// Returns how many frames the source would like to have free in addition: 0 while there are enough.
    fn missing(&self) -> u64 {
        0
    }

    /// Frees a frame. Nothing maps it and no TLB holds it.
    fn free(&self, cpu: Cpu, frame: Frame);

    /// Allocates the frames of a huge page: as many as a table has entries, aligned to their number, with undefined
    /// content. Each of them is a frame of its own, which may be freed alone. A source without contiguous memory has none.
    ///
    /// # Errors
    /// [`NoMemory`] when there is none: the caller does with single frames.
    fn allocate_huge(&self, _cpu: Cpu) -> Result<Frame, NoMemory> {
        Err(NoMemory)
    }

    /// Frees all frames of a huge page. As [`FrameSource::free`].
    fn free_huge(&self, cpu: Cpu, first: Frame) {
        (first.0..first.0 + ENTRIES as u64).for_each(|frame| self.free(cpu, Frame(frame)));
    }

    /// Returns the pool of huge pages. A source that has one frees a frame of it to it.
    fn huge_pool(&self) -> Option<&HugePool> {
        None
    }

    /// Whether a frame belongs to that.
    #[inline]
    fn is_pooled(&self, frame: Frame) -> bool
    where
        Self: Sized,
    {
        self.huge_pool().is_some_and(|pool| pool.has(self, frame))
    }

    /// Gives back the free frames that a CPU keeps for its next allocations, so that blocks can form of them. Called on
    /// that CPU. A source that keeps none does nothing.
    fn give_up_kept(&self, _cpu: Cpu) {}

    /// Returns the descriptor of a frame of this source.
    fn descriptor(&self, frame: Frame) -> &Descriptor;

    /// Returns the descriptors of the frames of a huge page of this source. A source that has
    /// [`FrameSource::allocate_huge`] has this, too.
    fn descriptors_of_huge(&self, _first: Frame) -> &[Descriptor] {
        &[]
    }

    /// Returns the range of frame numbers for which this source has descriptors.
    fn extent(&self) -> Range<u64>;

    /// Returns the descriptor of any frame, if it has one.
    fn find(&self, frame: Frame) -> Option<&Descriptor> {
        let is_there = self.extent().contains(&frame.0);
        is_there.then(|| self.descriptor(frame))
    }

    /// Returns the shared zero page, which is never written and never freed.
    fn zero_frame(&self) -> Frame;

    /// Returns the first frame of the shared huge zero page, if there is one. Its frames are never written, and
    /// never freed.
    fn huge_zero_frame(&self) -> Option<Frame> {
        None
    }

    /// Makes the shared huge zero page, if it is missing.
    ///
    /// # Errors
    /// [`NoMemory`].
    fn make_huge_zero(&self, _cpu: Cpu) -> Result<Frame, NoMemory> {
        Err(NoMemory)
    }
}
