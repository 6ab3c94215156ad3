//! Per-CPU frame caches, so that an allocation writes no shared line.
//!
//! Only its own CPU uses a cache, with interrupts off or without preemption. Other CPUs read the counts for a
//! census.

use faultless_paging::Frame;
use faultless_sync::atomic::Local;

/// The maximum number of frames of one kind in a cache.
pub(crate) const CAPACITY: usize = 64;
/// The number of frames that move to or from the free lists in one batch.
pub(crate) const BATCH: usize = 32;

/// A stack of frame numbers.
#[derive(Debug)]
pub(crate) struct Stack {
    count: Local,
    frames: [Local; CAPACITY],
}

impl Stack {
    const fn new() -> Self {
        Self {
            count: Local::new(0),
            frames: [const { Local::new(0) }; CAPACITY],
        }
    }

    #[inline]
    pub(crate) fn pop(&self) -> Option<Frame> {
        let count = self.count.get();
        if count == 0 {
            return None;
        }
        self.count.set(count - 1);
        Some(Frame(self.frames[count as usize - 1].get()))
    }

    /// Returns the frame that [`Stack::pop`] would return.
    #[inline]
    pub(crate) fn top(&self) -> Option<Frame> {
        let count = self.count.get();
        (count != 0).then(|| Frame(self.frames[count as usize - 1].get()))
    }

    /// Pushes a frame. There is room for it.
    #[inline]
    pub(crate) fn push(&self, frame: Frame) {
        let count = self.count.get();
        self.frames[count as usize].set(frame.0);
        self.count.set(count + 1);
    }

    pub(crate) fn len(&self) -> usize {
        self.count.get() as usize
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Frame> + '_ {
        self.frames[..self.len()].iter().map(|f| Frame(f.get()))
    }
}

/// One CPU's cache: frames of any content, and frames zeroed in idle time.
#[derive(Debug)]
#[repr(align(128))]
pub struct FrameCache {
    pub(crate) any: Stack,
    pub(crate) zeroed: Stack,
}

impl Default for FrameCache {
    fn default() -> Self {
        Self::new()
    }
}

impl FrameCache {
    /// Returns an empty cache.
    pub const fn new() -> Self {
        Self {
            any: Stack::new(),
            zeroed: Stack::new(),
        }
    }
}
