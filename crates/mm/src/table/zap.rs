//! Taking pages away.
//!
//! Of ranges that admit no new claims (their slots are empty, zapping or changing): entries are
//! taken by compare-and-swap, claims of faults that came too early are waited for (rule R1), one
//! flush follows, then frames are freed (`zap_tables.rs`). Ranges that stay mapped are another matter
//! ([`crate::table::discard`]).
//!
//! A page that other address spaces map, too, or that is pinned, is given up only after the
//! flush: whoever is left alone with it may write it, which nobody here may then see, or
//! free it. Until then its entry keeps a claim that remembers the frame.
//!
//! Written lines: the entries, the frames' descriptors, and per-CPU caches.

use faultless_frames::{Descriptor, FrameSource};
use faultless_paging::{
    ENTRIES, Entry, Frame, Gather, PAGE_SIZE, Page, Pages, Table, Walk, bare, free, next_table,
    walk,
};
use faultless_sync::{Backoff, Mutant, cond_resched, mutant};

use crate::base::machine::Machine;
use crate::space::AddressSpace;
use crate::table::free::{TOP, Tables, ZappedRange};
use crate::table::rss::{RssDelta, RssKind};
use crate::table::taken::{self, Taken};

/// Pages between two looks for what other CPUs want to have flushed: they wait for it.
pub(crate) const POLL_INTERVAL: u64 = 32;

/// Pages zapped under one flush.
const ZAP_BATCH: u64 = 64 * ENTRIES as u64;

/// Frames taken out of entries, to be freed after the flush. Chained by their
/// descriptors, so that any number fits.
#[derive(Default)]
pub(crate) struct FrameList {
    /// The first frame plus 1; 0 for none.
    head: u64,
}

impl FrameList {
    pub(crate) fn is_empty(&self) -> bool {
        self.head == 0
    }

    pub(crate) fn push<S: FrameSource>(&mut self, source: &S, frame: Frame) {
        source.descriptor(frame).set_link(self.head);
        self.head = frame.0 + 1;
    }

    pub(crate) fn pop<S: FrameSource>(&mut self, source: &S) -> Option<Frame> {
        let frame = Frame(self.head.checked_sub(1)?);
        self.head = source.descriptor(frame).link();
        Some(frame)
    }

    pub(crate) fn free_all<M: Machine>(self, machine: &M) {
        let mut next = self.head;
        let cpu = machine.cpu();
        let mut freed = 0;
        while next != 0 {
            let frame = Frame(next - 1);
            next = machine.frames().descriptor(frame).link();
            machine.frames().free(cpu, frame);
            freed += 1;
            if freed % POLL_INTERVAL == 0 {
                machine.poll();
            }
        }
    }
}

/// Pages that are taken away without a look for the first table of them.
pub(crate) const SMALL: u64 = if cfg!(any(loom, shuttle)) { 1 } else { 64 };

pub(crate) fn is_in_one_table(pages: Pages) -> bool {
    let entries = ENTRIES as u64;
    !pages.is_empty() && pages.start / entries == (pages.end - 1) / entries
}

/// Whether a page is also mapped elsewhere, or pinned.
pub(crate) fn is_shared(page: &Descriptor) -> bool {
    !page.is_sole_use() && !mutant(Mutant::CountedTooShort)
}

impl<M: Machine> AddressSpace<M> {
    /// Takes away all pages of `pages` and flushes them; frees tables that are
    /// now empty. The range admits no new claims. When it
    /// returns, no CPU can use the old pages.
    ///
    /// Goes by batches, each with one flush: frames become free, other CPUs
    /// get their answers, and others who want this CPU run, while a large range is on its way.
    pub(crate) fn zap(&self, pages: Pages, tables: Tables) {
        self.zap_rest(pages, tables, Taken::new());
    }

    /// The same where some were taken already, of few in one table.
    pub(crate) fn zap_rest(&self, pages: Pages, tables: Tables, taken: Taken) {
        let tables = match tables {
            Tables::Whole if pages.len() < ENTRIES as u64 => Tables::None,
            _ => tables,
        };
        if pages.len() <= SMALL.max(taken::MOST) && is_in_one_table(pages) {
            // Mostly its table is there.
            return self.zap_batch(pages, (pages, TOP), tables, taken);
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

    /// Takes away a part of `pages`, and frees tables up to those under entries at level `top`.
    fn zap_batch(&self, batch: Pages, (pages, top): (Pages, usize), tables: Tables, taken: Taken) {
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
                if Self::FORMAT.is_guard(value) {
                    // Nobody else changes it now.
                    let _ = entry.replace(value, 0);
                    return;
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
                    // What is kept is counted when it is given up.
                    gone.add(counted.filter(|_| !shared).map(RssKind::of));
                    if !shared && counted.is_some_and(Descriptor::unmap) {
                        chain.push(self.machine().frames(), Self::FORMAT.frame(value));
                    }
                    return;
                }
            }
        };
        self.for_each_table(batch, &mut |table, part| {
            seen += 1;
            self.for_each_in(table, part, &mut take);
        });
        self.rss.gone(cpu, &gone);
        let range = ZappedRange {
            batch,
            pages,
            kept,
            top,
            tables: seen,
        };
        self.flush_with_tables(&range, tables, &mut gather, &mut chain);
        drop(section);
        chain.free_all(self.machine());
        self.machine().poll();
    }

