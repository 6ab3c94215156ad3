//! The machine under a swap device.

use faultless_frames::FrameSource;
use faultless_paging::PhysicalMemory;
use faultless_sync::{Cpu, Wait};

/// A machine with frames and numbered CPUs.
pub trait SwapMachine: PhysicalMemory + Wait + Send + Sync {
    /// The type of the frame source.
    type Frames: FrameSource;

    /// Returns the source of frames.
    fn frames(&self) -> &Self::Frames;

    /// Returns the calling CPU. It does not change during a call into this crate, because nothing here parks.
    fn cpu(&self) -> Cpu;
}

impl<M: SwapMachine + ?Sized> SwapMachine for &M {
    type Frames = M::Frames;
    fn frames(&self) -> &Self::Frames {
        (**self).frames()
    }
    fn cpu(&self) -> Cpu {
        (**self).cpu()
    }
}
