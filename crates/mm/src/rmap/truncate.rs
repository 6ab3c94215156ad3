//! Truncation and holes: pages leave their slots, and then every address space (rule R6).
//!
//! A page's identity is its slot. The slot is cleared first. Then, after a full fence, every mapping of the
//! object is visited, claims are waited for, and entries that show one of the pages are zapped. A fault has
//! counted the page before it looks at the slot: either it finds the slot cleared and withdraws, or the page is
//! found counted here.
//!
//! The walk is repeated until no page is counted any more. An entry may be where the walk has already been,
//! beside an `mremap`. Or no mapping leads to it any more, because an `munmap` at work there waits for the
//! claim. Private copies are not counted. The walk does not find one that is already being zapped: that is a
//! pending unmap, and its flush is waited for ([`crate::lock::departing`]).
//!
//! The caller lets no write and no other truncation of the object run meanwhile, as an inode lock does. Faults
//! and mappings continue.
//!
//! *Models*: loom `rmap/{truncate,truncate_writers}.rs`, shuttle `rmap/truncate.rs`.

use core::ops::Range;

use faultless_paging::{Frame, PAGE_SIZE};
use faultless_sync::atomic::{Ordering, fence};
use faultless_sync::{Backoff, Mutant, cond_resched, mutant};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::object::radix::PageSlot;
use crate::object::{Lookup, MemoryObject, Pinned};

/// Pages between two checks for a pending reschedule.
const POLL_INTERVAL: u64 = 4096;

/// Frames, linked through their descriptors: any number, without memory.
#[derive(Default)]
struct FrameList {
    /// The first frame plus 1; 0 for none.
    head: u64,
}

impl<M: Machine> MemoryObject<M> {
    /// Sets the size. Pages behind it leave every address space, with the changes that programs have made in
    /// private copies of them. An access there is SIGBUS. What lies behind the size in the last page reads as
    /// zeroes. To set the present size again removes what a failed write has left behind it.
    ///
    /// # Errors
    /// `ENOMEM` or `EIO`: the last page was swapped out, and cannot come back. Nothing has changed then. Any error of
    /// reading the last page in from the pager: the size is set all the same.
    pub fn truncate(&self, size: u64) -> Result<(), Errno> {
        let used = size % PAGE_SIZE;
        let _last = match used {
            0 => None,
            _ => self.brought_back(size / PAGE_SIZE)?,
        };
        let before = self.cache().size.swap(size, Ordering::AcqRel);
        // Partner: the fence between a page's addition and its check of the size.
        fence(Ordering::SeqCst);
        if size > before {
            return Ok(());
        }
        self.take_away(size.div_ceil(PAGE_SIZE)..u64::MAX, true);
        match used {
            0 => Ok(()),
            _ => self.zero(size / PAGE_SIZE, used..PAGE_SIZE),
        }
    }

    /// Punches a hole in a range of bytes, which reads as zeroes. Private copies stay.
    ///
    /// # Errors
    /// As [`MemoryObject::truncate`], about pages that lie partly in the hole.
    pub fn punch(&self, bytes: Range<u64>) -> Result<(), Errno> {
        if self.is_pooled() {
            return self.punch_pooled(bytes);
        }
        let size = self.size().checked_next_multiple_of(PAGE_SIZE);
        let end = bytes.end.min(size.unwrap_or(u64::MAX));
        if bytes.start >= end {
            return Ok(());
        }
        let (first, last) = (bytes.start.div_ceil(PAGE_SIZE), end / PAGE_SIZE);
        let (head, tail) = (bytes.start % PAGE_SIZE, end % PAGE_SIZE);
        let end_of = |within, byte: u64| match within {
            0 => Ok(None),
            _ => self.brought_back(byte / PAGE_SIZE),
        };
        let _ends = (end_of(head, bytes.start)?, end_of(tail, end)?);
        if first > last {
            return self.zero(last, head..tail);
        }
        if first < last {
            self.take_away(first..last, false);
        }
        if head != 0 {
            self.zero(first - 1, head..PAGE_SIZE)?;
        }
        if tail != 0 {
            self.zero(last, 0..tail)?;
        }
        Ok(())
    }

    /// The same for an object of the pool: whole huge pages leave, and the rest is zeroed.
    fn punch_pooled(&self, bytes: Range<u64>) -> Result<(), Errno> {
        let size = Memory::<M>::huge_page_size();
        let end = bytes.end.min(self.size());
        let (first, last) = (bytes.start.next_multiple_of(size), end / size * size);
        if first >= last {
            return self.zero_bytes(bytes.start..end);
        }
        // Private copies, too, as on Linux.
        self.take_away(first / PAGE_SIZE..last / PAGE_SIZE, true);
        self.zero_bytes(bytes.start..first)?;
        self.zero_bytes(last..end)
    }

