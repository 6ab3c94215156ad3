//! The swap devices, their slots, and the pages on their way.
//!
//! A port adds a device by [`Memory::swap_on`]. Pages of anonymous memory are then written to it
//! (room `reclaim`), and an entry that names a slot takes the page's place
//! ([`faultless_paging::SwapEntry`]). The fault on it reads the page (room `fault`).
//!
//! * Every page-table entry that names a slot is a *use* of it. So is a page-out until its page is written, and
//!   a swap-in from before it reads the slot until its entry is published. The last use frees the slot.
//! * While a swap-in has a use, the slot is not used again. So if the entry still names the slot afterwards,
//!   what was read is the entry's page (rule R4).
//! * A page that is being written is in its frame; a fault that needs it waits for the write with nothing held.
//! * A device that leaves gives no slots. A page-out that has taken one sees that, or the leaving device sees the slot.
//! * What a device's slots take stays with the device when its use ends, for the next time: a CPU may be at the end of
//!   an operation on a slot when the last one is free.
//!
//! * `below`: the machine, as `faultless-swap` needs it.
//! * `devices`: how the use of a device begins and ends.
//! * `slot`: allocation and uses of slots.
//! * `transfer`: pages on their way to a device and back.
//!
//! *Writes*: what `faultless-swap` says for slots; once for each batch of writes the device's count of these.

mod below;
mod devices;
mod slot;
mod transfer;

use core::ptr::NonNull;

use faultless_paging::Frame;
use faultless_swap::{SlotPage, SlotPages, Slots, SwapDevice};
use faultless_sync::atomic::{AtomicU32, Ordering};

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::base::places::SWAP_DEVICES;
use below::Below;
pub use devices::SwapUsage;
pub(crate) use slot::HeldSlot;

/// A device that is or was in use.
struct SwapArea<M: Machine> {
    device: &'static dyn SwapDevice,
    slots: Slots<Below<M>>,
    pages: SlotPages<Below<M>>,
    /// Goes up when pages were written. A swap-in that waits for one parks on it.
    written: AtomicU32,
    /// Its [`devices::State`].
    state: AtomicU32,
    /// Its priority, as bits.
    priority: AtomicU32,
    /// Its own frame.
    frame: Frame,
}

impl<M: Machine> Memory<M> {
    /// Returns a device that is or was in use.
    fn swap_area(&self, number: u32) -> Option<&SwapArea<M>> {
        let place = self.swap.areas.get(number as usize)?;
        // Acquire: pairs with the release in `swap_on`.
        let area = place.load(Ordering::Acquire);
        // SAFETY: `swap_on` of the same core has written it, and it stays until `end_swap`.
        NonNull::new(area).map(|area| unsafe { area.cast::<SwapArea<M>>().as_ref() })
    }

    /// Returns all of them, by number.
    fn swap_areas(&self) -> impl Iterator<Item = &SwapArea<M>> {
        (0..SWAP_DEVICES as u32).map_while(|number| self.swap_area(number))
    }

    /// Whether a device gives slots.
    pub(crate) fn has_swap(&self) -> bool {
        self.swap.order.load(Ordering::Relaxed) != 0
    }

    /// Whether entries may name slots.
    pub(crate) fn may_have_swapped(&self) -> bool {
        self.swap_area(0).is_some()
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
