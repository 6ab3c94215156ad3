//! One count of all that keeps faults from their shortest path, over all machines: tracers that are on, and machines with
//! settings that the shortest path does not ask about. A fault tests one word for all of them.
//!
//! *Writes*: the count, when a tracer or such a setting is turned on or off.

use core::sync::atomic::{AtomicU64, Ordering};

static COUNT: AtomicU64 = AtomicU64::new(0);

/// What keeps faults from their shortest path.
#[derive(Debug)]
pub struct Detours;

impl Detours {
    /// Whether there may be any. Models count one always, so that what runs beside them changes nothing.
    #[inline(always)]
    pub fn any() -> bool {
        cfg!(any(loom, shuttle)) || COUNT.load(Ordering::Relaxed) != 0
    }

    /// Adds one. No ordering: a fault that does not see it precedes it.
    pub fn add() {
        COUNT.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes one.
    pub fn remove() {
        COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}
