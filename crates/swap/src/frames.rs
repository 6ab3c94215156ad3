//! Frames for swap, marked as such in their descriptors.

use faultless_frames::{Flags, FrameSource, NoMemory, Reserve};
use faultless_paging::Frame;

use crate::machine::SwapMachine;

/// Allocates a frame with undefined content, for a page that is swapped out: one that is reserved for that, if there is
/// no other.
pub(crate) fn allocate<M: SwapMachine>(machine: &M) -> Result<Frame, NoMemory> {
    let frame = machine
        .frames()
        .allocate_reserved(machine.cpu(), Reserve::Reclaim)?;
    machine.frames().descriptor(frame).set_flags(Flags::SWAP);
    Ok(frame)
}

/// Allocates a zeroed frame.
#[cfg(not(any(loom, shuttle)))]
pub(crate) fn allocate_zeroed<M: SwapMachine>(machine: &M) -> Result<Frame, NoMemory> {
    let frame = machine.frames().allocate_zeroed(machine.cpu())?;
    machine.frames().descriptor(frame).set_flags(Flags::SWAP);
    Ok(frame)
}

/// Frees a frame.
pub(crate) fn free<M: SwapMachine>(machine: &M, frame: Frame) {
    machine.frames().descriptor(frame).set_flags(Flags::NONE);
    machine.frames().free(machine.cpu(), frame);
}
