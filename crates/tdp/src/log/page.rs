//! The dirty log of single pages, for what writes guest memory without the guest: a hypervisor's own device models.
//!
//! *Writes*: a bit's word, if the page was not dirty.

use faultless_paging::{PAGE_SIZE, Pages};

use crate::guest::{Guest, GuestMachine, HostSpace};
use crate::log::bitmap;

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Marks the pages of `bytes` bytes from a guest-physical address on as dirty, where a slot that is logged has them. Call it
    /// after the bytes were written: the log that shows the mark then finds them.
    pub fn mark_dirty(&self, address: u64, bytes: u64) {
        let end = address.saturating_add(bytes).div_ceil(PAGE_SIZE);
        let pages = Pages::new(address / PAGE_SIZE, end);
        let _section = self.memory.enter();
        for slot in self.slots_now().iter().filter(|slot| slot.logs()) {
            let part = slot.pages.and(pages);
            for page in part.start..part.end {
                bitmap::set(self.machine(), slot, page - slot.pages.start);
            }
        }
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
