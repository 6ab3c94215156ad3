//! The dirty log of single pages, for what writes guest memory without the guest: a hypervisor's own device models.
//!
//! *Writes*: a bit's word, if the page was not dirty; or a place of a ring.

use faultless_paging::{PAGE_SIZE, Pages};

use crate::guest::{Guest, GuestMachine, HostSpace};
use crate::log::bitmap;
use crate::log::ring::{DirtyRing, RingFull};
use crate::slots::slot::SlotBody;

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Marks the pages of `bytes` bytes from a guest-physical address on as dirty, where a slot that is logged has them. Call it
    /// after the bytes were written: the log that shows the mark then finds them. In a guest with rings, see
    /// [`Guest::mark_dirty_in`].
    pub fn mark_dirty(&self, address: u64, bytes: u64) {
        let mut set = |slot: &SlotBody, page| {
            bitmap::set(self.machine(), slot, page);
            Ok(())
        };
        // No bit is refused.
        let _ = self.for_each_logged(address, bytes, &mut set);
    }

    /// Pushes these pages into a ring, instead. Called by the thread of the ring's vCPU, or while that does not run.
    ///
    /// # Errors
    /// [`RingFull`] if some are not pushed.
    pub fn mark_dirty_in(
        &self,
        ring: &DirtyRing<'_>,
        address: u64,
        bytes: u64,
    ) -> Result<(), RingFull> {
        let mut push = |slot: &SlotBody, page| ring.push((slot.number, page));
        self.for_each_logged(address, bytes, &mut push)
    }

    /// Calls `visit` with the pages of slots that are logged, by their numbers in the slot.
    fn for_each_logged(
        &self,
        address: u64,
        bytes: u64,
        visit: &mut dyn FnMut(&SlotBody, u64) -> Result<(), RingFull>,
    ) -> Result<(), RingFull> {
        let end = address.saturating_add(bytes).div_ceil(PAGE_SIZE);
        let pages = Pages::new(address / PAGE_SIZE, end);
        let _section = self.memory.enter();
        for slot in self.slots_now().iter().filter(|slot| slot.logs()) {
            let part = slot.pages.and(pages);
            for page in part.start..part.end {
                visit(slot, page - slot.pages.start)?;
            }
        }
        Ok(())
    }

    /// Whether the page of a guest-physical address is dirty. One in no slot, or in a slot that is not logged, is not.
    pub fn is_dirty(&self, address: u64) -> bool {
        let _kept = self.changes.read(self.machine());
        let page = address / PAGE_SIZE;
        let slots = self.slots_now();
        slots
            .find(page)
            .filter(|slot| slot.logs())
            .is_some_and(|slot| {
                let number = page - slot.pages.start;
                self.read_word(slot, number & !63) >> (number % 64) & 1 != 0
            })
    }
}
