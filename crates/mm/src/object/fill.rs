//! Reads pages in. A fault waits for that with nothing held.
//!
//! An operation that finds a page missing marks its slot with a new frame, fills the frame, and shows it. Other
//! operations that need the page park until some page of the object was filled, and look again. None of them
//! holds the mmap lock, a read section, or a claim meanwhile: a slow device delays only operations that need
//! the page.
//!
//! A truncation removes the mark, and what was read is then thrown away. A page that moves to another frame is
//! waited for in the same way ([`crate::object::moving`]).

use faultless_sync::atomic::{Ordering, fence};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::object::MemoryObject;
use crate::object::radix::{PageSlot, Slot};

/// What filling a page has waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitKind {
    /// I/O, of the caller or of another thread.
    ForIo,
    /// No I/O: the page is being moved, or is copied from memory.
    ForNone,
}

impl<M: Machine> MemoryObject<M> {
    /// Reads the page `index` in, or waits until another thread has. The caller looks again afterwards.
    ///
    /// # Errors
    /// Any error of filling it; `ENOMEM`.
    pub(crate) fn fill(&self, index: u64) -> Result<WaitKind, Errno> {
        let cache = self.cache();
        let machine = self.memory.machine();
        // Acquire: before the look at the slot, so that a page filled later is noticed.
        let filled = cache.writers.filled.load(Ordering::Acquire);
        let seen = cache.pages.find(index).map(Slot::load);
        let by_io = match cache.backing {
            Some(backing) if backing.is_io() => WaitKind::ForIo,
            _ => WaitKind::ForNone,
        };
        if let Some(PageSlot::Moving(_) | PageSlot::Filling(_) | PageSlot::Returning(_)) = seen {
            machine.park(&cache.writers.filled, filled);
            return Ok(match seen {
                Some(PageSlot::Returning(_)) => WaitKind::ForIo,
                Some(PageSlot::Filling(_)) => by_io,
                _ => WaitKind::ForNone,
            });
        }
        if let (Some(PageSlot::Swapped(place)), Some(slot)) = (seen, cache.pages.find(index)) {
            return self.swap_in(slot, index, place);
        }
        let Some(backing) = cache.backing.filter(|_| !cache.is_pooled()) else {
            return Ok(WaitKind::ForNone);
        };
        let slot = cache.pages.slot(index, self.memory)?;
        match slot.load() {
            PageSlot::Empty => {}
            // Another CPU was faster: the next look finds that.
            _ => return Ok(by_io),
        }
        let frame = self.memory.allocate_frame_to_fill()?;
        if let Err(error) = cache.charge(index) {
            self.free(frame);
            // Another CPU may have begun, with the last room that there was.
            return match slot.load() {
                PageSlot::Empty => Err(error),
                _ => Ok(by_io),
            };
        }
        let descriptor = self.descriptor(frame);
        cache.set_file(descriptor, index);
        let mut ours = slot
            .replace(PageSlot::Empty, PageSlot::Filling(frame))
            .is_ok();
        let mut result = Ok(by_io);
        if ours {
            result = backing.fill(cache.tag, index, frame).map(|()| by_io);
            let next = match result {
                Ok(_) => PageSlot::Page(frame),
                Err(_) => PageSlot::Empty,
            };
            let shown = slot.replace(PageSlot::Filling(frame), next);
            ours = shown.is_ok() && result.is_ok();
            // Partner: the fence between a truncation's new size and its look at the slots.
            fence(Ordering::SeqCst);
            if ours && !cache.has(index) && cache.take_back(machine, slot, index, frame) {
                ours = false;
            }
            // Release: a woken thread sees the slot.
            cache.writers.filled.fetch_add(1, Ordering::Release);
            machine.wake(&cache.writers.filled, u32::MAX);
        }
        if !ours {
            cache.uncharge(index);
            if descriptor.let_go() {
                self.free(frame);
            }
        }
        result
    }
}