    /// Zeroes the pages of a range, or parts of them, as far as the object has them.
    fn zero_bytes(&self, bytes: Range<u64>) -> Result<(), Errno> {
        let mut at = bytes.start;
        while at < bytes.end {
            let stop = ((at | (PAGE_SIZE - 1)) + 1).min(bytes.end);
            let within = at % PAGE_SIZE;
            self.zero(at / PAGE_SIZE, within..within + (stop - at))?;
            at = stop;
        }
        Ok(())
    }

    /// Brings a page back that was swapped out, so that zeroing a part of it cannot fail later. Pinned, it stays.
    fn brought_back(&self, index: u64) -> Result<Option<Pinned<'_, M>>, Errno> {
        match self.cache().find(index) {
            Lookup::Swapped => self.present(index),
            _ => Ok(None),
        }
    }

    /// Zeroes a part of a page, if the object has it.
    fn zero(&self, index: u64, bytes: Range<u64>) -> Result<(), Errno> {
        if let Some(page) = self.page(index)? {
            let start = self.memory.machine().pointer(page.frame());
            let length = (bytes.end - bytes.start) as usize;
            // SAFETY: inside the frame, which is pinned. Programs may write it meanwhile, as beside any write
            // to a file: it is memory without a type.
            unsafe {
                start
                    .as_ptr()
                    .add(bytes.start as usize)
                    .write_bytes(0, length);
            }
        }
        Ok(())
    }

    /// Removes pages from the object and from every address space.
    fn take_away(&self, pages: Range<u64>, copies: bool) {
        let mut chain = self.take_out(pages.clone());
        // Rule R6. Partner: the barrier of a claim, which precedes the look at the slot.
        if !mutant(Mutant::TruncateWithoutFence) {
            fence(Ordering::SeqCst);
        }
        let mut backoff = Backoff::new();
        loop {
            self.unmap(pages.clone(), copies);
            chain = self.let_go_unmapped(chain);
            if chain.head == 0 {
                break;
            }
            // A zap of one of them may have yielded, on this very CPU.
            backoff.rest(self.memory.machine());
        }
        if copies {
            self.memory.await_departing(self.cache());
        }
    }

    /// Empties the slots of `pages`. Returns the frames that were in them.
    fn take_out(&self, pages: Range<u64>) -> FrameList {
        let mut chain = FrameList::default();
        let mut seen = 0u64;
        self.cache().pages.for_each(pages, &mut |index, slot| {
            seen += 1;
            if seen.is_multiple_of(POLL_INTERVAL) {
                cond_resched(self.memory.machine());
            }
            let mut backoff = Backoff::new();
            loop {
                let content = slot.load();
                if content == PageSlot::Empty {
                    break;
                }
                if let PageSlot::Moving(_) = content {
                    // A move waits for nothing.
                    backoff.turn(self.memory.machine());
                    continue;
                }
                if slot.replace(content, PageSlot::Empty).is_ok() {
                    match content {
                        PageSlot::Page(frame) => {
                            self.cache().uncharge(index);
                            self.memory.ends_whole(self.cache(), frame);
                            self.descriptor(frame).set_link(chain.head);
                            chain.head = frame.0 + 1;
                        }
                        PageSlot::Swapped(place) => {
                            self.cache().uncharge(index);
                            self.memory.drop_slot_use(&place.entry());
                        }
                        PageSlot::Reserved => self.memory.end_reservations(1),
                        // The thread that brings it back frees the frame and the slot.
                        PageSlot::Returning(_) => self.cache().uncharge(index),
                        // The thread that fills it does all of that.
                        _ => {}
                    }
                    break;
                }
            }
        });
        chain
    }

    /// Releases those frames that nothing maps any more. Returns the others.
    fn let_go_unmapped(&self, chain: FrameList) -> FrameList {
        let mut left = FrameList::default();
        let mut next = chain.head;
        let mut seen = 0u64;
        while next != 0 {
            seen += 1;
            if seen.is_multiple_of(POLL_INTERVAL) {
                cond_resched(self.memory.machine());
            }
            let frame = Frame(next - 1);
            let descriptor = self.descriptor(frame);
            next = descriptor.link();
            if descriptor.map_count() != 0 {
                descriptor.set_link(left.head);
                left.head = frame.0 + 1;
            } else if descriptor.let_go() {
                self.free(frame);
            }
        }
        left
    }
}
