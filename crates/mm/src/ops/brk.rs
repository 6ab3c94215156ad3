//! `brk`: the heap's end.
//!
//! As the raw system call: whatever cannot be done leaves the end where it is
//! and returns it.

use faultless_paging::{PAGE_SIZE, Pages, Protection};
use faultless_sync::atomic::Ordering;
use faultless_trace::{Counter, Kind};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::lock::Edit;
use crate::space::AddressSpace;
use crate::tree::mapping::{Attributes, Flags, Locked, SoftDirtyEpoch};

/// Attributes of the heap: readable, writable.
const HEAP: Attributes = Attributes {
    protection: Protection {
        read: true,
        write: true,
        execute: false,
    },
    flags: Flags::NONE,
    backed: None,
    birth: SoftDirtyEpoch(0),
};

impl<M: Machine> AddressSpace<M> {
    /// Where the heap begins, empty. For `exec`.
    pub fn set_brk(&self, start: u64) {
        self.maps.brk[0].store(start, Ordering::Relaxed);
        self.maps.brk[1].store(start, Ordering::Relaxed);
    }

    /// Bytes of the program's data, which the heap's part of [`crate::Limits::data`] includes.
    /// For `exec`.
    pub fn set_data_size(&self, bytes: u64) {
        self.maps.brk[2].store(bytes, Ordering::Relaxed);
    }

    /// Moves the heap's end to `new` if that can be done. The end now.
    pub fn brk(&self, new: u64) -> u64 {
        let start = self.trace_start();
        let end = self.move_brk(new);
        self.trace_end(Kind::Brk, start, end, new, 0);
        end
    }

    fn move_brk(&self, new: u64) -> u64 {
        if let Some(end) = self.move_brk_at_once(new) {
            return end;
        }
        let (lock, start, end) = loop {
            let (start, end) = self.heap();
            if new < start {
                return end;
            }
            // A page stays free behind the heap.
            let last = self.layout().end / PAGE_SIZE;
            let page = |address: u64| (address.div_ceil(PAGE_SIZE)).min(last);
            let pages = Pages::new(page(end.min(new)), page(end.max(new)) + 1);
            // Only what grows puts something new there.
            let lock = self.maps.lock_heap(pages, new > end);
            let (start, now) = self.heap();
            if now == end {
                break (lock, start, end);
            }
        };
        if !self.may_end_at(start, new) {
            return end;
        }
        let old_page = end.next_multiple_of(PAGE_SIZE);
        let new_page = new.next_multiple_of(PAGE_SIZE);
        let commit = || self.maps.brk[1].store(new, Ordering::Relaxed);
        if new_page < old_page {
            let less = Pages::of_bytes(new_page..old_page);
            if self.maps.is_unmapped(less) {
                // The program has unmapped it already: Linux leaves the end alone.
                return end;
            }
            return match self.unmap_locked(lock, less, commit) {
                Ok(()) => new,
                Err(_) => end,
            };
        }
        if new_page > old_page {
            let more = Pages::of_bytes(old_page..new_page);
            if self.extend_heap(&mut lock.edit(), more).is_err() {
                return end;
            }
        }
        commit();
        drop(lock);
        if new_page > old_page && self.lock_future() != Locked::No {
            self.populate_ignoring(Pages::of_bytes(old_page..new_page));
        }
        new
    }

    /// The same where that can be done at once ([`crate::lock`]); else nothing has changed.
    fn move_brk_at_once(&self, new: u64) -> Option<u64> {
        let (start, end) = self.heap();
        let old_page = end.checked_next_multiple_of(PAGE_SIZE)?;
        let new_page = new.checked_next_multiple_of(PAGE_SIZE)?;
        if !self.may_end_at(start, new) {
            return None;
        }
        let is_unchanged = || self.heap() == (start, end);
        let commit = || self.maps.brk[1].store(new, Ordering::Relaxed);
        if new_page < old_page {
            let less = Pages::of_bytes(new_page..old_page);
            let is_done = self.maps.unmap_heap_at_once(less, is_unchanged, commit);
            return is_done.then_some(new);
        }
        if new_page == old_page || self.lock_future() != Locked::No {
            return None;
        }
        let more = Pages::of_bytes(old_page..new_page);
        self.maps.grow_heap_at_once(more, |edit| {
            let is_unchanged = is_unchanged() && self.lock_future() == Locked::No;
            is_unchanged.then(|| match self.extend_heap(edit, more) {
                Ok(()) => {
                    commit();
                    new
                }
                Err(_) => end,
            })
        })
    }

    /// Whether a heap from `start` on may end at `new`.
    fn may_end_at(&self, start: u64, new: u64) -> bool {
        if new < start || new > self.layout().end - PAGE_SIZE {
            return false;
        }
        let heap = (new - start).saturating_add(self.maps.brk[2].load(Ordering::Relaxed));
        heap <= self.maps.limits.data.get()
    }

    fn extend_heap(&self, edit: &mut Edit<'_, M>, more: Pages) -> Result<(), Errno> {
        let mut heap = HEAP;
        heap.birth = self.birth();
        heap.flags.locked = self.lock_future();
        let room = self.maps.room(edit);
        // A page stays free behind the heap, and a stack above keeps its guard gap.
        let free = edit.is_free(Pages::new(more.start, more.end + 1));
        let is_full = self.maps.has_too_many_mappings(edit);
        if !free || is_full || !room.may_lock_more(&heap, more.len()) {
            return Err(Errno::ENOMEM);
        }
        self.maps.check_new(edit, more, &heap)?;
        self.map_free(edit, more, heap)?;
        self.memory().count(Counter::Mmap);
        Ok(())
    }
}
