//! `brk`: moves the heap's end.
//!
//! As in the raw system call, a request that cannot be met leaves the end where it is, and returns it.

use faultless_paging::{PAGE_SIZE, Pages, Protection};
use faultless_sync::atomic::Ordering;
use faultless_trace::{Counter, Kind};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::userfault::{Handler, numbers as userfault};
use crate::lock::Edit;
use crate::lock::change::{AfterEdit, Found};
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
    handler: Handler::NONE,
    birth: SoftDirtyEpoch(0),
};

impl<M: Machine> AddressSpace<M> {
    /// Sets where the heap begins, empty. For `exec`.
    pub fn set_brk(&self, start: u64) {
        self.maps.brk[0].store(start, Ordering::Relaxed);
        self.maps.brk[1].store(start, Ordering::Relaxed);
    }

    /// Sets the size of the program's data in bytes. [`crate::Limits::data`] limits the sum of it and the heap.
    /// For `exec`.
    pub fn set_data_size(&self, bytes: u64) {
        self.maps.brk[2].store(bytes, Ordering::Relaxed);
    }

    /// Moves the heap's end to `new` if possible. Returns the end.
    pub fn brk(&self, new: u64) -> u64 {
        let start = self.trace_start();
        let end = self.move_brk(new);
        self.trace_end(Kind::Brk, start, end, new, 0);
        end
    }

    fn move_brk(&self, new: u64) -> u64 {
        loop {
            let (start, end) = self.heap();
            if !self.may_end_at(start, new) {
                return end;
            }
            let last = self.layout().end / PAGE_SIZE;
            let page = |address: u64| (address.div_ceil(PAGE_SIZE)).min(last);
            let pages = Pages::new(page(end.min(new)), page(end.max(new)));
            // Only growth maps new pages.
            let grows = new > end;
            let is_unchanged = || self.heap() == (start, end);
            let commit = || self.maps.brk[1].store(new, Ordering::Relaxed);
            let moved = match grows || pages.is_empty() {
                true => self.grow_heap(pages, grows, is_unchanged, commit),
                false => {
                    let change = self.begin_change(pages, userfault::EVENT_UNMAP);
                    let moved = self.shrink_heap(pages, is_unchanged, commit);
                    self.report_unmap(change, pages, moved == Some(Ok(true)));
                    moved
                }
            };
            match moved {
                Some(Ok(true)) => {
                    if grows && self.lock_future() != Locked::No {
                        self.populate_ignoring(pages);
                    }
                    return new;
                }
                Some(_) => return end,
                None => {}
            }
        }
    }

    /// Maps `pages`, by which the heap grows. Returns `None` unless the heap `is_unchanged` since the caller
    /// looked.
    #[inline(always)]
    fn grow_heap(
        &self,
        pages: Pages,
        grows: bool,
        is_unchanged: impl Fn() -> bool,
        commit: impl Fn(),
    ) -> Option<Result<bool, Errno>> {
        let grow = |edit: &mut Edit<'_, M>| {
            is_unchanged().then(|| {
                if !pages.is_empty() {
                    self.extend_heap(edit, pages)?;
                }
                commit();
                Ok(true)
            })
        };
        if let Some(request) = self.maps.may_move_heap_briefly(pages, grows) {
            let mut edit = request.edit();
            if let Some(_range) = request.enter_heap(&edit, pages) {
                return grow(&mut edit);
            }
        }
        let lock = self.maps.lock_heap(pages, grows);
        let mut edit = lock.edit();
        grow(&mut edit)
    }

    /// Unmaps `pages`, by which the heap shrinks, likewise. Returns whether it has shrunk: if the program has
    /// unmapped them already, the end stays, as on Linux.
    #[inline(always)]
    fn shrink_heap(
        &self,
        pages: Pages,
        is_unchanged: impl Fn() -> bool,
        commit: impl Fn(),
    ) -> Option<Result<bool, Errno>> {
        if let Some(request) = self.maps.may_move_heap_briefly(pages, false) {
            let mut after = AfterEdit::nothing(&self.maps);
            let result = {
                let mut edit = request.edit();
                request.enter_heap(&edit, pages).map(|range| {
                    is_unchanged().then(|| {
                        let found = Found::by(&edit, pages, false);
                        self.unmap_found(&mut edit, range, &found, &commit, &mut after)
                    })
                })
            };
            if let Some(result) = result {
                after.finish();
                return result;
            }
        }
        self.shrink_heap_locked(pages, &is_unchanged, &commit)
    }

    #[inline(never)]
    fn shrink_heap_locked(
        &self,
        pages: Pages,
        is_unchanged: &dyn Fn() -> bool,
        commit: &dyn Fn(),
    ) -> Option<Result<bool, Errno>> {
        let lock = self.maps.lock_heap(pages, false);
        if !is_unchanged() {
            return None;
        }
        if let Err(error) = self.check_seals(pages) {
            return Some(Err(error));
        }
        lock.lock_out_readers(pages);
        let mut after = AfterEdit::nothing(&self.maps);
        let result = {
            let mut edit = lock.edit();
            let found = Found::by(&edit, pages, false);
            self.unmap_found(&mut edit, lock, &found, commit, &mut after)
        };
        after.finish();
        Some(result)
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
