//! The kernel heap: one fixed share of memory, claimed at boot.
//!
//! Only small bookkeeping lives here (descriptor tables, /proc texts, arguments during exec).
//! Whatever a program can make large is allocated fallibly (`try_reserve`); threads and page
//! tables come from frames.

use talc::TalcLock;
use talc::source::Manual;

use crate::sync::RawSpin;

#[global_allocator]
static HEAP: TalcLock<RawSpin, Manual> = TalcLock::new(Manual);

/// Gives the heap its memory.
///
/// # Safety
/// The range is memory that nothing else uses.
pub unsafe fn claim(start: *mut u8, size: usize) {
    // SAFETY: The caller's promise.
    let _ = unsafe { HEAP.lock().claim(start, size) };
}
