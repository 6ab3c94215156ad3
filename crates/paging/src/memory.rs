//! Physical memory as the core sees it: a frame's number becomes a pointer.

use core::ptr::NonNull;

use crate::address::{Frame, PAGE_SIZE};

/// A machine's physical memory.
pub trait PhysicalMemory {
    /// Where the CPU sees a frame. The same pointer for as long as the machine
    /// lives; [`PAGE_SIZE`] bytes, page-aligned, readable and writable.
    fn pointer(&self, frame: Frame) -> NonNull<u8>;

    /// Fills a frame with zeroes. Its caller alone uses the frame.
    fn zero(&self, frame: Frame) {
        // SAFETY: `pointer` promises PAGE_SIZE bytes, and the caller alone uses them.
        unsafe {
            self.pointer(frame)
                .as_ptr()
                .write_bytes(0, PAGE_SIZE as usize)
        };
    }

    /// Copies a frame. The caller alone uses `to`, and `from` is not written meanwhile.
    fn copy(&self, from: Frame, to: Frame) {
        // SAFETY: `pointer` promises PAGE_SIZE bytes behind each; different frames do not overlap.
        unsafe {
            self.pointer(to)
                .as_ptr()
                .copy_from_nonoverlapping(self.pointer(from).as_ptr(), PAGE_SIZE as usize);
        }
    }

    /// A frame is about to become free: nobody reads it any more before it is written. A machine
    /// under test overwrites it, so that whoever does read it is found out.
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
