//! The kernel heap: a first piece claimed at boot, and blocks of frames when that is full.
//!
//! Bookkeeping lives here: processes, descriptors, texts of /proc, arguments during exec. Whatever
//! a program can make large is allocated fallibly (`try_reserve`); threads and page tables come
//! from frames. A block that the heap has taken stays the heap's and is used again.

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
/// What the heap needs for itself in a block.
const OVERHEAD: usize = 256;

#[global_allocator]
static HEAP: Heap = Heap(TalcLock::new(Blocks));

/// The allocator, some of whose allocations tests let fail.
struct Heap(TalcLock<RawSpin, Blocks>);

// SAFETY: All is the allocator's; what fails has done nothing.
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
        // To become smaller needs nothing.
        if size > layout.size() && failing::is_next() {
            return null_mut();
        }
        // SAFETY: The caller's promise.
        unsafe { self.0.realloc(pointer, layout, size) }
    }
}

/// Bytes of frames that the heap has taken since boot. Written under the heap's lock.
static TAKEN: AtomicU64 = AtomicU64::new(0);

/// More memory, from the frames that programs get theirs from. The heap's lock is held meanwhile;
/// the frames' locks are taken under it, and frames never use the heap.
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
        // Any block is better than none.
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

/// What the heap has, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Frames taken since boot; the first piece is not among them.
    pub taken: u64,
    /// What is allocated.
    pub used: u64,
}

/// What the heap has.
pub fn sizes() -> Sizes {
    Sizes {
        used: HEAP.0.lock().counters().allocated_bytes as u64,
        taken: TAKEN.load(Ordering::Relaxed),
    }
}
