//! `brk`: the heap's end.
//!
//! As the raw system call: whatever cannot be done leaves the end where it is
//! and returns it.

use faultless_paging::{PAGE_SIZE, Pages, Protection};
use faultless_sync::atomic::Ordering;
use faultless_trace::{Counter, Kind};

use crate::errno::Errno;
use crate::machine::Machine;
use crate::mapping::{Attributes, Birth, Flags, Locked};
use crate::range::RangeLock;
use crate::space::AddressSpace;

/// Attributes of the heap: readable, writable.
const HEAP: Attributes = Attributes {
    protection: Protection {
        read: true,
        write: true,
        execute: false,
    },
    flags: Flags::NONE,
    backed: None,
    birth: Birth(0),
};

impl<M: Machine> AddressSpace<M> {
    /// Where the heap begins, empty. For `exec`.
    pub fn set_brk(&self, start: u64) {
        self.brk[0].store(start, Ordering::Relaxed);
        self.brk[1].store(start, Ordering::Relaxed);
    }

    /// Bytes of the program's data, which the heap's part of [`crate::Limits::data`] includes.
    /// For `exec`.
    pub fn set_data_size(&self, bytes: u64) {
        self.brk[2].store(bytes, Ordering::Relaxed);
    }

    /// Where the heap begins and ends.
    pub fn heap(&self) -> (u64, u64) {
        (
            self.brk[0].load(Ordering::Relaxed),
            self.brk[1].load(Ordering::Relaxed),
        )
    }

    /// Moves the heap's end to `new` if that can be done. The end now.
    pub fn brk(&self, new: u64) -> u64 {
        let start = self.trace_start();
        let end = self.move_brk(new);
        self.trace_end(Kind::Brk, start, end, new, 0);
        end
    }

    fn move_brk(&self, new: u64) -> u64 {
        let (lock, start, end) = loop {
            let (start, end) = self.heap();
            if new < start {
                return end;
            }
            // A page stays free behind the heap.
            let last = self.layout.end / PAGE_SIZE;
            let page = |address: u64| (address.div_ceil(PAGE_SIZE)).min(last);
            let pages = Pages::new(page(end.min(new)), page(end.max(new)) + 1);
            // Only what grows puts something new there.
            let lock = self.lock_heap(pages, new > end);
            let (start, now) = self.heap();
            if now == end {
                break (lock, start, end);
            }
        };
        if new < start || new > self.layout.end - PAGE_SIZE {
            return end;
        }
        let heap = (new - start).saturating_add(self.brk[2].load(Ordering::Relaxed));
        if heap > self.limits.data.get() {
            return end;
        }
        let old_page = end.next_multiple_of(PAGE_SIZE);
        let new_page = new.next_multiple_of(PAGE_SIZE);
        let commit = || self.brk[1].store(new, Ordering::Relaxed);
        if new_page < old_page {
            let less = Pages::of_bytes(new_page..old_page);
            if self.is_unmapped(less) {
                // The program has unmapped it already: Linux leaves the end alone.
                return end;
            }
            return match self.unmap_locked(lock, less, commit) {
                Ok(()) => new,
                Err(_) => end,
            };
        }
        if new_page > old_page && self.extend_heap(&lock, old_page, new_page).is_err() {
            return end;
        }
        commit();
        drop(lock);
        if new_page > old_page && self.lock_future() != Locked::No {
            self.populate_ignoring(Pages::of_bytes(old_page..new_page));
        }
        new
    }

    fn extend_heap(&self, lock: &RangeLock<'_, M>, from: u64, to: u64) -> Result<(), Errno> {
        let more = Pages::of_bytes(from..to);
        let mut edit = lock.edit();
        let mut heap = HEAP;
        heap.birth = self.birth();
        heap.flags.locked = self.lock_future();
        let room = self.room(&edit);
        // A page stays free behind the heap, and a stack above keeps its guard gap.
        let free = edit.is_free(Pages::new(more.start, more.end + 1));
        let is_full = self.has_too_many_mappings(&edit);
        if !free || is_full || !room.may_lock_more(&heap, more.len()) {
            return Err(Errno::ENOMEM);
        }
        self.check_new(&edit, more, &heap)?;
        self.map_free(&mut edit, more, heap)?;
        self.memory.count(Counter::Mmap);
        Ok(())
    }
}
