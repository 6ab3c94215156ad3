//! A RAM disk as a swap device: pages are copied to frames, as they are.
//!
//! It saves no memory. It shows what swapping itself costs, without a device's own work, and tests use it.
//!
//! * A slot gets its frame with its first page, and keeps it until the device ends, as those of Linux's `brd` do.
//! * A slot's word is written by the operations on that slot alone.
//!
//! *Writes*: the slot's word, of which eight share a line, and its frame.

use faultless_frames::NoMemory;
use faultless_paging::Frame;
use faultless_sync::atomic::Local;

use crate::array::{FrameArray, Zeroed};
use crate::device::{DeviceError, Page, SwapDevice};
use crate::frames::{allocate, free};
use crate::machine::SwapMachine;

/// Whether a slot has a page.
const HAS_PAGE: u64 = 1;

/// A slot: 0 without a frame; else the frame's number plus 1, shifted, and [`HAS_PAGE`].
#[derive(Default)]
struct Slot(Local);

// SAFETY: a word, of which zero is a value.
unsafe impl Zeroed for Slot {}

impl Slot {
    fn frame(&self) -> Option<Frame> {
        (self.0.get() >> 1).checked_sub(1).map(Frame)
    }

    fn has_page(&self) -> bool {
        self.0.get() & HAS_PAGE != 0
    }

    fn set(&self, frame: Frame, has_page: bool) {
        self.0.set((frame.0 + 1) << 1 | u64::from(has_page));
    }
}

/// A RAM disk with a number of slots. When it is dropped, all frames return to the source.
pub struct RamDisk<M: SwapMachine> {
    machine: M,
    slots: FrameArray<Slot>,
}

impl<M: SwapMachine> RamDisk<M> {
    /// Creates a device with `slots` empty slots. Each takes 8 bytes now, and a frame from its first page on.
    ///
    /// # Errors
    /// [`NoMemory`] when the source has no frames for the slots' words.
    pub fn new(machine: M, slots: u64) -> Result<Self, NoMemory> {
        let length = usize::try_from(slots).map_err(|_| NoMemory)?;
        Ok(Self {
            slots: FrameArray::new(&machine, length)?,
            machine,
        })
    }

    /// Calls `visit` with every frame of the device. Nothing else uses the device meanwhile.
    pub fn for_each_frame(&self, visit: &mut dyn FnMut(Frame)) {
        self.slots.for_each_frame(&self.machine, visit);
        let slots = (0..self.slots.len()).filter_map(|slot| self.slots.get(&self.machine, slot));
        slots.filter_map(Slot::frame).for_each(visit);
    }

    fn slot(&self, slot: u64) -> Option<&Slot> {
        self.slots.get(&self.machine, usize::try_from(slot).ok()?)
    }
}

impl<M: SwapMachine> SwapDevice for RamDisk<M> {
    fn slots(&self) -> u64 {
        self.slots.len() as u64
    }

    fn write(&self, slot: u64, page: &Page) -> Result<(), DeviceError> {
        let slot = self.slot(slot).ok_or(DeviceError::Failed)?;
        let frame = match slot.frame() {
            Some(frame) => frame,
            None => allocate(&self.machine).map_err(|NoMemory| DeviceError::Full)?,
        };
        // SAFETY: the slot's frame, which only this caller uses now.
        let stored = unsafe { self.machine.pointer(frame).cast::<Page>().as_mut() };
        stored.copy_from_slice(page);
        slot.set(frame, true);
        Ok(())
    }

    fn read(&self, slot: u64, page: &mut Page) -> Result<(), DeviceError> {
        let slot = self.slot(slot).filter(|slot| slot.has_page());
        let frame = slot.and_then(Slot::frame).ok_or(DeviceError::Failed)?;
        // SAFETY: the slot's frame, which nothing writes while the slot has a page.
        let stored = unsafe { self.machine.pointer(frame).cast::<Page>().as_ref() };
        page.copy_from_slice(stored);
        Ok(())
    }

    fn discard(&self, slot: u64) {
        if let Some(slot) = self.slot(slot)
            && let Some(frame) = slot.frame()
        {
            slot.set(frame, false);
        }
    }

    fn is_fast(&self) -> bool {
        true
    }
}

impl<M: SwapMachine> Drop for RamDisk<M> {
    fn drop(&mut self) {
        let slots = (0..self.slots.len()).filter_map(|slot| self.slots.get(&self.machine, slot));
        slots
            .filter_map(Slot::frame)
            .for_each(|frame| free(&self.machine, frame));
        // SAFETY: the device is going.
        unsafe { self.slots.free(&self.machine) };
    }
}
