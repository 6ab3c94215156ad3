//! Discarding pages of ranges that stay mapped: `MADV_DONTNEED`, truncation.
//!
//! Entries are claimed, validated unless writers are kept out, flushed, and only then released as empty (rule
//! R2). No mapping has to change.
//!
//! *Writes*: the entries, the frames' descriptors, and per-CPU caches.
//!
//! *Models*: loom `rmap/truncate.rs`, `ops/remap.rs`, shuttle `ops/advice.rs`.

use faultless_frames::Flags;
use faultless_paging::{ENTRIES, Entry, Gather, Page, Pages, Value};
use faultless_sync::reclaim::Section;
use faultless_sync::{Backoff, cond_resched};

use crate::base::frame_list::FrameList;
use crate::base::machine::Machine;
use crate::table::Tables;
use crate::table::retry::Retry;
use crate::table::txn::PteTxn;

/// Pages discarded under one flush: claims held together stall faults on them.
pub(crate) const DISCARD_BATCH: u64 = 16 * ENTRIES as u64;

/// Whether a claimed entry, found at this page with this value, may be discarded.
type IsValid<'a> = dyn Fn(&Entry, u64, u64, &Section<'_>) -> bool + 'a;

impl<M: Machine> Tables<M> {
    /// Discards the pages of `pages` with a value that `is_meant` accepts. They stay mapped, and the caller keeps
    /// writers out.
    pub(crate) fn discard(&self, pages: Pages, is_meant: &dyn Fn(u64) -> bool) {
        let mut at = self.first_table(pages.start, pages.end);
        while at < pages.end {
            let batch = Pages::new(at, pages.end.min(at + DISCARD_BATCH));
            let stop = self.discard_batch(batch, is_meant, &|_, _, _, _| true);
            at = self.first_table(stop, pages.end);
            if at < pages.end {
                cond_resched(self.machine());
            }
        }
    }

    /// Discards pages from the start of `pages` with a value that `is_meant` accepts, while `is_valid` holds
    /// under each claim. Returns the page to continue from: the first that is not valid, or the end.
    pub(crate) fn discard_valid(
        &self,
        pages: Pages,
        is_meant: &dyn Fn(u64) -> bool,
        is_valid: &IsValid<'_>,
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

    /// Whether a marker is left in place of an entry's page.
    fn keeps_mark(&self, value: Value) -> bool {
        Self::FORMAT.reports_writes(value)
            && Self::FORMAT.has_page(value)
            && self
                .counted(value)
                .is_some_and(|page| page.flags().has(Flags::FILE))
    }

    /// Discards one batch of pages from the start of `pages`, as [`Tables::discard_valid`] does. Returns the
    /// page to continue from.
    fn discard_batch(
        &self,
        pages: Pages,
        is_meant: &dyn Fn(u64) -> bool,
        is_valid: &IsValid<'_>,
    ) -> u64 {
        let mut gather = Gather::new();
        let mut chain = FrameList::default();
        let txn = PteTxn::begin(self.machine());
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
                    // A guard outlasts a discard around it.
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
                } else {
                    let validate = || match is_valid(entry, page, value, &section) {
                        true => Ok(()),
                        false => Err(Retry::MappingChanged),
                    };
                    match txn.claim(entry, value, validate) {
                        Ok(claim) if self.keeps_mark(value) => {
                            // As on Linux: where stores to a page of an object are reported, they stay so.
                            self.flush_page(Page(page), value);
                            claim.publish(Self::FORMAT.marker());
                            let gone = self.give_up(value, &mut chain);
                            if let Some(kind) = gone {
                                self.rss.gone_one(self.machine().cpu(), kind);
                            }
                            return;
                        }
                        Ok(claim) if !Self::FORMAT.has_page(value) => {
                            claim.publish(0);
                            return self.drop_pageless(value);
                        }
                        Ok(claim) => {
                            claim.keep();
                            claimed += 1;
                            return self.gather(value, page, &mut gather);
                        }
                        // The entry has changed, or is claimed by another CPU: load it again.
                        Err(Retry::EntryClaimed) => {}
                        Err(_) => {
                            stop = page;
                            return;
                        }
                    }
                }
            }
        });
        self.flush(&mut gather);
        if claimed > 0 {
            self.release_kept(Pages::new(pages.start, stop), &mut chain);
        }
        drop(section);
        drop(txn);
        chain.free_all(self.machine());
        stop
    }
}
