//! Taking pages away from what stays mapped: DONTNEED, truncation.
//!
//! Entries are claimed, validated where nothing else keeps writers out, flushed, and only then
//! released as empty (rule R2), so that no mapping has to change.
//!
//! Written lines: the entries, the frames' descriptors, and per-CPU caches.

use faultless_frames::Flags;
use faultless_paging::{ENTRIES, Gather, Pages};
use faultless_sync::{Backoff, cond_resched};

use crate::base::machine::Machine;
use crate::object::ObjectInner;
use crate::space::AddressSpace;
use crate::table::zap::FrameList;

/// Pages discarded under one flush: claims held together stall faults on them.
pub(crate) const DISCARD_BATCH: u64 = 16 * ENTRIES as u64;

impl<M: Machine> AddressSpace<M> {
    /// Discards all pages of `pages`, which stay mapped: the caller keeps writers out.
    pub(crate) fn discard(&self, pages: Pages) {
        let mut at = self.first_table(pages.start, pages.end);
        while at < pages.end {
            let batch = Pages::new(at, pages.end.min(at + DISCARD_BATCH));
            let stop = self.discard_batch(batch, &|_| true, &|_, _| true);
            at = self.first_table(stop, pages.end);
            if at < pages.end {
                cond_resched(self.machine());
            }
        }
    }

    /// Discards from the start of `pages` what is meant, as long as each is valid when its entry is
    /// claimed. The page to go on from: one that was not, or the end.
    pub(crate) fn discard_valid(
        &self,
        pages: Pages,
        is_meant: &dyn Fn(u64) -> bool,
        is_valid: &dyn Fn(u64, u64) -> bool,
    ) -> u64 {
        let mut at = self.first_table(pages.start, pages.end);
        while at < pages.end {
            let batch = Pages::new(at, pages.end.min(at + DISCARD_BATCH));
            let stop = self.discard_batch(batch, is_meant, is_valid);
            if stop == at {
                return at;
            }
            at = self.first_table(stop, pages.end);
            if at < pages.end {
                cond_resched(self.machine());
            }
        }
        at
    }

    /// Discards those of `pages` that are pages of a store, and with `copies` private
    /// ones too, where they belong to a live mapping of the store after their claim. The
    /// page to go on from: where they do not, or the end.
    pub(crate) fn discard_file(
        &self,
        pages: Pages,
        cache: &ObjectInner,
        first: u64,
        copies: bool,
    ) -> u64 {
        let is_meant = |value: u64| {
            copies
                || self
                    .counted(value)
                    .is_some_and(|descriptor| descriptor.flags().has(Flags::FILE))
        };
        // Decided again once the claim keeps the frame what it is.
        let is_valid = |page: u64, value| {
            is_meant(value) && self.is_file_page(page, cache, first) && !self.is_frozen(page)
        };
        self.discard_valid(pages, &is_meant, &is_valid)
    }

    /// Discards pages from the start of `pages` whose entries are meant, and valid when
    /// they are claimed; the page to go on from.
    fn discard_batch(
        &self,
        pages: Pages,
        is_meant: &dyn Fn(u64) -> bool,
        is_valid: &dyn Fn(u64, u64) -> bool,
    ) -> u64 {
        let mut gather = Gather::new();
        let mut chain = FrameList::default();
        let cpu = self.machine().cpu();
        let interrupts = self.machine().interrupts_off();
        let section = self.memory.enter();
        let mut claimed = 0u64;
        let mut stop = pages.end;
        self.for_each_entry(pages, &mut |entry, page| {
            if page >= stop {
                return;
            }
            let mut backoff = Backoff::new();
            loop {
                let value = entry.load();
                if value == 0 || Self::FORMAT.is_guard(value) {
                    // A guard outlasts what is discarded around it.
                    return;
                }
                if Self::FORMAT.is_claimed(value) {
                    if claimed > 0 {
                        // Never wait for a claim while holding some (rule R9).
                        stop = page;
                        return;
                    }
                    backoff.turn(self.machine());
                } else if !is_meant(value) {
                    return;
                } else if let Ok(claim) = entry.claim::<M::Format>(value, cpu) {
                    if !is_valid(page, value) {
                        // Dropped, the claim is withdrawn.
                        stop = page;
                        return;
                    }
                    claim.keep();
                    claimed += 1;
                    self.gather(value, page, &mut gather);
                    return;
                }
            }
        });
        self.flush(&mut gather);
        if claimed > 0 {
            self.release_kept(Pages::new(pages.start, stop), &mut chain);
        }
        drop(section);
        self.machine().interrupts_restore(interrupts);
        chain.free_all(self.machine());
        stop
    }
}
