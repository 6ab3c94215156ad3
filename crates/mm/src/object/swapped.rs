//! Pages of an object that were swapped out, and come back.
//!
//! * The object's slot names the slot of a device, and is a use of it. So no operation on the object has to know where
//!   the page is mapped: reclaim has emptied those entries ([`crate::reclaim::object`]).
//! * The thread that brings a page back takes over that use with the mark that it puts into the object's slot. Other
//!   threads that need the page park, as for a page that is being read from a file ([`crate::object::fill`]). The
//!   device is waited for with nothing held.
//! * A truncation removes the place or the mark. What was read is thrown away then.
//! * A page that the device cannot return stays where it is, so that a later try may succeed.
//!
//! *Writes*: the object's slot, the frame's descriptor, the count on which other threads park.
//!
//! *Models*: loom `object/swapped.rs`, `fault/userfault.rs`.

use faultless_sync::atomic::Ordering;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::object::radix::{PageSlot, Slot, SwapPlace};
use crate::object::{MemoryObject, ObjectInner, WaitKind};
use crate::swap::HeldSlot;

impl<M: Machine> Memory<M> {
    /// Returns the object with the lowest number above this one. A newer object has a higher number.
    pub(crate) fn object_after(&'static self, id: u64) -> Option<MemoryObject<M>> {
        let list = self.objects.lock(self.machine());
        let mut after = id;
        loop {
            let mut lowest: Option<&ObjectInner> = None;
            // SAFETY: under the lock, and objects stay in the list until they are freed.
            let mut next = unsafe { list.first() };
            while let Some(hook) = next {
                // SAFETY: as above.
                let object = unsafe { ObjectInner::of(hook) };
                if object.id > after && lowest.is_none_or(|lowest| object.id < lowest.id) {
                    lowest = Some(object);
                }
                // SAFETY: as above.
                next = unsafe { list.next(hook) };
            }
            let object = lowest?;
            if object.try_hold() {
                return Some(MemoryObject {
                    memory: self,
                    cache: object.into(),
                });
            }
            // It is being freed.
            after = object.id;
        }
    }
}

impl<M: Machine> MemoryObject<M> {
    /// Returns the first page from `index` on that is on this device, or on any.
    pub(crate) fn next_on(&self, device: Option<u32>, index: u64) -> Option<u64> {
        let mut at = index;
        loop {
            let index = self.next(at)?;
            let slot = self.cache().pages.find(index).map(Slot::load);
            match slot {
                Some(PageSlot::Swapped(place))
                    if device.is_none_or(|device| place.entry().device == device) =>
                {
                    return Some(index);
                }
                _ => at = index.checked_add(1)?,
            }
        }
    }

    /// Brings the page `index` back, unless another thread does.
    ///
    /// # Errors
    /// `EIO` if the device fails, or what it has is damaged; `ENOMEM`.
    pub(super) fn swap_in(
        &self,
        slot: &Slot,
        index: u64,
        place: SwapPlace,
    ) -> Result<WaitKind, Errno> {
        let frame = self.memory.allocate_frame_to_fill()?;
        let descriptor = self.descriptor(frame);
        self.cache().set_file(descriptor, index);
        descriptor.mark_dirty();
        let (gone, returning) = (PageSlot::Swapped(place), PageSlot::Returning(frame));
        let mut is_shown = false;
        let mut result = Ok(WaitKind::ForIo);
        if slot.replace(gone, returning).is_ok() {
            let held = HeldSlot {
                entry: place.entry(),
            };
            let read = self.memory.read_slot(&held, frame);
            let next = match read {
                Ok(()) => PageSlot::Page(frame),
                Err(_) => gone,
            };
            // Fails if a truncation has removed the mark.
            let is_placed = slot.replace(returning, next).is_ok();
            if read.is_ok() || !is_placed {
                self.memory.drop_slot_use(&held.entry);
            }
            is_shown = is_placed && read.is_ok();
            result = read.map(|()| WaitKind::ForIo);
            let machine = self.memory.machine();
            // Release: a woken thread sees the slot.
            let filled = &self.cache().writers.filled;
            filled.fetch_add(1, Ordering::Release);
            machine.wake(filled, u32::MAX);
        }
        if !is_shown && descriptor.let_go() {
            self.free(frame);
        }
        result
    }
}
