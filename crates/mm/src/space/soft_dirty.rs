//! Soft-dirty bits: write tracking for programs that checkpoint or migrate a running program, as on Linux.
//!
//! A page counts as written if its entry says so, or if its mapping is newer than the last clearing: a new
//! mapping has lost the former content. An entry that lets stores through has the bit
//! ([`faultless_paging::Format`]), so every store leaves it set. Clearing the bit write-protects the entry,
//! and the next store takes an ordinary fault. There is no second path, and concurrent operations lose no
//! store:
//!
//! * A fault in progress publishes its entry with the bit, or claims the entry after the clearing.
//! * A read that found the mapping new lets stores through, with the bit set although nothing is stored. That
//!   is one page too many. It happens for shared memory beside a clearing, and for swapped pages of new mappings.
//! * A clearing keeps the bit of a pinned page, because stores through the pin do not fault. It also keeps
//!   the bit of a device's page, which Linux leaves alone.
//! * Stores through stale TLB entries precede the end of the clearing. It flushes first, and keeps its claims
//!   until then (rule R2). Reads go on meanwhile.
//!
//! A clearing holds for reading the lock under which mappings are made. A mapping made before is old from the
//! moment the clearing is counted, without being touched.
//!
//! *Writes*: the entries that are soft-dirty; `AddressSpace::soft_dirty_epoch`.
//!
//! *Models*: loom `space/soft_dirty.rs`, shuttle `space/soft_dirty.rs`.

use faultless_paging::{Access, ENTRIES, Gather, PAGE_SIZE, Pages};
use faultless_sync::atomic::Ordering;
use faultless_sync::{Backoff, Mutant, mutant};

use crate::base::machine::Machine;
use crate::space::AddressSpace;
use crate::table::retry::Retry;
use crate::table::txn::PteTxn;
use crate::tree::Run;
use crate::tree::mapping::{Attributes, SoftDirtyEpoch};
use crate::tune::SOFT_DIRTY_BATCH;

/// The pages of a batch of which this CPU has kept claims. A present claim does not name its CPU.
struct Kept {
    first: u64,
    pages: [u64; SOFT_DIRTY_BATCH / 64],
    any: bool,
}

impl Kept {
    fn new(first: u64) -> Self {
        Self {
            first,
            pages: [0; SOFT_DIRTY_BATCH / 64],
            any: false,
        }
    }

    fn place(&self, page: u64) -> (usize, u64) {
        let at = page - self.first;
        ((at / 64) as usize % (SOFT_DIRTY_BATCH / 64), 1 << (at % 64))
    }

    fn add(&mut self, page: u64) {
        let (word, bit) = self.place(page);
        self.pages[word] |= bit;
        self.any = true;
    }

