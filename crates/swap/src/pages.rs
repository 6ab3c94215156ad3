//! Where the page of a slot is: on the device, in a frame, or not written yet.
//!
//! A page-out puts a slot into page-table entries before the device has its page. Until then the slot is *not
//! written*, and so is a free slot: whatever has a use of a slot from before it was allocated waits, too. If the
//! device does not take the page, it stays in its frame (*kept*) until the slot is freed.
//!
//! * Only the page-out that has allocated the slot writes its word, and the last use clears it.
//! * A caller that reads a word has a use of the slot.
//!
//! *Writes*: the slot's word, of which eight share a line.

use faultless_frames::NoMemory;
use faultless_paging::Frame;
use faultless_sync::atomic::{AtomicU64, Ordering};

use crate::array::{FrameArray, Zeroed};
use crate::machine::SwapMachine;

/// Where a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotPage {
    /// Not on the device: the slot is free, or its page is being written.
    NotWritten,
    /// On the device.
    Written,
    /// In this frame: the device did not take it.
    Kept(Frame),
}

/// A word: 0 for a page that is not written, 1 for one that is, else the frame's number plus 2.
struct Word(AtomicU64);

impl Default for Word {
    fn default() -> Self {
        Self(AtomicU64::new(0))
    }
}

// SAFETY: a word, of which zero is a value.
unsafe impl Zeroed for Word {}

/// Where the pages of a device's slots are.
pub struct SlotPages<M: SwapMachine> {
    machine: M,
    words: FrameArray<Word>,
}

impl<M: SwapMachine> SlotPages<M> {
    /// Makes words for `slots` slots.
    ///
    /// # Errors
    /// [`NoMemory`] when the source has no frames for them: 8 bytes for each slot.
    pub fn new(machine: M, slots: u64) -> Result<Self, NoMemory> {
        let length = usize::try_from(slots).map_err(|_| NoMemory)?;
        let words = FrameArray::new(&machine, length)?;
        Ok(Self { machine, words })
    }

    fn word(&self, slot: u64) -> Option<&Word> {
        self.words.get(&self.machine, usize::try_from(slot).ok()?)
    }

    /// Sets where a slot's page is.
    pub fn set(&self, slot: u64, page: SlotPage) {
        let value = match page {
            SlotPage::NotWritten => 0,
            SlotPage::Written => 1,
            SlotPage::Kept(frame) => frame.0 + 2,
        };
        if let Some(word) = self.word(slot) {
            // Release: pairs with the acquire in `get`. The device has the page, or the frame its content.
            word.0.store(value, Ordering::Release);
        }
    }

    /// Returns where a slot's page is.
    pub fn get(&self, slot: u64) -> SlotPage {
        let value = self
            .word(slot)
            .map_or(0, |word| word.0.load(Ordering::Acquire));
        match value {
            0 => SlotPage::NotWritten,
            1 => SlotPage::Written,
            kept => SlotPage::Kept(Frame(kept - 2)),
        }
    }

    /// Calls `visit` with every frame of the words.
    pub fn for_each_frame(&self, visit: &mut dyn FnMut(Frame)) {
        self.words.for_each_frame(&self.machine, visit);
    }
}

impl<M: SwapMachine> Drop for SlotPages<M> {
    fn drop(&mut self) {
        // SAFETY: the last use.
        unsafe { self.words.free(&self.machine) };
    }
}
