//! The swap devices in use, their slots, and the pages on their way.
//!
//! A port adds a device by [`Memory::swap_on`]. Pages of anonymous memory are then written to it
//! (room `reclaim`), and an entry that names a slot takes the page's place
//! ([`faultless_paging::SwapEntry`]). The fault on it reads the page (room `fault`).
//!
//! * Devices are used in the order in which they were added: the first that has a free slot.
//! * Every page-table entry that names a slot is a *use* of it. So is a page-out until its page is written, and
//!   a swap-in from before it reads the slot until its entry is published. The last use frees the slot.
//! * While a swap-in has a use, the slot is not used again. So if the entry still names the slot afterwards,
//!   what was read is the entry's page (rule R4).
//! * A page that is being written is in its frame; a fault that needs it waits for the write with nothing held.
//!
//! * `below`: the machine, as `faultless-swap` needs it.
//! * `slot`: allocation and uses of slots.
//! * `transfer`: pages on their way to a device and back.
//!
//! *Writes*: what `faultless-swap` says for slots; once for each batch of writes the device's count of these.

mod below;
mod slot;
mod transfer;

use core::ptr::NonNull;

use faultless_paging::{EntryFormat, Frame, PAGE_SIZE};
use faultless_swap::{SlotCache, SlotPage, SlotPages, Slots, SwapDevice};
use faultless_sync::atomic::{AtomicU32, Ordering};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::base::places::SWAP_DEVICES;
use below::Below;
pub(crate) use slot::HeldSlot;

/// A device in use.
struct SwapArea<M: Machine> {
    device: &'static dyn SwapDevice,
    slots: Slots<Below<M>>,
    pages: SlotPages<Below<M>>,
    /// Goes up when pages were written. A swap-in that waits for one parks on it.
    written: AtomicU32,
    /// Its own frame.
    frame: Frame,
}

impl<M: Machine> Memory<M> {
    /// Returns a device in use.
    fn swap_area(&self, number: u32) -> Option<&SwapArea<M>> {
        // Acquire: pairs with the compare-and-swap in `swap_on`.
        let area = self.swap.0.get(number as usize)?.load(Ordering::Acquire);
        // SAFETY: `swap_on` of the same core has written it, and an area in use is not freed.
        NonNull::new(area).map(|area| unsafe { area.cast::<SwapArea<M>>().as_ref() })
    }

    fn swap_areas(&self) -> impl Iterator<Item = &SwapArea<M>> {
        (0..SWAP_DEVICES as u32).map_while(|number| self.swap_area(number))
    }

    /// Whether there is a device.
    pub(crate) fn has_swap(&self) -> bool {
        self.swap_area(0).is_some()
    }

    /// Begins to use a swap device, after those that are in use. `cpus` has a part for each CPU, new, which no
    /// other device uses. Returns the device's number.
    ///
    /// # Errors
    /// `ENOMEM` without memory for its slots; `EPERM` if too many devices are in use; `EINVAL` for a device
    /// without slots.
    pub fn swap_on(
        &'static self,
        device: &'static dyn SwapDevice,
        cpus: &'static [SlotCache],
    ) -> Result<u32, Errno> {
        let count = device.slots().min(M::Format::FORMAT.slots());
        if count == 0 || cpus.len() < self.cpus().len() {
            return Err(Errno::EINVAL);
        }
        let machine = || Below(self.machine());
        let slots = Slots::new(machine(), cpus, count)?;
        let pages = SlotPages::new(machine(), count)?;
        const { assert!(size_of::<SwapArea<M>>() <= PAGE_SIZE as usize) };
        let frame = self.take_space_frame()?;
        let area = self.machine().pointer(frame).cast::<SwapArea<M>>();
        // SAFETY: a frame that only this function uses, large enough and aligned.
        unsafe {
            area.write(SwapArea {
                device,
                slots,
                pages,
                written: AtomicU32::new(0),
                frame,
            });
        }
        for (number, place) in (0..).zip(&self.swap.0) {
            // Release: pairs with the acquire in `area`.
            let added = place.compare_exchange(
                core::ptr::null_mut(),
                area.as_ptr().cast(),
                Ordering::AcqRel,
                Ordering::Relaxed,
            );
            if added.is_ok() {
                return Ok(number);
            }
        }
        // SAFETY: written above, and found by nothing.
        unsafe { area.drop_in_place() };
        self.give_space_frame(frame);
        Err(Errno::EPERM)
    }

    /// Frees what the devices' slots take, with the last use of this memory core.
    ///
    /// # Safety
    /// Nothing else uses the core, and no entry names a slot.
    pub unsafe fn end_swap(&self) {
        for place in &self.swap.0 {
            let area = place.swap(core::ptr::null_mut(), Ordering::AcqRel);
            if let Some(area) = NonNull::new(area.cast::<SwapArea<M>>()) {
                // SAFETY: written by `swap_on`, and not used any more.
                let frame = unsafe {
                    let frame = area.as_ref().frame;
                    area.drop_in_place();
                    frame
                };
                self.give_space_frame(frame);
            }
        }
    }

    /// Returns the number of slots of all devices, and how many are used.
    pub fn swap_usage(&self) -> (u64, u64) {
        let all = self
            .swap_areas()
            .map(|area| (area.slots.slots(), area.slots.used()));
        all.fold((0, 0), |(slots, used), (more, more_used)| {
            (slots + more, used + more_used)
        })
    }

    /// Calls `visit` with the frames of the devices' slots, and with those in which pages are kept: for these
    /// with `true`. Nothing is at work.
    pub(crate) fn for_each_swap_frame(&self, visit: &mut dyn FnMut(Frame, bool)) {
        for area in self.swap_areas() {
            visit(area.frame, false);
            area.slots.for_each_frame(&mut |frame| visit(frame, false));
            area.pages.for_each_frame(&mut |frame| visit(frame, false));
            let mut from = 0;
            while let Some(slot) = area.slots.next_used(from) {
                from = slot + 1;
                if let SlotPage::Kept(frame) = area.pages.get(slot) {
                    visit(frame, true);
                }
            }
        }
    }
}
