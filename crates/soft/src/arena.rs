//! The physical memory of a soft machine: a range of the host's address space, frame after frame.

use std::ptr::NonNull;

use faultless_paging::{Frame, PAGE_SIZE, PhysicalMemory};
use faultless_sync::Wait;
use faultless_sync::atomic::AtomicU32;

use crate::host;

/// The first frame's number; 0 is no frame.
pub const FIRST: u64 = 1;

/// The fill byte of free frames on a machine that checks: no word that a test stores, no entry, no pointer.
const POISON: u8 = 0xDB;

/// A handle to the arena.
#[derive(Clone, Copy)]
pub struct Arena {
    base: NonNull<u8>,
    poisons: bool,
}

// SAFETY: the arena is plain memory; the core decides which code may use which frame.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    /// Reserves `frames` frames. `poisons`: frames that become free are overwritten.
    pub fn new(frames: u64, poisons: bool) -> std::io::Result<Self> {
        Ok(Self {
            base: host::reserve((frames * PAGE_SIZE) as usize)?,
            poisons,
        })
    }
}

impl PhysicalMemory for Arena {
    #[inline]
    fn pointer(&self, frame: Frame) -> NonNull<u8> {
        // SAFETY: frames come from the allocator, or are the device's: all lie inside the arena.
        unsafe { self.base.add(((frame.0 - FIRST) * PAGE_SIZE) as usize) }
    }

    #[inline]
    fn forget(&self, frame: Frame) {
        if self.poisons {
            let start = self.pointer(frame).as_ptr();
            // SAFETY: a frame of the arena, which is no longer used.
            unsafe { start.write_bytes(POISON, PAGE_SIZE as usize) };
        }
    }
}

impl Wait for Arena {
    #[inline]
    fn relax(&self, turn: u32) {
        // A CPU that waits here is outside its access sections, so no shootdown waits for it.
        if turn < 64 {
            std::hint::spin_loop();
        } else {
            std::thread::yield_now();
        }
    }

    fn park(&self, word: &AtomicU32, expected: u32) {
        host::futex_wait(std::ptr::from_ref(word).cast(), expected);
    }

    fn wake(&self, word: &AtomicU32, count: u32) {
        host::futex_wake(std::ptr::from_ref(word).cast(), count);
    }
}
