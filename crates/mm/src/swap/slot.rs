//! Slots: their allocation, and their uses.
//!
//! *Writes*: what `faultless-swap` says for slots.

use faultless_frames::FrameSource;
use faultless_paging::{Frame, SwapEntry};
use faultless_swap::{NotAdded, SlotPage};
use faultless_sync::atomic::Ordering;
use faultless_sync::{Mutant, fence_after_rmw, mutant};

use super::SwapArea;
use crate::base::machine::Machine;
use crate::base::memory::Memory;

/// A use of a slot.
pub(crate) struct HeldSlot {
    pub(crate) entry: SwapEntry,
}

impl<M: Machine> Memory<M> {
    /// Allocates a slot for a page that is about to be written, with a use for its entry and one for the
    /// write.
    pub(crate) fn allocate_slot(&self) -> Option<SwapEntry> {
        // Acquire: pairs with the release in `set_order`.
        let mut order = self.swap.order.load(Ordering::Acquire);
        while let Some(device) = (order & 15).checked_sub(1) {
            order >>= 4;
            let area = self.swap_area(device)?;
            let Some(slot) = area.slots.allocate() else {
                continue;
            };
            let entry = SwapEntry {
                device,
                slot,
                is_exclusive: true,
                is_soft_dirty: true,
                reports_writes: false,
            };
            // A device that leaves sees the use that was added by a read-modify-write above, or is seen here.
            fence_after_rmw();
            let is_on = area.is_on() || mutant(Mutant::LeavingDeviceUsed);
            if is_on && area.slots.add_use(slot).is_ok() {
                return Some(entry);
            }
            self.drop_slot_use(&entry);
        }
        None
    }

    /// Frees a slot that was allocated, and that no entry has named yet.
    pub(crate) fn take_back_slot(&self, entry: &SwapEntry) {
        self.drop_slot_use(entry);
        self.drop_slot_use(entry);
    }

    /// Adds the use of an entry that names the same slot as another one. Returns whether there was room for it.
    pub(crate) fn share_slot(&self, entry: &SwapEntry) -> bool {
        let area = self.swap_area(entry.device);
        area.is_some_and(|area| area.slots.add_use(entry.slot).is_ok())
    }

    /// Adds a use of the slot that an entry names, or named.
    ///
    /// # Errors
    /// The slot is free now, or has too many uses.
    pub(crate) fn hold_slot(&self, entry: &SwapEntry) -> Result<HeldSlot, NotAdded> {
        let area = self.swap_area(entry.device).ok_or(NotAdded::Free)?;
        area.slots.add_use(entry.slot)?;
        // Pairs with the barrier of a claim: see `take_kept`.
        fence_after_rmw();
        if mutant(Mutant::SlotNotHeld) {
            self.drop_slot_use(entry);
        }
        Ok(HeldSlot { entry: *entry })
    }

    /// Drops the use of a held slot.
    pub(crate) fn release_slot(&self, held: HeldSlot) {
        if !mutant(Mutant::SlotNotHeld) {
            self.drop_slot_use(&held.entry);
        }
    }

    /// Drops a use of a slot, and frees the slot with the last.
    pub(crate) fn drop_slot_use(&self, entry: &SwapEntry) {
        if let Some(area) = self.swap_area(entry.device) {
            let discard = || self.discard_slot(area, entry.slot);
            area.slots.remove_use(entry.slot, discard);
        }
    }

    /// Discards a slot's page: what the device has, or the frame in which the page was kept.
    fn discard_slot(&self, area: &SwapArea<M>, slot: u64) {
        match area.pages.get(slot) {
            // Taken back before it had a page.
            SlotPage::NotWritten => return,
            SlotPage::Written => area.device.discard(slot),
            SlotPage::Kept(frame) => self.free_swapped(frame),
        }
        area.pages.set(slot, SlotPage::NotWritten);
    }

    /// Frees the frame of a page that was swapped out.
    pub(crate) fn free_swapped(&self, frame: Frame) {
        let source = self.machine().frames();
        if source.descriptor(frame).unmap() {
            source.free_reserved(self.machine().cpu(), frame);
        }
    }

    /// Returns the uses of a slot.
    pub(crate) fn slot_uses(&self, entry: &SwapEntry) -> u64 {
        let area = self.swap_area(entry.device);
        area.map_or(0, |area| area.slots.uses(entry.slot).into())
    }
}
