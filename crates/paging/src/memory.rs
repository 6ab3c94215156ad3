//! Access to physical memory: translates a frame number to a pointer.

use core::ptr::NonNull;

use crate::address::{Frame, PAGE_SIZE};

/// A machine's physical memory.
pub trait PhysicalMemory {
    /// Returns the address at which the CPU sees a frame: [`PAGE_SIZE`] bytes, page-aligned, readable and
    /// writable. The pointer stays the same as long as the machine lives.
    fn pointer(&self, frame: Frame) -> NonNull<u8>;

    /// Fills a frame with zeroes. Only the caller uses the frame.
    fn zero(&self, frame: Frame) {
        // SAFETY: `pointer` promises PAGE_SIZE bytes, and only the caller uses them.
        unsafe {
            self.pointer(frame)
                .as_ptr()
                .write_bytes(0, PAGE_SIZE as usize)
        };
    }

    /// Copies a frame. Only the caller uses `to`, and nothing writes `from` meanwhile.
    fn copy(&self, from: Frame, to: Frame) {
        // SAFETY: `pointer` promises PAGE_SIZE bytes behind each; different frames do not overlap.
        unsafe {
            self.pointer(to)
                .as_ptr()
                .copy_from_nonoverlapping(self.pointer(from).as_ptr(), PAGE_SIZE as usize);
        }
    }

    /// Prepares a frame to become free: nothing reads it before it is written again. A machine under test
    /// overwrites the frame, which exposes stale reads.
    #[inline]
    fn forget(&self, _frame: Frame) {}
}

impl<P: PhysicalMemory + ?Sized> PhysicalMemory for &P {
    fn pointer(&self, frame: Frame) -> NonNull<u8> {
        (**self).pointer(frame)
    }
    fn zero(&self, frame: Frame) {
        (**self).zero(frame);
    }
    fn copy(&self, from: Frame, to: Frame) {
        (**self).copy(from, to);
    }
    #[inline]
    fn forget(&self, frame: Frame) {
        (**self).forget(frame);
    }
}
