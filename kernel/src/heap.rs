//! The kernel heap: a first piece claimed at boot, and blocks of frames when that is full.
//!
//! The heap holds bookkeeping: processes, descriptors, texts of /proc, arguments during exec. Data that a
//! program can make large is allocated fallibly (`try_reserve`); threads and page tables come from frames. The
//! heap keeps a block that it has taken, and reuses it.
//!
//! * The heap's lock is held for one operation on free lists. Frames are asked for without it, so a CPU that
//!   waits for the frames' lock keeps no other CPU from the heap.
//! * An allocation leaves interrupts off, even if it waits for frames: callers may hold spin locks that
//!   interrupt handlers take.

pub mod failing;

use core::alloc::{GlobalAlloc, Layout};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicU64, Ordering};

use talc::TalcLock;
use talc::source::Manual;

use crate::arch::paging;
use crate::memory::machine::{self, Purpose};
use crate::sync::RawSpin;

/// The smallest block that is taken: 64 KiB.
const SMALLEST: u32 = 4;
/// Bytes that the heap needs for itself in a block.
const OVERHEAD: usize = 256;

#[global_allocator]
static HEAP: Heap = Heap(TalcLock::new(Manual));

/// The global allocator; tests let some of its allocations fail.
struct Heap(TalcLock<RawSpin, Manual>);

impl Heap {
    /// Repeats an allocation until it succeeds or no frames are left for it. Another CPU may be quicker to use
    /// a block that was added.
    fn with_more(&self, size: usize, align: usize, allocate: impl Fn() -> *mut u8) -> *mut u8 {
        loop {
            let pointer = allocate();
            if !pointer.is_null() || !self.grow(size, align) {
                return pointer;
            }
        }
    }

    /// Adds a block of frames that an allocation fits in. Returns whether there was one.
    #[cold]
    fn grow(&self, size: usize, align: usize) -> bool {
        let Some((block, size)) = take_block(size, align) else {
            return false;
        };
        TAKEN.fetch_add(size as u64, Ordering::Relaxed);
        // SAFETY: The block is the heap's from now on.
        unsafe { self.0.lock().claim(block, size) }.is_some()
    }
}

/// Takes a block of the frames that programs use, too: its address and its size.
fn take_block(size: usize, align: usize) -> Option<(*mut u8, usize)> {
    let bytes = size.checked_add(align)?.checked_add(OVERHEAD)?;
    let pages = bytes.div_ceil(4096).checked_next_power_of_two()?;
    let fits = pages.trailing_zeros();
    // A small block is better than none.
    [fits.max(SMALLEST), fits].into_iter().find_map(|order| {
        let block = machine::allocate_block(order, Purpose::Heap)?;
        Some((paging::physical_to_virtual(block), 4096 << order))
    })
}

// SAFETY: Every call goes to the inner allocator; a call that fails has done nothing.
unsafe impl GlobalAlloc for Heap {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if failing::is_next() {
            return null_mut();
        }
        // SAFETY: The caller's promise.
        self.with_more(layout.size(), layout.align(), || unsafe {
            self.0.alloc(layout)
        })
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
        // SAFETY: The caller's promise. A call that fails leaves the old allocation as it is.
        self.with_more(size, layout.align(), || unsafe {
            self.0.realloc(pointer, layout, size)
        })
    }
}

/// Bytes of frames that the heap has taken since boot.
static TAKEN: AtomicU64 = AtomicU64::new(0);

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
