//! The atomics facade: the core writes shared memory only through it.
//!
//! | build | implementation |
//! | --- | --- |
//! | plain | `core::sync::atomic` |
//! | `--cfg loom` | loom's model of the C11 memory model |
//! | `--cfg shuttle` | shuttle's scheduler (sequentially consistent) |
//! | `--cfg record` | the CPU's atomics, and every write recorded by cache line (`crate::record`) |
//!
//! [`Local`] is for a word that one CPU at a time writes (counters, caches, list heads): relaxed accesses,
//! and no read-modify-write except [`Local::fetch_add`]. Other CPUs may read it and get a recent value. Loom
//! and shuttle do not schedule on it, which keeps models of the real code small.

#[cfg(not(any(loom, shuttle, record)))]
pub use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, fence};

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, fence};

#[cfg(shuttle)]
pub use shuttle::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, fence};

#[cfg(record)]
pub use crate::record::{AtomicPtr, AtomicU32, AtomicU64};
#[cfg(record)]
pub use core::sync::atomic::fence;

pub use core::sync::atomic::Ordering;

/// A word that one CPU at a time writes.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Local(core::sync::atomic::AtomicU64);

impl Local {
    /// Returns a word that holds `value`.
    pub const fn new(value: u64) -> Self {
        Self(core::sync::atomic::AtomicU64::new(value))
    }

    /// Returns the value: exact for its writer, recent for other CPUs.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Sets the value. For the owning CPU only.
    #[inline]
    pub fn set(&self, value: u64) {
        #[cfg(record)]
        crate::record::write(core::ptr::from_ref(self).cast());
        self.0.store(value, Ordering::Relaxed);
    }

    /// Adds to the value. For the owning CPU only.
    #[inline]
    pub fn add(&self, more: u64) {
        self.set(self.get().wrapping_add(more));
    }

    /// Adds to a value to which other CPUs may add concurrently, and returns the previous value. Acquire and
    /// release: an addition that sees a sum also sees what came before each addition to that sum.
    #[inline]
    pub fn fetch_add(&self, more: u64) -> u64 {
        #[cfg(record)]
        crate::record::write(core::ptr::from_ref(self).cast());
        self.0.fetch_add(more, Ordering::AcqRel)
    }
}

/// Marks work that is shared by a batch of operations. A plain call unless lines are recorded.
#[cfg(record)]
pub use crate::record::amortised;

/// Marks work that is shared by a batch of operations. A plain call unless lines are recorded.
#[cfg(not(record))]
#[inline(always)]
pub fn amortised<T>(work: impl FnOnce() -> T) -> T {
    work()
}
