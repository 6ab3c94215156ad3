//! Allocations that fail on purpose (`heap-fail=`), so that tests go down every path that has to
//! do without.
//!
//! Of those that programs' threads make, every so many-th fails, whatever it is for. The first
//! process's first thread is spared, and so are the kernel's own: somebody has to watch the others.
//!
//! Written lines: two counts, by every allocation, if that was asked for.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::arch::percpu;
use crate::console::Port;
use crate::process::FIRST;

/// Every so many-th fails; 0 for none.
static EVERY: AtomicU64 = AtomicU64::new(0);
/// Allocations that were not spared.
static MADE: AtomicU64 = AtomicU64::new(0);

/// From now on every so many-th fails, or none.
pub fn begin(every: u64) {
    EVERY.store(every, Ordering::Relaxed);
}

/// Whether the allocation that is about to be made is to fail.
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

/// Writes how many have failed, for the report, if that was asked for.
pub fn report(out: &mut Port) {
    use core::fmt::Write;

    if let Some(failed) = MADE
        .load(Ordering::Relaxed)
        .checked_div(EVERY.load(Ordering::Relaxed))
    {
        let _ = write!(out, "\"heap_failures\":{failed},");
    }
}
