//! Pages on their way to a device and back.
//!
//! *Writes*: where the slot's page is; once for each batch of writes the device's count of these.

use faultless_paging::{Frame, SwapEntry};
use faultless_swap::{Page, SlotPage};
use faultless_sync::atomic::Ordering;
use faultless_trace::Counter;

use super::HeldSlot;
use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::memory::Memory;

impl<M: Machine> Memory<M> {
    /// Writes the page of a slot to its device, and drops the use of the write. A page that the device does not
    /// take stays in its frame until the slot is freed. [`Memory::end_writes`] follows. Returns whether the device
    /// has taken it.
    pub(crate) fn write_slot(&self, entry: &SwapEntry, frame: Frame) -> bool {
        let Some(area) = self.swap_area(entry.device) else {
            return false;
        };
        // SAFETY: nothing writes the page: no entry shows it, and nothing has pinned it.
        let page = unsafe { self.machine().pointer(frame).cast::<Page>().as_ref() };
        let is_written = area.device.write(entry.slot, page).is_ok();
        if is_written {
            area.pages.set(entry.slot, SlotPage::Written);
            self.count(Counter::SwapOut);
            self.free_swapped(frame);
        } else {
            area.pages.set(entry.slot, SlotPage::Kept(frame));
        }
        self.drop_slot_use(entry);
        is_written
    }

    /// Wakes what waits for pages that were written to a device.
    pub(crate) fn end_writes(&self, device: u32) {
        if let Some(area) = self.swap_area(device) {
            // Release: a woken thread sees where the pages are.
            area.written.fetch_add(1, Ordering::Release);
            self.machine().wake(&area.written, u32::MAX);
        }
    }

    /// Reads the page of a held slot, which an entry has named meanwhile, into a frame that only the caller uses.
    /// Waits for the device, and for a write of the page.
    ///
    /// # Errors
    /// `EIO`: the device failed, or what it has is damaged.
    pub(crate) fn read_slot(&self, held: &HeldSlot, frame: Frame) -> Result<(), Errno> {
        let (machine, slot) = (self.machine(), held.entry.slot);
        let area = self.swap_area(held.entry.device).ok_or(Errno::EIO)?;
        loop {
            // Acquire: pairs with the release in `end_writes`.
            let seen = area.written.load(Ordering::Acquire);
            match area.pages.get(slot) {
                // The page-out that has put the slot into the entry ends the wait.
                SlotPage::NotWritten => machine.park(&area.written, seen),
                // The frame stays until the last use of the slot has gone.
                SlotPage::Kept(kept) => {
                    machine.copy(kept, frame);
                    return Ok(());
                }
                SlotPage::Written => break,
            }
        }
        // SAFETY: the caller's frame.
        let page = unsafe { machine.pointer(frame).cast::<Page>().as_mut() };
        area.device.read(slot, page).map_err(|_| Errno::EIO)?;
        self.count(Counter::SwapIn);
        Ok(())
    }
}
