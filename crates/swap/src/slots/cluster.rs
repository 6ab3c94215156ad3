//! The state of a cluster, and the bitmap of clusters to take.
//!
//! *Writes*: a cluster's line, by its owner and by CPUs that free its slots. A word of the bitmap stands for 64
//! clusters, and is written when one of them gets or loses an owner, or has a free slot again and no owner.

use faultless_sync::atomic::{AtomicU32, AtomicU64, Ordering, amortised};

use crate::array::Zeroed;

const OWNED: u32 = 1 << 31;

/// A cluster: how many of its slots are in use, and whether a CPU owns it.
///
/// All changes are acquire and release, so that the later of two knows what the other did to the bitmap.
#[cfg_attr(not(any(loom, shuttle)), repr(align(128)))]
pub(super) struct Cluster(AtomicU32);

impl Default for Cluster {
    fn default() -> Self {
        Self(AtomicU32::new(0))
    }
}

// SAFETY: a word, of which zero is a value, in 128 bytes.
unsafe impl Zeroed for Cluster {}

impl Cluster {
    pub(super) fn used(&self) -> u32 {
        self.0.load(Ordering::Relaxed) & !OWNED
    }

    pub(super) fn is_owned(&self) -> bool {
        self.0.load(Ordering::Relaxed) & OWNED != 0
    }

    /// Counts a slot that was taken.
    pub(super) fn add(&self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Counts a slot that was freed. Returns whether the cluster has no owner, so that the caller enters it in
    /// the bitmap.
    pub(super) fn subtract(&self) -> bool {
        self.0.fetch_sub(1, Ordering::AcqRel) & OWNED == 0
    }

    pub(super) fn own(&self) {
        self.0.fetch_or(OWNED, Ordering::AcqRel);
    }

    /// Ends the ownership, and returns how many slots were in use at that moment.
    pub(super) fn give_up(&self) -> u32 {
        self.0.fetch_and(!OWNED, Ordering::AcqRel) & !OWNED
    }
}

/// 64 clusters of the bitmap.
pub(super) struct Word(AtomicU64);

impl Default for Word {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

// SAFETY: a word, of which zero is a value.
unsafe impl Zeroed for Word {}

impl Word {
    pub(super) fn has(&self, bit: u64) -> bool {
        self.0.load(Ordering::Relaxed) & 1 << bit != 0
    }

    pub(super) fn set(&self, bit: u64) {
        // A bit that was there before this CPU's change of the cluster stays there until a CPU owns the cluster,
        // which sees that change.
        if !self.has(bit) {
            amortised(|| self.0.fetch_or(1 << bit, Ordering::AcqRel));
        }
    }

    /// Removes a bit.
    pub(super) fn take(&self) -> Option<u64> {
        let mut bits = self.0.load(Ordering::Relaxed);
        while bits != 0 {
            let bit = bits & bits.wrapping_neg();
            if self.0.fetch_and(!bit, Ordering::AcqRel) & bit != 0 {
                return Some(u64::from(bit.trailing_zeros()));
            }
            bits &= !bit;
        }
        None
    }
}
