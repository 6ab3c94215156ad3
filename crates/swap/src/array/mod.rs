//! An array of a length that is known when it is made, in frames.

#[cfg(not(any(loom, shuttle)))]
mod frames;
#[cfg(any(loom, shuttle))]
mod heap;

#[cfg(not(any(loom, shuttle)))]
pub(crate) use frames::FrameArray;
#[cfg(any(loom, shuttle))]
pub(crate) use heap::FrameArray;

/// A type whose default is all zeroes.
///
/// # Safety
/// Zeroed memory holds a valid value, the size divides a page's, the alignment is at most a page's, and a
/// value need not be dropped. In models none of this holds.
pub(crate) unsafe trait Zeroed: Default + Sync {}
