//! The kernel heap: a first piece claimed at boot, and blocks of frames when that is full.
//!
//! The heap holds bookkeeping: processes, descriptors, texts of /proc, arguments during exec. Data that a
//! program can make large is allocated fallibly (`try_reserve`); threads and page tables come from frames. The
//! heap keeps a block that it has taken, and reuses it.

pub mod failing;

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU64, Ordering};

use talc::TalcLock;
use talc::base::Talc;
use talc::base::binning::Binning;
use talc::source::Source;

use crate::arch::paging;
use crate::memory::machine::{self, Purpose};
use crate::sync::RawSpin;

/// The smallest block that is taken: 64 KiB.
const SMALLEST: u32 = 4;
/// Bytes that the heap needs for itself in a block.
const OVERHEAD: usize = 256;

#[global_allocator]
static HEAP: Heap = Heap(TalcLock::new(Blocks));

/// The global allocator; tests let some of its allocations fail.
struct Heap(TalcLock<RawSpin, Blocks>);

// SAFETY: Every call goes to the inner allocator; a call that fails has done nothing.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if failing::is_next() {
            return null_mut();
        }
        // SAFETY: The caller's promise.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: The caller's promise.
        unsafe { self.0.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Shrinking needs no memory.
        if size > layout.size() && failing::is_next() {
            return null_mut();
        }
        // SAFETY: The caller's promise.
        unsafe { self.0.realloc(pointer, layout, size) }
    }
}

/// Bytes of frames that the heap has taken since boot. Written under the heap's lock.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// The source of more memory: the frames that programs use, too. The locks of frames are taken under the
/// heap's lock, and frames never use the heap.
#[derive(Debug)]
struct Blocks;

// SAFETY: Nothing here uses the heap.
unsafe impl Source for Blocks {
    fn acquire<B: Binning>(talc: &mut Talc<Self, B>, layout: Layout) -> Result<(), ()> {
        let wanted = layout.size().checked_add(layout.align()).ok_or(())?;
        let pages = wanted.checked_add(OVERHEAD).ok_or(())?.div_ceil(4096);
        let fits = pages
            .checked_next_power_of_two()
            .ok_or(())?
            .trailing_zeros();
        // A small block is better than none.
        for order in [fits.max(SMALLEST), fits] {
            if let Some(block) = machine::allocate_block(order, Purpose::Heap) {
                let start = paging::physical_to_virtual(block);
                TAKEN.fetch_add(4096 << order, Ordering::Relaxed);
                // SAFETY: The block is the heap's from now on.
                return unsafe { talc.claim(start, 4096 << order) }
                    .map(drop)
                    .ok_or(());
            }
        }
        Err(())
    }
}

/// Gives the heap its first memory.
///
/// # Safety
/// The range is memory that nothing else uses.
pub unsafe fn claim(start: *mut u8, size: usize) {
    // SAFETY: The caller's promise.
    let _ = unsafe { HEAP.0.lock().claim(start, size) };
}

/// The sizes of the heap, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Frames taken since boot; the first piece is not among them.
    pub taken: u64,
    /// Bytes that are allocated.
    pub used: u64,
}

/// The sizes of the heap.
pub fn sizes() -> Sizes {
    Sizes {
        used: HEAP.0.lock().counters().allocated_bytes as u64,
        taken: TAKEN.load(Ordering::Relaxed),
    }
}
