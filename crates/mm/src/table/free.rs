//! The end of a zap: one flush, and then the freeing of pages and page tables.
//!
//! * Pages and tables of all levels share one flush. A page that other spaces also map is *kept* until then,
//!   as a claim in its entry ([`crate::table::zap`]). A table that holds only kept pages is detached under
//!   the same flush. So is a table of a higher level that holds only such tables
//!   ([`faultless_paging::free`]).
//! * Pages and tables are released only after the flush: tables from the highest level down, with what was
//!   kept in them, and at last what was kept in tables that stay.
//! * A neighbouring zap sees kept claims, and leaves the table in place. A zap that has kept something
//!   therefore looks again after the release. If it then finds a table to free, it flushes again. This
//!   happens only if two zaps were in one table at the same time.
//! * A full barrier stands between the entries that a zap takes out or releases, and its look for
//!   neighbouring mappings. Another stands between what a neighbour detaches from the tree and its look at
//!   the table: that of the section of its zap. So at least one of two neighbours sees that the other is
//!   gone, and frees the table.
//! * A zap waits for claims while it holds some, but only for claims at a higher level. No holder of such a
//!   claim waits for one at a lower level, so there is no deadlock.
//!
//! *Writes*: entries that lead to tables, entries that hold kept pages, and the pages' descriptors.
//!
//! *Models*: loom `table/free.rs`, shuttle `table/free.rs`.

use faultless_frames::{Descriptor, FrameSource};
use faultless_paging::{ENTRIES, Entry, Frame, Gather, LEVELS, Pages, Table, free};
use faultless_sync::atomic::{Ordering, fence};
use faultless_sync::{Mutant, fence_after_rmw, mutant};
use faultless_trace::Counter;

use crate::base::frame_list::{FrameList, POLL_INTERVAL};
use crate::base::machine::Machine;
use crate::table::Tables;
use crate::table::pages::Span;
use crate::table::rss::{RssDelta, RssKind};
use crate::tree::Tree;

/// The level of the entries that lead to the highest tables that are freed.
pub(crate) const TOP: usize = LEVELS - 1;

/// Which of the tables that become empty are freed with their pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreeTables {
    /// None: a new mapping takes this range.
    None,
    /// Tables that lie entirely in the range. For shards, where memory is mapped and unmapped in the same
    /// places.
    Whole,
    /// All.
    All,
}

/// A set of levels.
struct Levels(u32);

impl Levels {
    fn has(&self, level: usize) -> bool {
        self.0 & 1 << level != 0
    }

    /// Adds a level, if `is_in`.
    fn put(&mut self, level: usize, is_in: bool) {
        self.0 |= u32::from(is_in) << level;
    }
}

/// Pages that were zapped, and are neither flushed nor released.
pub(crate) struct ZappedRange {
    /// The part to be flushed now.
    pub(crate) batch: Pages,
    /// All pages of the zap.
    pub(crate) pages: Pages,
    /// Empty tables are freed up to those under entries at this level: at level 1 over the batch, above it
    /// over all pages.
    pub(crate) top: usize,
    /// The number of tables of the lowest level over the batch.
    pub(crate) tables: usize,
    /// Whether pages were kept.
    pub(crate) kept: bool,
}

impl ZappedRange {
    /// Returns the pages over which tables under entries at `level` are freed.
    fn at(&self, level: usize) -> Pages {
        match level {
            1 => self.batch,
            _ => self.pages,
        }
    }

    /// Whether all pages of the zap are in one table.
    fn is_in_one_table(&self) -> bool {
        self.tables == 1
            && self.pages.start / ENTRIES as u64 == (self.pages.end - 1) / ENTRIES as u64
    }
}

impl<M: Machine> Tables<M> {
    /// Flushes what `gather` holds, once, with tables that are empty now, and releases kept pages. The caller
    /// is in a section.
    pub(crate) fn flush_with_tables(
        &self,
        tree: &Tree,
        of: &ZappedRange,
        tables: FreeTables,
        gather: &mut Gather,
        chain: &mut FrameList,
    ) {
        if tables == FreeTables::None {
            self.flush(gather);
            if of.kept {
                self.release_kept(of.batch, chain);
            }
            return;
        }
        if !mutant(Mutant::TablesLookedAtWithoutFence) {
            // The entries were taken out by read-modify-writes.
            fence_after_rmw();
        }
        let mut freed = Levels(0);
        let interrupts = self.machine().interrupts_off();
        for level in 1..=of.top {
            freed.put(level, self.detach_tables(tree, level, of, tables, gather));
            if level == 1 && !freed.has(1) && of.is_in_one_table() {
                // The table stays, and so do those above it.
                break;
            }
        }
        self.flush(gather);
        for level in (1..=of.top).rev().filter(|level| freed.has(*level)) {
            self.unlink_tables(level, of, chain);
        }
        self.machine().interrupts_restore(interrupts);
        if of.kept {
            self.release_kept(of.batch, chain);
        }
        let mut had_kept = of.kept;
        for level in 1..=of.top {
            if had_kept && !mutant(Mutant::TablesLookedAtOnce) {
                freed.put(level, self.look_again(tree, level, of, tables));
            }
            had_kept = freed.has(level);
        }
    }

