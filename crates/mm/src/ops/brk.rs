//! `brk`: the heap's end.
//!
//! As the raw system call: whatever cannot be done leaves the end where it is
//! and returns it.

use faultless_paging::{PAGE_SIZE, Pages, Protection};
use faultless_sync::atomic::Ordering;
use faultless_trace::{Counter, Kind};

use crate::errno::Errno;
use crate::machine::Machine;
use crate::mapping::{Attributes, Flags};
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
};

impl<M: Machine> AddressSpace<M> {
    /// Where the heap begins, empty. For `exec`.
    pub fn set_brk(&self, start: u64) {
        self.brk[0].store(start, Ordering::Relaxed);
        self.brk[1].store(start, Ordering::Relaxed);
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
        let lock = self.lock_range(Pages::of_bytes(0..self.layout.end));
        let (start, end) = self.heap();
        if new < start || new > self.layout.end - PAGE_SIZE {
            return end;
        }
        let old_page = end.next_multiple_of(PAGE_SIZE);
        let new_page = new.next_multiple_of(PAGE_SIZE);
        let commit = || self.brk[1].store(new, Ordering::Relaxed);
        if new_page < old_page {
            let less = Pages::of_bytes(new_page..old_page);
            if self.run_in(less.start, less.end).is_none() {
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
        new
    }

    fn extend_heap(&self, lock: &RangeLock<'_, M>, from: u64, to: u64) -> Result<(), Errno> {
        let more = Pages::of_bytes(from..to);
        let mut edit = lock.edit();
        // A page stays free behind the heap, and a stack above keeps its guard gap.
        let free = edit.is_free(Pages::new(more.start, more.end + 1));
        if more.len() > self.layout.commit_pages || !free {
            return Err(Errno::ENOMEM);
        }
        self.map_free(&mut edit, more, HEAP)?;
        self.memory.count(Counter::Mmap);
        Ok(())
    }
}