    /// `page`, or the first page behind it whose table may exist.
    pub(crate) fn first_table(&self, page: u64, limit: u64) -> u64 {
        let _section = self.memory.enter();
        // SAFETY: inside the section.
        unsafe { next_table::<M::Format, M>(self.machine(), self.root, page, limit) }
    }

    /// The first of `pages` whose entry is not empty.
    pub(crate) fn first_entry(&self, pages: Pages) -> Option<u64> {
        let mut first = None;
        let mut at = self.first_table(pages.start, pages.end);
        while at < pages.end && first.is_none() {
            let end = ((at + ENTRIES as u64) & !(ENTRIES as u64 - 1)).min(pages.end);
            let section = self.memory.enter();
            self.for_each_table(Pages::new(at, end), &mut |table, part| {
                let base = part.start & !(ENTRIES as u64 - 1);
                let (start, end) = ((part.start - base) as usize, (part.end - base) as usize);
                first = table
                    .next_used(start, end)
                    .map(|number| base + number as u64);
            });
            drop(section);
            at = self.first_table(end, pages.end);
        }
        first
    }

    /// Whether there is nothing to take away of `pages`, which admit no new claims: neither pages, nor
    /// a table over them that nothing else needs.
    #[inline(never)]
    pub(crate) fn is_unpopulated(&self, pages: Pages) -> bool {
        // The section's fence is that of rule R1: a fault that is not seen here sees that nothing is
        // mapped. And of two neighbours that go at once, one sees the other gone.
        let _section = self.memory.enter();
        // SAFETY: inside the section.
        let table = unsafe { bare::<M::Format, M>(self.machine(), self.root, pages) };
        table.is_some_and(|table| !self.is_vacant_beside(table, pages))
    }

    /// Whether a page, or one near it, seems to be there: it has a table.
    pub(crate) fn has_table_hint(&self, page: u64) -> bool {
        let _section = self.memory.enter();
        // SAFETY: inside the section.
        let walked = unsafe { walk::<M::Format, M>(self.machine(), self.root, Page(page)) };
        matches!(walked, Walk::Leaf { .. })
    }

    /// Whether nothing is mapped in `span`, where nothing is in `pages`.
    pub(crate) fn is_vacant_beside(&self, span: Pages, pages: Pages) -> bool {
        let before = Pages::new(span.start, pages.start.clamp(span.start, span.end));
        let behind = Pages::new(pages.end.clamp(span.start, span.end), span.end);
        // Mostly what is next to them is enough.
        let next = [before.end.checked_sub(1), Some(behind.start)];
        let is_mapped = |page: Option<u64>| {
            page.filter(|page| span.start <= *page && *page < span.end)
                .is_some_and(|page| self.tree.find(page).word.is_mapped())
        };
        !next.into_iter().any(is_mapped)
            && self.tree.is_unmapped(behind)
            && self.tree.is_unmapped(before)
    }

    /// What has to be flushed, and who, when `value` was taken out of an entry, or lowered.
    pub(crate) fn gather(&self, value: u64, page: u64, gather: &mut Gather) {
        if Self::FORMAT.is_present(value) {
            gather.add(page * PAGE_SIZE, PAGE_SIZE, Self::FORMAT.holders(value));
        }
    }

    /// Flushes a page whose entry, claimed now, held `before`.
    pub(crate) fn flush_page(&self, page: Page, before: u64) {
        let mut gather = Gather::new();
        self.gather(before, page.0, &mut gather);
        self.flush(&mut gather);
    }

    /// Calls `visit` with every entry of `pages` that is not empty. Inside a section.
    pub(crate) fn for_each_entry(&self, pages: Pages, visit: &mut impl FnMut(&Entry, u64)) {
        self.for_each_table(pages, &mut |table, part| {
            self.for_each_in(table, part, visit)
        });
    }

    /// The same of pages of one table.
    #[inline]
    fn for_each_in(&self, table: &Table, part: Pages, visit: &mut impl FnMut(&Entry, u64)) {
        let base = part.start & !(ENTRIES as u64 - 1);
        let (mut at, end) = ((part.start - base) as usize, (part.end - base) as usize);
        while let Some(number) = table.next_used(at, end) {
            visit(&table.entries()[number], base + number as u64);
            at = number + 1;
            if (at as u64).is_multiple_of(POLL_INTERVAL) {
                self.machine().poll();
            }
        }
    }

    /// Calls `visit` with every table of the lowest level that has entries of
    /// `pages`, and with which these are. Inside a section, or where something is mapped, or
    /// reserved, in all of `pages`, since before the caller's fence.
    pub(crate) fn for_each_table(&self, pages: Pages, visit: &mut impl FnMut(&Table, Pages)) {
        let mut table_of = |parent: &Entry, base: u64| {
            let mut backoff = Backoff::new();
            let value = loop {
                let value = parent.load();
                if !Self::FORMAT.is_claimed(value) {
                    break value;
                }
                // A table comes or goes: wait (rule R1).
                backoff.turn(self.machine());
            };
            if value == 0 {
                return;
            }
            // SAFETY: found linked inside the caller's section.
            let table = unsafe { Table::at(self.machine(), Self::FORMAT.frame(value)) };
            self.machine().poll();
            visit(table, pages.and(Pages::new(base, base + ENTRIES as u64)));
        };
        // SAFETY: inside the caller's section, or nothing is freed.
        unsafe {
            free::entries_at::<M::Format, M>(self.machine(), self.root, pages, 1, &mut table_of);
        }
    }
}