    /// Frees tables under entries at `level` that are empty now, with no page kept in them. Returns whether
    /// there were any.
    fn look_again(&self, tree: &Tree, level: usize, of: &ZappedRange, tables: FreeTables) -> bool {
        if !mutant(Mutant::TablesLookedAtWithoutFence) {
            fence(Ordering::SeqCst);
        }
        let (mut gather, mut chain) = (Gather::new(), FrameList::default());
        let interrupts = self.machine().interrupts_off();
        let freed = self.detach_tables(tree, level, of, tables, &mut gather);
        if freed {
            self.flush(&mut gather);
            self.unlink_tables(level, of, &mut chain);
        }
        self.machine().interrupts_restore(interrupts);
        debug_assert!(chain.is_empty(), "something was kept");
        freed
    }

    /// Detaches tables under entries at `level` that are empty (rule R5). Returns whether there were any.
    fn detach_tables(
        &self,
        tree: &Tree,
        level: usize,
        of: &ZappedRange,
        tables: FreeTables,
        gather: &mut Gather,
    ) -> bool {
        let pages = of.pages;
        // Nothing is mapped in the range itself: look beside it.
        let vacant = |span: Pages| match tables {
            FreeTables::All => tree.is_vacant_beside(span, pages),
            _ => pages.start <= span.start && span.end <= pages.end,
        };
        let (machine, cpu) = (self.machine(), self.machine().cpu());
        let part = of.at(level);
        if part.is_empty() {
            return false;
        }
        // SAFETY: inside the caller's section; tables are retired, not freed.
        let detached = unsafe {
            free::detach::<M::Format, M>(machine, self.root, part, level, cpu, gather, &vacant)
        };
        detached > 0
    }

    /// Frees the detached tables, and releases the pages kept in them. After the flush.
    fn unlink_tables(&self, level: usize, of: &ZappedRange, chain: &mut FrameList) {
        let (machine, cpu) = (self.machine(), self.machine().cpu());
        let mut give = |table| self.give_table(table, level - 1, of.kept, chain);
        // SAFETY: this CPU detached them, and walk caches are flushed.
        unsafe {
            free::unlink::<M::Format, M>(machine, self.root, of.at(level), level, cpu, &mut give);
        }
    }

    /// Frees a table with entries at `level`, and releases what was kept in it.
    fn give_table(&self, frame: Frame, level: usize, kept: bool, chain: &mut FrameList) {
        let (machine, cpu) = (self.machine(), self.machine().cpu());
        if level > 0 || kept {
            // SAFETY: this CPU detached it, and it stays until it is retired.
            let table = unsafe { Table::at(machine, frame) };
            let mut gone = RssDelta::default();
            let mut given = 0;
            free::kept_in::<M::Format>(table, cpu, &mut |value| {
                match level {
                    0 => gone.add(self.give_up(value, chain)),
                    _ => self.give_table(Self::FORMAT.frame(value), level - 1, kept, chain),
                }
                given += 1;
                if given % POLL_INTERVAL == 0 {
                    machine.poll();
                }
            });
            self.rss.gone(cpu, &gone);
            machine.poll();
        }
        self.rss.gone_one(cpu, RssKind::Table);
        self.memory.count(Counter::TableFree);
        if mutant(Mutant::TableNotRetired) {
            return machine.frames().free(cpu, frame);
        }
        self.memory.retire_table(frame);
    }

    /// After the flush: empties the entries of `pages` in which this CPU has kept a claim, and releases their
    /// pages.
    pub(crate) fn release_kept(&self, pages: Pages, chain: &mut FrameList) {
        let cpu = self.machine().cpu();
        let mut gone = RssDelta::default();
        let mut release = |entry: &Entry, _| {
            let value = entry.load();
            if value != 0 && value == Self::FORMAT.claim_of(value, cpu) {
                entry.set(0);
                gone.add(self.give_up(value, chain));
            }
        };
        self.visit_spans(pages, &mut |span| {
            // A huge page is one that was mapped since, or beside the pages.
            if let Span::Table(table, part) = span {
                self.for_each_in(table, part, &mut release);
            }
            true
        });
        self.rss.gone(cpu, &gone);
    }

    /// Drops the map count of an entry's page, and queues the page in `chain` if it was the last use. Returns
    /// the kind that the caller counts as removed.
    pub(crate) fn give_up(&self, value: u64, chain: &mut FrameList) -> Option<RssKind> {
        let counted = self.counted(value);
        let kind = counted.map(RssKind::of);
        if counted.is_some_and(Descriptor::unmap) {
            chain.push(self.machine().frames(), Self::FORMAT.frame(value));
        }
        kind
    }
}
