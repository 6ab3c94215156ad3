//! Discarding pages of ranges that stay mapped: `MADV_DONTNEED`, truncation.
//!
//! Entries are claimed, validated unless writers are kept out, flushed, and only then released as empty (rule
//! R2). No mapping has to change.
//!
//! *Writes*: the entries, the frames' descriptors, and per-CPU caches.
//!
//! *Models*: loom `rmap/truncate.rs`, `ops/remap.rs`, shuttle `ops/advice.rs`.

use faultless_frames::Flags;
use faultless_paging::{ENTRIES, Entry, Gather, Page, Pages, Value, free};
use faultless_sync::reclaim::Section;
use faultless_sync::{Backoff, cond_resched};

use crate::base::frame_list::FrameList;
use crate::base::machine::Machine;
use crate::table::Tables;
use crate::table::huge::{HUGE_LEVEL, HugeGone};
use crate::table::pages::Span;
use crate::table::retry::Retry;
use crate::table::rss::RssDelta;
use crate::table::txn::PteTxn;

/// Pages discarded under one flush: claims held together stall faults on them.
pub(crate) const DISCARD_BATCH: u64 = 16 * ENTRIES as u64;

/// Whether a claimed entry, found at this page with this value, may be discarded.
type IsValid<'a> = dyn Fn(&Entry, u64, u64, &Section<'_>) -> bool + 'a;

/// Whether the claimed entry of a huge page with these pages may be.
type IsHugeValid<'a> = dyn Fn(Pages) -> bool + 'a;

impl<M: Machine> Tables<M> {
    /// Discards the pages of `pages` with a value that `is_meant` accepts. They stay mapped, and the caller keeps
    /// writers out.
    pub(crate) fn discard(&self, pages: Pages, is_meant: &dyn Fn(u64) -> bool) {
        let mut at = self.first_table(pages.start, pages.end);
        while at < pages.end {
            let batch = Pages::new(at, pages.end.min(at + DISCARD_BATCH));
            let stop = self.discard_batch(batch, is_meant, (&|_, _, _, _| true, &|_| true));
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
        is_valid: (&IsValid<'_>, &IsHugeValid<'_>),
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
        (is_valid, is_huge_valid): (&IsValid<'_>, &IsHugeValid<'_>),
    ) -> u64 {
        let mut gather = Gather::new();
        let mut chain = FrameList::default();
        let txn = PteTxn::begin(self.machine());
        let section = self.memory.enter();
        let mut claimed = 0u64;
        let mut stop = pages.end;
        let (mut huge, mut of_huge) = (0u64, Gather::new());
        let mut take = |entry: &Entry, page: u64, claimed: &mut u64, stop: &mut u64| {
            if page >= *stop {
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
                    if *claimed > 0 {
                        // Never wait for a claim while holding some (rule R9).
                        *stop = page;
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
                            *claimed += 1;
                            return self.gather(value, page, &mut gather);
                        }
                        // The entry has changed, or is claimed by another CPU: load it again.
                        Err(Retry::EntryClaimed) => {}
                        Err(_) => {
                            *stop = page;
                            return;
                        }
                    }
                }
            }
        };
        self.visit_spans(pages, &mut |span| match span {
            Span::Table(table, part) => {
                self.for_each_in(table, part, &mut |entry, page| {
                    take(entry, page, &mut claimed, &mut stop);
                });
                true
            }
            Span::Huge(_, _, part) if part.start >= stop => true,
            Span::Huge(_, _, part) if part.len() < ENTRIES as u64 => false,
            // All its pages are of one kind.
            Span::Huge(_, value, part) if !is_meant(self.part_of(value, part.start)) => true,
            Span::Huge(entry, value, part) => {
                let is_valid = || {
                    // Decided again once the claim keeps the frames from being reused.
                    is_huge_valid(part) && is_meant(self.part_of(value, part.start))
                };
                match txn.claim(entry, value, || match is_valid() {
                    true => Ok(()),
                    false => Err(Retry::MappingChanged),
                }) {
                    Ok(claim) => {
                        claim.keep();
                        claimed += 1;
                        huge += 1;
                        self.gather_huge(value, part.start, &mut of_huge);
                    }
                    // The entry has changed: it is looked at again.
                    Err(Retry::EntryClaimed) => return false,
                    Err(_) => stop = part.start,
                }
                true
            }
        });
        gather.join(of_huge);
        self.flush(&mut gather);
        let gone = match huge {
            0 => HugeGone::default(),
            _ => self.release_kept_huge(Pages::new(pages.start, stop)),
        };
        if claimed > 0 {
            self.release_kept(Pages::new(pages.start, stop), &mut chain);
        }
        drop(section);
        drop(txn);
        chain.free_all(self.machine());
        gone.free(self);
        stop
    }

    /// After the flush: empties the entries of huge pages in which this CPU has kept a claim, and returns what is to be freed.
    fn release_kept_huge(&self, pages: Pages) -> HugeGone {
        let cpu = self.machine().cpu();
        let mut gone = HugeGone::default();
        let mut release = |entry: &Entry, _| {
            let value = entry.load();
            if value != 0 && value == Self::FORMAT.claim_of(value, cpu) {
                entry.set(0);
                gone.add(self, value);
            }
        };
        // SAFETY: inside the caller's section.
        unsafe {
            free::entries_at::<M::Format, M>(
                self.machine(),
                self.root,
                pages,
                HUGE_LEVEL,
                &mut release,
            );
        }
        let mut count = RssDelta::default();
        gone.add_to(&mut count, &mut Gather::new());
        self.rss.gone(cpu, &count);
        gone
    }
}
