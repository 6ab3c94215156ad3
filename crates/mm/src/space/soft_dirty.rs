//! Watching for stores: soft-dirty bits, as Linux has them for who saves or moves a running
//! program.
//!
//! A page counts as written if its entry says so, or if its mapping is newer than the last
//! clearing: what is mapped anew has lost what was there before. Every store that is let
//! through leaves the bit set, because an entry that lets stores through has it
//! ([`faultless_paging::Format`]): to clear it is to lower the entry, and the next store is a
//! fault like any other. No second path, and nothing is lost to whoever comes beside:
//!
//! * A fault that was under way publishes its entry with the bit, or claims it after us.
//! * A read that found the mapping new lets stores through, with the bit, though nobody
//!   stores: a page too much, and only of shared memory beside a clearing.
//! * A page that somebody has pinned goes on counting as written: stores through the pin are no
//!   faults. So does a device's page, which Linux leaves alone.
//! * Stores by what TLBs still hold come before the clearing's end: it flushes first, and
//!   keeps its claims until then (rule R2). Reads go on meanwhile.
//!
//! Mappings are made while the lock is held that a clearing holds for reading. What was made
//! before is old from the moment the clearing is counted, without being touched.
//!
//! Written lines: the entries that are soft-dirty; `AddressSpace::soft_dirty_epoch`.

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

/// Which pages of a batch this CPU has kept claims of. They do not say whose they are.
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
    /// Lets every page count as not written. When it returns, every store that begins later is
    /// noticed (Linux: 4 in `/proc/PID/clear_refs`).
    pub fn clear_soft_dirty(&self) {
        let all = Pages::of_bytes(0..self.layout().end);
        let _hold = self.maps.hold_everything();
        // No order: who makes mappings has the lock, and a fault that comes with the old
        // number sets the bit.
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

    /// Lets pages from the start of `pages` on count as not written; the page to go on from.
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
                        // Never wait for a claim while holding some (rule R9).
                        stop = page;
                        return;
                    }
                    backoff.turn(self.machine());
                } else if !format.is_soft_dirty(value) || self.is_kept_written(value) {
                    return;
                } else if !format.permits(value, Access::Write) {
                    // Nothing is lowered that hardware knows of.
                    if entry.replace(value, format.watched(value)).is_ok() {
                        return;
                    }
                } else {
                    // Pinned meanwhile, it goes on counting as written.
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
                        // Changed, or claimed by another: look again.
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

    /// Whether the page of an entry goes on counting as written: somebody has pinned it, or it is a
    /// device's. Pins are counted under claims, so that under a claim the answer stays.
    fn is_kept_written(&self, value: u64) -> bool {
        match self.tables().counted(value) {
            Some(descriptor) => descriptor.pins() != 0,
            None => Self::FORMAT.is_device(value),
        }
    }

    /// Whether what is mapped at an address, or a part of the mapping that it belongs to, was
    /// mapped since soft-dirty bits were cleared: all of its pages count as written.
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

    /// When a mapping is made that is made now. With a range, or by whoever alone has
    /// the space.
    pub(crate) fn birth(&self) -> SoftDirtyEpoch {
        SoftDirtyEpoch(self.soft_dirty_epoch.load(Ordering::Relaxed))
    }

    /// Whether a mapping was made since soft-dirty bits were cleared, so that all of its
    /// pages count as written.
    pub(crate) fn is_new(&self, attributes: &Attributes) -> bool {
        attributes.birth.0 >= self.soft_dirty_epoch.load(Ordering::Relaxed)
    }

    /// Whether one mapping can be what both are.
    pub(crate) fn are_one(&self, one: &Attributes, other: &Attributes) -> bool {
        one == other && self.is_new(one) == self.is_new(other)
    }

    /// In a child that nobody else knows: its mappings are as old as its parent's.
    pub(crate) fn begin_clearings(&self, parent: &Self) {
        let soft_dirty_epoch = parent.soft_dirty_epoch.load(Ordering::Relaxed);
        self.soft_dirty_epoch
            .store(soft_dirty_epoch, Ordering::Relaxed);
    }

    /// Whether the mapping that a run is a part of, as a program sees it, has a new part: then
    /// all of it counts as new, as Linux has it where a mapping is merged. Inside a section.
    pub(crate) fn is_line_new(&self, run: &Run, attributes: &Attributes) -> bool {
        // Answers of parts that belong to it; `None`: that is another mapping.
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