    fn has(&self, page: u64) -> bool {
        let (word, bit) = self.place(page);
        self.pages[word] & bit != 0
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Marks every page as not written. Every store that begins after the return is noticed (Linux: 4 in
    /// `/proc/PID/clear_refs`).
    pub fn clear_soft_dirty(&self) {
        let all = Pages::of_bytes(0..self.layout().end);
        let _hold = self.maps.hold_everything();
        // Relaxed: a writer that makes mappings holds the lock, and a fault with the old number sets the bit.
        self.soft_dirty_epoch.fetch_add(1, Ordering::Relaxed);
        let mut at = self.tables().first_table(all.start, all.end);
        while at < all.end {
            // Batches end where tables end.
            let end = ((at + SOFT_DIRTY_BATCH as u64) & !(ENTRIES as u64 - 1)).min(all.end);
            let stop = self.watch_batch(Pages::new(at, end));
            self.machine().poll();
            at = self.tables().first_table(stop, all.end);
        }
    }

    /// Marks pages from the start of `pages` on as not written. Returns the page to go on from.
    fn watch_batch(&self, pages: Pages) -> u64 {
        let format = Self::FORMAT;
        let mut gather = Gather::new();
        let mut kept = Kept::new(pages.start);
        let mut stop = pages.end;
        let txn = PteTxn::begin(self.machine());
        let section = self.memory().enter();
        self.tables().for_each_entry(pages, &mut |entry, page| {
            if page >= stop {
                return;
            }
            let mut backoff = Backoff::new();
            loop {
                let value = entry.load();
                if format.is_claimed(value) {
                    if kept.any {
                        // Never wait for a claim while holding one (rule R9).
                        stop = page;
                        return;
                    }
                    backoff.turn(self.machine());
                } else if !format.is_soft_dirty(value) {
                    return;
                } else if self.tables().swap_of(value).is_some() {
                    if entry.replace(value, value & !format.soft_dirty).is_ok() {
                        return;
                    }
                } else if self.is_kept_written(value) {
                    return;
                } else if !format.permits(value, Access::Write) {
                    // Clearing the bit here lowers nothing that hardware permits.
                    if entry.replace(value, format.watched(value)).is_ok() {
                        return;
                    }
                } else {
                    // If pinned meanwhile, the page goes on counting as written.
                    let validate = || match self.is_kept_written(value) {
                        true => Err(Retry::PageChanged),
                        false => Ok(()),
                    };
                    match txn.claim_present(entry, value, validate) {
                        Ok(claim) => {
                            let before = claim.keep(|value| format.watched(value));
                            kept.add(page);
                            return self.tables().gather(before, page, &mut gather);
                        }
                        // Changed, or claimed by another CPU: look again.
                        Err(Retry::EntryClaimed) => {}
                        Err(_) => return,
                    }
                }
            }
        });
        if !mutant(Mutant::WatchedWithoutFlush) {
            self.tables().flush(&mut gather);
        }
        if kept.any {
            self.tables()
                .for_each_entry(Pages::new(pages.start, stop), &mut |entry, page| {
                    if kept.has(page) {
                        entry.release_kept::<M::Format>();
                    }
                });
        }
        drop(section);
        drop(txn);
        stop
    }

    /// Whether a clearing keeps the bit of an entry: its page is pinned, or a device's. Pins are counted
    /// under claims, so the answer is stable under a claim.
    fn is_kept_written(&self, value: u64) -> bool {
        match self.tables().counted(value) {
            Some(descriptor) => descriptor.pins() != 0,
            None => Self::FORMAT.is_device(value),
        }
    }

    /// Whether the mapping at an address, or a part that belongs to it, was made since soft-dirty bits were
    /// cleared. Then all of its pages count as written.
    pub fn is_newly_mapped(&self, address: u64) -> bool {
        let page = address / PAGE_SIZE;
        let _section = self.memory().enter();
        let Some(run) = self.tree().next_until(page, page.saturating_add(1)) else {
            return false;
        };
        // SAFETY: read in this section.
        let mapping = unsafe { run.word.mapping() };
        mapping.is_some_and(|mapping| self.is_line_new(&run, mapping.attributes()))
    }

    /// Returns the epoch for a mapping that is made now. Called with a range, or while the caller alone uses
    /// the space.
    pub(crate) fn birth(&self) -> SoftDirtyEpoch {
        SoftDirtyEpoch(self.soft_dirty_epoch.load(Ordering::Relaxed))
    }

    /// Whether a mapping was made since soft-dirty bits were cleared. Then all of its pages count as written.
    pub(crate) fn is_new(&self, attributes: &Attributes) -> bool {
        attributes.birth.0 >= self.soft_dirty_epoch.load(Ordering::Relaxed)
    }

    /// Whether the two can be one mapping.
    pub(crate) fn are_one(&self, one: &Attributes, other: &Attributes) -> bool {
        one == other && self.is_new(one) == self.is_new(other)
    }

    /// Makes the mappings of a child as old as its parent's. Called before anything else knows the child.
    pub(crate) fn begin_clearings(&self, parent: &Self) {
        let soft_dirty_epoch = parent.soft_dirty_epoch.load(Ordering::Relaxed);
        self.soft_dirty_epoch
            .store(soft_dirty_epoch, Ordering::Relaxed);
    }

    /// Whether the mapping of which a run is a part, as a program sees it, has a new part. Then all of it
    /// counts as new, like a merged mapping on Linux. Called inside a section.
    pub(crate) fn is_line_new(&self, run: &Run, attributes: &Attributes) -> bool {
        // Returns the answer for a part that belongs to it; `None`: another mapping.
        let is_new = |page: u64| {
            let slot = self.tree().slot_of(page)?;
            // SAFETY: inside the caller's section.
            let of = unsafe { slot.word.mapping() }?.attributes();
            (of == attributes).then(|| (slot.pages, self.is_new(of)))
        };
        // The heap is a mapping of its own.
        let cut = self.heap().0 / PAGE_SIZE;
        if self.is_new(attributes) {
            return true;
        }
        let mut start = run.pages.start;
        while start > 0 && start != cut {
            match is_new(start - 1) {
                Some((_, true)) => return true,
                Some((pages, false)) => start = pages.start.max(cut * u64::from(start > cut)),
                None => break,
            }
        }
        let mut end = run.pages.end;
        while end < crate::tree::PAGES && end != cut {
            match is_new(end) {
                Some((_, true)) => return true,
                Some((pages, false)) if end < cut && cut < pages.end => break,
                Some((pages, false)) => end = pages.end,
                None => break,
            }
        }
        false
    }
}
