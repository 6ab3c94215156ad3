//! Zapping: removal of the pages of a range from their entries.
//!
//! The range admits no new claims: its slots are empty, zapping or changing. Entries are taken out by
//! compare-and-swap, after a wait for claims of earlier faults (rule R1). One flush follows, and then frames
//! are freed (`free.rs`). [`crate::table::discard`] handles ranges that stay mapped.
//!
//! A page that is pinned, or that other address spaces also map, is released only after the flush. Its last
//! user may write the page in place, or free it, and a stale translation here must not see that. Until then
//! the page's entry keeps a claim that remembers the frame.
//!
//! *Writes*: the entries, the frames' descriptors, and per-CPU caches.
//!
//! *Models*: loom `lock/{change,zaps}.rs`, shuttle `lock/zaps.rs`.

use faultless_frames::Descriptor;
use faultless_paging::{ENTRIES, Entry, Page, Pages, Walk, is_bare};
use faultless_sync::{Backoff, Mutant, cond_resched, mutant};

use crate::base::machine::Machine;
use crate::table::Tables;
use crate::table::free::{FreeTables, TOP, ZappedRange};
use crate::table::huge::HugeGone;
use crate::table::pages::Span;
use crate::table::rss::{RssDelta, RssKind};
use crate::table::taken::Taken;
use crate::tree::Tree;
use crate::tune::INLINE_ZAP;
use crate::tune::SMALL_ZAP;

/// Pages zapped under one flush.
const ZAP_BATCH: u64 = 64 * ENTRIES as u64;

pub(crate) fn is_in_one_table(pages: Pages) -> bool {
    let entries = ENTRIES as u64;
    !pages.is_empty() && pages.start / entries == (pages.end - 1) / entries
}

/// Whether a page is also mapped elsewhere, or pinned.
pub(crate) fn is_shared(page: &Descriptor) -> bool {
    !page.is_sole_use() && !mutant(Mutant::CountedTooShort)
}

impl<M: Machine> Tables<M> {
    /// Zaps and flushes all pages of `pages`, and frees tables that are now empty. The range admits no new
    /// claims. When it returns, no CPU can use the old pages.
    ///
    /// Works in batches, each with one flush. While a large range is zapped, frames become free, shootdowns
    /// are answered, and other threads can run on this CPU.
    pub(crate) fn zap(&self, tree: &Tree, pages: Pages, tables: FreeTables) {
        self.zap_rest(tree, pages, tables, Taken::new());
    }

    /// The same if some pages were `taken` already, out of few in one table.
    pub(crate) fn zap_rest(&self, tree: &Tree, pages: Pages, tables: FreeTables, taken: Taken) {
        let tables = match tables {
            FreeTables::Whole if pages.len() < ENTRIES as u64 => FreeTables::None,
            _ => tables,
        };
        if pages.len() <= SMALL_ZAP.max(INLINE_ZAP) && is_in_one_table(pages) {
            // Mostly its table exists.
            return self.zap_batch(tree, pages, (pages, TOP), tables, taken);
        }
        debug_assert!(taken.is_none(), "of few in one table alone");
        let mut at = self.first_table(pages.start, pages.end);
        loop {
            // Batches end where tables end, so that each table is in one batch.
            let end = ((at + ZAP_BATCH) & !(ENTRIES as u64 - 1)).min(pages.end);
            let next = self.first_table(end, pages.end);
            let is_last = next >= pages.end;
            let top = if is_last { TOP } else { 1 };
            self.zap_batch(
                tree,
                Pages::new(at.min(end), end),
                (pages, top),
                tables,
                Taken::new(),
            );
            if is_last {
                return;
            }
            cond_resched(self.machine());
            at = next;
        }
    }

    /// Zaps a part of `pages`, and frees tables up to those under entries at level `top`.
    fn zap_batch(
        &self,
        tree: &Tree,
        batch: Pages,
        (pages, top): (Pages, usize),
        tables: FreeTables,
        taken: Taken,
    ) {
        let mut seen = 0;
        let Taken {
            mut gather,
            mut chain,
        } = taken;
        let cpu = self.machine().cpu();
        let mut kept = false;
        let mut gone = RssDelta::default();
        let section = self.memory.enter();
        let mut take = |entry: &Entry, page: u64| {
            let mut backoff = Backoff::new();
            loop {
                let value = entry.load();
                if value == 0 {
                    return;
                }
                if Self::FORMAT.is_claimed(value) {
                    if mutant(Mutant::ClaimsNotAwaited) {
                        return;
                    }
                    backoff.turn(self.machine());
                    continue;
                }
                if !Self::FORMAT.is_present(value)
                    && let Some(is_empty) = self.zap_pageless(entry, value)
                {
                    match is_empty {
                        true => return,
                        false => continue,
                    }
                }
                let counted = self.counted(value);
                let shared = counted.is_some_and(is_shared);
                let left = if shared {
                    Self::FORMAT.claim_of(value, cpu)
                } else {
                    0
                };
                if entry.replace(value, left).is_ok() {
                    self.gather(value, page, &mut gather);
                    kept |= shared;
                    if shared && Self::FORMAT.is_used(value) {
                        // The page stays, and no entry says so any more.
                        counted.inspect(|page| page.mark_used());
                    }
                    // A kept page is counted when it is released.
                    gone.add(counted.filter(|_| !shared).map(RssKind::of));
                    if !shared && counted.is_some_and(Descriptor::unmap) {
                        chain.push(self.machine().frames(), Self::FORMAT.frame(value));
                    }
                    return;
                }
            }
        };
        let mut whole = HugeGone::default();
        self.visit_spans(batch, &mut |span| match span {
            Span::Table(table, part) => {
                seen += 1;
                self.for_each_in(table, part, &mut take);
                true
            }
            Span::Huge(entry, value, part) => {
                let is_whole = part.len() == ENTRIES as u64;
                is_whole && self.take_huge(entry, value, part.start, &mut whole)
            }
        });
        whole.add_to(&mut gone, &mut gather);
        self.rss.gone(cpu, &gone);
        let range = ZappedRange {
            batch,
            pages,
            kept,
            top,
            tables: seen,
        };
        self.flush_with_tables(tree, &range, tables, &mut gather, &mut chain);
        drop(section);
        chain.free_all(self.machine());
        whole.free(self);
        self.machine().poll();
    }

    /// Whether `pages`, which admit no new claims, have nothing to zap: no page, and no table that nothing
    /// else needs. `is_vacant` says whether nothing is mapped in a table's span.
    #[inline(never)]
    pub(crate) fn is_unpopulated(
        &self,
        pages: Pages,
        is_vacant: &mut dyn FnMut(Pages) -> bool,
    ) -> bool {
        // The section's fence is that of rule R1: a fault that is not seen here sees that nothing is mapped.
        // Of two neighbours that are unmapped at the same time, one sees that the other is gone.
        let _section = self.memory.enter();
        // SAFETY: inside the section.
        unsafe {
            is_bare::<M::Format, M>(self.machine(), self.root, pages, &mut |span| {
                !is_vacant(span)
            })
        }
    }

    /// Whether a page, or one near it, is likely to be present: it has a table.
    pub(crate) fn has_table_hint(&self, page: u64) -> bool {
        let section = self.memory.enter();
        let walked = self.look(Page(page), &section);
        matches!(walked, Walk::Leaf { .. } | Walk::Huge { .. })
    }
}
