//! A CPU's own frames: what makes an allocation write no shared line.
//!
//! Only its CPU touches a cache, with interrupts off or without preemption;
//! others read the counts when they take a census.

use faultless_paging::Frame;
use faultless_sync::atomic::Local;

/// Frames of one kind that a cache holds at most.
pub(crate) const CAPACITY: usize = 64;
/// Frames that go to or come from the free lists at once.
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

    /// The frame that [`Stack::pop`] would give.
    #[inline]
    pub(crate) fn top(&self) -> Option<Frame> {
        let count = self.count.get();
        (count != 0).then(|| Frame(self.frames[count as usize - 1].get()))
    }

    /// Adds a frame; there is room.
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
    /// An empty cache.
    pub const fn new() -> Self {
        Self {
            any: Stack::new(),
            zeroed: Stack::new(),
        }
    }
}
