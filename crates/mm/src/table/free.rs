//! The end of a zap: what it has taken away is flushed, tables with it, and given up.
//!
//! Pages and tables of all levels go with one flush. Pages that others map, too, are *kept* until then, as claims
//! in their entries ([`crate::table::zap`]); a table in which there is nothing else is detached with them, and so is
//! one of a higher level above such tables ([`faultless_paging::free`]). Only then is anything given up:
//! tables from the highest down, with what was kept in them, and at last what was kept in tables that stay.
//!
//! Others who take away what lies beside see what is kept, and leave the table. So who has kept something looks
//! again when he has given it up, with a flush of its own if there is anything to free: only where two were in
//! one table at once.
//!
//! A full barrier stands between what one takes away, or gives up, and his look whether others have something there;
//! and between what the others detach and their look at the table, that of the section in which they
//! take it away. So of two neighbours one sees the other gone, and frees the table.
//!
//! No deadlock, though claims are waited for while some are held: of claims at a higher level alone, and nobody
//! who has one of these waits for one below.
//!
//! Written lines: entries that lead to tables, those that hold what was kept, and the pages' descriptors.
//!
//! *Models*: loom `table/free.rs`, shuttle `table/free.rs`.

use faultless_frames::{Descriptor, FrameSource};
use faultless_paging::{ENTRIES, Frame, Gather, LEVELS, Pages, Table, free};
use faultless_sync::atomic::{Ordering, fence};
use faultless_sync::{Mutant, fence_after_rmw, mutant};
use faultless_trace::Counter;

use crate::base::frame_list::{FrameList, POLL_INTERVAL};
use crate::base::machine::Machine;
use crate::table::Tables;
use crate::table::rss::{RssDelta, RssKind};
use crate::tree::Tree;

/// The level of the entries that lead to the highest tables that go.
pub(crate) const TOP: usize = LEVELS - 1;

/// Which tables that are empty go with the pages that were in them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreeTables {
    /// None: something comes to where they are.
    None,
    /// Those of which all pages go. For arenas, where memory comes and goes in the same places.
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

    /// Puts a level in, if `is_in`.
    fn put(&mut self, level: usize, is_in: bool) {
        self.0 |= u32::from(is_in) << level;
    }
}

/// Pages that were taken away, and are neither flushed nor given up.
pub(crate) struct ZappedRange {
    /// Those of them that are to be flushed now.
    pub(crate) batch: Pages,
    /// All of the zap.
    pub(crate) pages: Pages,
    /// Up to the tables under entries at this level go those that are empty: above the first for all pages.
    pub(crate) top: usize,
    /// Tables of the lowest level that there are over the batch.
    pub(crate) tables: usize,
    /// Whether pages were kept.
    pub(crate) kept: bool,
}

impl ZappedRange {
    /// Those over which tables under entries at `level` go.
    fn at(&self, level: usize) -> Pages {
        match level {
            1 => self.batch,
            _ => self.pages,
        }
    }

    /// Whether all of them are in one table.
    fn is_in_one_table(&self) -> bool {
        self.tables == 1
            && self.pages.start / ENTRIES as u64 == (self.pages.end - 1) / ENTRIES as u64
    }
}

impl<M: Machine> Tables<M> {
    /// Flushes what `gather` holds, once, with tables that are empty now, and gives up what was kept. In a
    /// section.
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
            // What was taken away was taken by such operations.
            fence_after_rmw();
        }
        let mut freed = Levels(0);
        let interrupts = self.machine().interrupts_off();
        for level in 1..=of.top {
            freed.put(level, self.detach_tables(tree, level, of, tables, gather));
            if level == 1 && !freed.has(1) && of.is_in_one_table() {
                // It stays, and so do those above it.
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

    /// Frees tables under entries at `level` that are empty now, with nothing kept in them. Whether there
    /// were any.
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

    /// Detaches tables under entries at `level` that are empty (rule R5). Whether there were any.
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

    /// Gives up those tables, and what was kept in them. After the flush.
    fn unlink_tables(&self, level: usize, of: &ZappedRange, chain: &mut FrameList) {
        let (machine, cpu) = (self.machine(), self.machine().cpu());
        let mut give = |table| self.give_table(table, level - 1, of.kept, chain);
        // SAFETY: this CPU detached them, and walk caches are flushed.
        unsafe {
            free::unlink::<M::Format, M>(machine, self.root, of.at(level), level, cpu, &mut give);
        }
    }

    /// Gives up a table, whose own entries are at `level`.
    fn give_table(&self, frame: Frame, level: usize, kept: bool, chain: &mut FrameList) {
        let (machine, cpu) = (self.machine(), self.machine().cpu());
        if level > 0 || kept {
            // SAFETY: this CPU detached it, and it is there until it is retired.
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

    /// After the flush: empties the entries of `pages` in which this CPU has kept
    /// a claim, and gives up their pages.
    pub(crate) fn release_kept(&self, pages: Pages, chain: &mut FrameList) {
        let cpu = self.machine().cpu();
        let mut gone = RssDelta::default();
        self.for_each_entry(pages, &mut |entry, _| {
            let value = entry.load();
            if value != 0 && value == Self::FORMAT.claim_of(value, cpu) {
                entry.set(0);
                gone.add(self.give_up(value, chain));
            }
        });
        self.rss.gone(cpu, &gone);
    }

    /// Takes away the mapping that an entry was; what the caller has to count as gone.
    pub(crate) fn give_up(&self, value: u64, chain: &mut FrameList) -> Option<RssKind> {
        let counted = self.counted(value);
        let kind = counted.map(RssKind::of);
        if counted.is_some_and(Descriptor::unmap) {
            chain.push(self.machine().frames(), Self::FORMAT.frame(value));
        }
        kind
    }
}
