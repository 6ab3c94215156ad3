//! Allocations that fail on purpose (`heap-fail=`), so that tests reach every path that handles a failure.
//!
//! Of the allocations by programs' threads every N-th fails, whatever it is for. The first process's first
//! thread and the kernel's own threads are spared, because they watch the others.
//!
//! *Writes*: one count, by every allocation that is not spared, if the run file asks for it.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::arch::percpu;
use crate::console::Port;
use crate::process::FIRST;

/// Every N-th allocation fails; 0 for none.
static EVERY: AtomicU64 = AtomicU64::new(0);
/// Allocations that were not spared.
static MADE: AtomicU64 = AtomicU64::new(0);

/// Lets every N-th allocation fail from now on; 0 for none.
pub fn begin(every: u64) {
    EVERY.store(every, Ordering::Relaxed);
}

/// Whether the next allocation is to fail.
#[inline]
pub fn is_next() -> bool {
    let every = EVERY.load(Ordering::Relaxed);
    every != 0 && is_next_of(every)
}

#[cold]
fn is_next_of(every: u64) -> bool {
    let thread = percpu::current().map_or(0, |thread| thread.id());
    let is_spared = thread == 0 || thread == FIRST;
    !is_spared && MADE.fetch_add(1, Ordering::Relaxed) % every == every - 1
}

/// Writes how many allocations have failed, for the report, if the run file asks for it.
pub fn report(out: &mut Port) {
    use core::fmt::Write;

    if let Some(failed) = MADE
        .load(Ordering::Relaxed)
        .checked_div(EVERY.load(Ordering::Relaxed))
    {
        let _ = write!(out, "\"heap_failures\":{failed},");
    }
}
