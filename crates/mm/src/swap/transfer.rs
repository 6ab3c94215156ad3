//! Pages on their way to a device and back.
//!
//! *Writes*: where the slot's page is; once for each batch of writes the device's count of these.

use faultless_paging::{Frame, SwapEntry};
use faultless_swap::{Page, SlotPage, SwapRead, SwapWrite};
use faultless_sync::atomic::Ordering;
use faultless_sync::{Mutant, mutant};
use faultless_trace::Counter;

use super::{HeldSlot, SwapArea};
use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::tune::READ_AHEAD;

impl<M: Machine> Memory<M> {
    /// Writes pages to their slots: for each number below `count` the one that `page_at` names. Drops the uses of the
    /// writes, and wakes what waits for the pages. A page that the device does not take stays in its frame until
    /// the slot is freed. Returns how many the devices have taken.
    pub(crate) fn write_slots(
        &self,
        count: usize,
        page_at: impl Fn(usize) -> Option<(SwapEntry, Frame)>,
    ) -> u64 {
        let mut taken = 0;
        for (device, area) in (0..).zip(self.swap_areas()) {
            let of_device = |number| page_at(number).filter(|(entry, _)| entry.device == device);
            let mut has_some = false;
            let mut writes = (0..count).filter_map(|number| {
                let (entry, frame) = of_device(number)?;
                has_some = true;
                // SAFETY: nothing writes the page: no entry shows it, and nothing has pinned it. The frame is
                // freed when the write is done.
                let page = unsafe { self.machine().pointer(frame).cast::<Page>().as_ref() };
                Some(SwapWrite {
                    number,
                    slot: entry.slot,
                    page,
                })
            });
            area.device.write_all(&mut writes, &mut |number, result| {
                if let Some((entry, frame)) = of_device(number) {
                    self.written(area, &entry, frame, result.is_ok());
                }
                taken += u64::from(result.is_ok());
                self.machine().poll();
            });
            if has_some {
                self.end_writes(area);
            }
        }
        taken
    }

    /// Records that the device has, or has not, taken the page of a slot. Drops the use of the write.
    fn written(&self, area: &SwapArea<M>, entry: &SwapEntry, frame: Frame, is_written: bool) {
        if is_written {
            area.pages.set(entry.slot, SlotPage::Written);
            self.count(Counter::SwapOut);
            self.free_swapped(frame);
        } else {
            area.pages.set(entry.slot, SlotPage::Kept(frame));
        }
        self.drop_slot_use(entry);
    }

    /// Wakes what waits for pages that were written to a device.
    fn end_writes(&self, area: &SwapArea<M>) {
        // Release: a woken thread sees where the pages are.
        area.written.fetch_add(1, Ordering::Release);
        self.machine().wake(&area.written, u32::MAX);
    }

    /// Waits for the write of a held slot's page, which an entry has named meanwhile. Returns the frame in which the
    /// page is, if the device did not take it.
    pub(crate) fn await_write(&self, held: &HeldSlot) -> Option<Frame> {
        let area = self.swap_area(held.entry.device)?;
        loop {
            // Acquire: pairs with the release in `end_writes`.
            let seen = area.written.load(Ordering::Acquire);
            match area.pages.get(held.entry.slot) {
                // The page-out that has put the slot into the entry ends the wait.
                SlotPage::NotWritten => self.machine().park(&area.written, seen),
                SlotPage::Kept(kept) => return Some(kept),
                SlotPage::Written => return None,
            }
        }
    }

    /// Whether a held slot has no other use than that of one entry. Of a page in a frame this may change, until the
    /// entry is claimed.
    pub(crate) fn is_used_by_one(&self, held: &HeldSlot) -> bool {
        self.slot_uses(&held.entry) == 2
    }

    /// Takes the frame away in which a held slot's page was kept. The caller has claimed the entry, which was the only
    /// other use at some moment before: returns whether it still is. A fault that has added a use meanwhile sees the
    /// claim, and does not read the frame.
    pub(crate) fn take_kept(&self, held: &HeldSlot) -> bool {
        let is_alone = self.is_used_by_one(held);
        if is_alone && let Some(area) = self.swap_area(held.entry.device) {
            area.pages.set(held.entry.slot, SlotPage::NotWritten);
        }
        is_alone || mutant(Mutant::KeptFrameShared)
    }

    /// Reads the page of a held slot, which an entry or an object has named meanwhile, into a frame that only the caller
    /// uses. Waits for the device, and for a write of the page.
    ///
    /// # Errors
    /// `EIO`: the device failed, or what it has is damaged.
    pub(crate) fn read_slot(&self, held: &HeldSlot, frame: Frame) -> Result<(), Errno> {
        let (machine, slot) = (self.machine(), held.entry.slot);
        let area = self.swap_area(held.entry.device).ok_or(Errno::EIO)?;
        if let Some(kept) = self.await_write(held) {
            // The frame stays until the last use of the slot has gone.
            machine.copy(kept, frame);
            return Ok(());
        }
        // SAFETY: the caller's frame.
        let page = unsafe { machine.pointer(frame).cast::<Page>().as_mut() };
        area.device.read(slot, page).map_err(|_| Errno::EIO)?;
        self.count(Counter::SwapIn);
        Ok(())
    }

    /// Whether the page of a slot is on its device.
    pub(crate) fn is_written(&self, entry: &SwapEntry) -> bool {
        let area = self.swap_area(entry.device);
        area.is_some_and(|area| area.pages.get(entry.slot) == SlotPage::Written)
    }

    /// Reads the pages of held slots of one device, which entries have named meanwhile: for each number below `count`
    /// the one that `page_at` names, into a frame that only the caller uses. Returns the numbers of those that were
    /// read, a bit each.
    pub(crate) fn read_slots(
        &self,
        count: usize,
        page_at: impl Fn(usize) -> Option<(SwapEntry, Frame)>,
    ) -> u32 {
        let first = (0..count).find_map(&page_at);
        let area = first.and_then(|(entry, _)| self.swap_area(entry.device));
        let mut read = 0;
        let mut reads = (0..count).filter_map(|number| {
            let (entry, frame) = page_at(number)?;
            // SAFETY: the caller's frame, once for each number.
            let page = unsafe { self.machine().pointer(frame).cast::<Page>().as_mut() };
            Some(SwapRead {
                number,
                slot: entry.slot,
                page,
            })
        });
        if let Some(area) = area {
            area.device.read_all(&mut reads, &mut |number, result| {
                if result.is_ok() {
                    read |= 1 << number;
                    self.count(Counter::SwapIn);
                }
            });
        }
        read
    }

    /// Sets how many pages a fault reads ahead from a slow device; 0 for none. There is a limit.
    pub fn set_read_ahead(&self, pages: u32) {
        let most = pages.min(READ_AHEAD as u32);
        self.swap.read_ahead.store(most, Ordering::Relaxed);
    }

    /// Returns how many pages a fault reads ahead from a device.
    pub(crate) fn read_ahead_on(&self, device: u32) -> u32 {
        let area = self.swap_area(device);
        match area.is_none_or(|area| area.device.is_fast()) {
            true => 0,
            false => self.swap.read_ahead.load(Ordering::Relaxed),
        }
    }
}
