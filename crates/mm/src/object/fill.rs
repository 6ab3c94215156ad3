//! Reading a page in: the one thing that a fault waits for, and it holds nothing then.
//!
//! Whoever finds a page missing marks its slot with a frame of its own, fills that, and
//! shows it. Everybody else who needs the page parks until some page of the store was
//! filled, and looks again. Nobody holds the mmap lock, a read section, or a claim
//! meanwhile, so that a slow device holds up nobody who does not need the page.
//!
//! A truncation takes the mark out; then what was read is thrown away. A page that is moved to
//! another frame is waited for in the same way ([`crate::object::moving`]).

use faultless_sync::atomic::{Ordering, fence};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::object::MemoryObject;
use crate::object::radix::{PageSlot, Slot};

/// What filling a page took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WaitKind {
    /// I/O, the caller's own or somebody else's.
    ForIo,
    /// Nothing of the kind: somebody moves the page, or it is copied from memory.
    ForNone,
}

impl<M: Machine> MemoryObject<M> {
    /// Reads the page `index` in, or waits until somebody has. It is worth looking
    /// again afterwards.
    ///
    /// # Errors
    /// What filling it failed with; `ENOMEM`.
    pub(crate) fn fill(&self, index: u64) -> Result<WaitKind, Errno> {
        let cache = self.cache();
        let machine = self.memory.machine();
        // Acquire: before the look at the slot, so that a page filled after it is noticed.
        let filled = cache.writers.filled.load(Ordering::Acquire);
        let seen = cache.pages.find(index).map(Slot::load);
        let by_io = match cache.backing {
            Some(backing) if backing.is_io() => WaitKind::ForIo,
            _ => WaitKind::ForNone,
        };
        if let Some(PageSlot::Moving(_) | PageSlot::Filling(_)) = seen {
            machine.park(&cache.writers.filled, filled);
            return Ok(match seen {
                Some(PageSlot::Filling(_)) => by_io,
                _ => WaitKind::ForNone,
            });
        }
        let Some(backing) = cache.backing else {
            return Ok(WaitKind::ForNone);
        };
        let slot = cache.pages.slot(index, self.memory)?;
        match slot.load() {
            PageSlot::Empty => {}
            // Somebody was faster: the next look finds that.
            _ => return Ok(by_io),
        }
        let frame = self.memory.allocate_frame_to_fill()?;
        if let Err(error) = cache.charge(index) {
            self.free(frame);
            // Somebody may have begun with the last room that there was.
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
            // Release: whoever is woken sees the slot.
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
