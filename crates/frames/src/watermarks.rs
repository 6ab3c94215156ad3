//! When frames are reclaimed (Linux: zone watermarks).
//!
//! Only what is in the free lists counts. CPUs' caches are small, and other CPUs do not see them.

use faultless_sync::atomic::{AtomicU64, Ordering};

/// Numbers of free frames at which something happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Watermarks {
    /// The last frames, which only [`FrameSource::allocate_reserved`](crate::FrameSource::allocate_reserved) and blocks
    /// get: half of them what the kernel needs for itself, all of them what frees frames. An allocation that finds no others fails, and its caller reclaims some itself.
    pub min: u64,
    /// With fewer free frames, reclaim begins in the background.
    pub low: u64,
    /// With so many, it ends.
    pub high: u64,
}

impl Watermarks {
    /// No frame is reserved, and nothing begins.
    pub const NONE: Self = Self {
        min: 0,
        low: 0,
        high: 0,
    };

    /// Returns the watermarks for so many frames: a part in 256 is reserved; reclaim begins at twice that, and ends at
    /// three times that.
    pub fn of(frames: u64) -> Self {
        let min = frames / 256;
        Self {
            min,
            low: 2 * min,
            high: 3 * min,
        }
    }
}

/// The watermarks of a source. A change shows at the next look; nothing depends on when that is.
#[derive(Debug, Default)]
pub(crate) struct Levels {
    min: AtomicU64,
    low: AtomicU64,
    high: AtomicU64,
}

impl Levels {
    pub(crate) fn get(&self) -> Watermarks {
        Watermarks {
            min: self.min.load(Ordering::Relaxed),
            low: self.low.load(Ordering::Relaxed),
            high: self.high.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn set(&self, to: Watermarks) {
        self.min.store(to.min, Ordering::Relaxed);
        self.low.store(to.low, Ordering::Relaxed);
        self.high.store(to.high, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::Watermarks;

    #[test]
    fn they_are_in_order() {
        for frames in [0, 1, 255, 256, 65_536, 1 << 30] {
            let marks = Watermarks::of(frames);
            assert!(marks.min <= marks.low && marks.low <= marks.high && marks.high <= frames);
        }
        assert_eq!(Watermarks::of(0), Watermarks::NONE);
    }
}
