//! Moving pages from one place of an address space to another (`mremap`).
//!
//! The caller holds the ranges of both places, and neither admits new claims. If source and target are
//! aligned alike in their tables, a table entirely inside the source moves whole
//! ([`faultless_paging::relink`]), with its entries unchanged. All other entries are taken out of the source,
//! after a wait for late claims (rule R1). They go into the target *hidden*, so that hardware does not use
//! them. The source is flushed, and only then does the target become present (rule R2): no CPU ever reaches a
//! page by both addresses.
//!
//! * Late claims, which are then withdrawn, can appear in both places at any time. They belong to faults that
//!   found the old mapping, or to walks of an object's mappings, which validate after their claims. The move
//!   therefore writes entries only by compare-and-swap, and waits for each claim: a withdrawal writes back
//!   the value that it has seen.
//! * Tables are installed under the target before any entry is taken, because that can fail and moving
//!   cannot. By then no fault publishes an entry in the source.
//! * A page in a table that moved whole is not where its descriptor says. The space records that
//!   (`on_moved`), and the reverse map searches the whole space for the page.
//!
//! *Writes*: both places' entries, or their parent entries; descriptors of pages that move one by one and are
//! exclusive to this space.
//!
//! *Models*: loom `ops/remap.rs` and `crates/paging/tests/loom/relink.rs`, shuttle
//! `ops/{moves,whole_tables,remap}.rs`.

use faultless_frames::FrameSource;
use faultless_paging::relink::{Detached, detach_whole, relink};
use faultless_paging::{
    ENTRIES, Entry, Gather, Lowest, Page, Pages, Protection, Pte, Table, Walk, lowest,
};
use faultless_sync::reclaim::Section;
use faultless_sync::{Backoff, Mutant, cond_resched, mutant};
use faultless_trace::Counter;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::table::Tables;
use crate::table::huge::HUGE_LEVEL;
use crate::table::pages::Span;
use crate::table::rss::RssKind;
use crate::table::txn::PteTxn;
use crate::tune::MOVED_TABLES;

/// Tables of the lowest level between two checks for a pending reschedule.
const TABLES: u64 = 32;

/// The source, the target, and what the mapping at the target allows.
pub(crate) struct Move {
    pub(crate) source: Pages,
    /// The first page of the target.
    pub(crate) target: u64,
    pub(crate) protection: Protection,
    /// Whether the mapping is shared, so that entries may be writable at once.
    pub(crate) shared: bool,
    /// Whether stores to moved pages are still reported.
    pub(crate) keeps_reports: bool,
    /// Whether tables move whole. They do not if moved pages have to count as written, or if stores to them were
    /// reported.
    pub(crate) by_tables: bool,
}

impl Move {
    /// Returns the page to which a page of the source moves.
    fn goes_to(&self, page: u64) -> u64 {
        page - self.source.start + self.target
    }

    /// Splits pages of one table of the source by the table in which they lie at the target.
    fn by_target_tables(&self, pages: Pages) -> impl Iterator<Item = Pages> {
        let to = self.goes_to(pages.start);
        let rest = ENTRIES as u64 - to % ENTRIES as u64;
        let cut = pages.end.min(pages.start + rest);
        let parts = [Pages::new(pages.start, cut), Pages::new(cut, pages.end)];
        parts.into_iter().filter(|part| !part.is_empty())
    }

    /// Whether a table's pages are all in the source, and lie in one table at the target.
    fn moves_whole(&self, pages: Pages) -> bool {
        self.by_tables
            && pages.len() == ENTRIES as u64
            && self.goes_to(pages.start).is_multiple_of(ENTRIES as u64)
    }
}

impl<M: Machine> Tables<M> {
    /// Installs tables under the target for all tables of the source that have entries.
    ///
    /// # Errors
    /// `ENOMEM`. Tables installed so far stay, and are freed with the mappings beside them.
    pub(crate) fn prepare_tables(&self, of: &Move) -> Result<(), Errno> {
        let mut result = Ok(());
        let mut seen = 0u64;
        // SAFETY below: no table over mapped or reserved pages is freed (rule R5).
        self.visit_spans(of.source, &mut |span| {
            let (table, part) = match span {
                Span::Table(table, part) => (table, part),
                Span::Huge(_, _, part) if of.moves_whole(part) => {
                    let reached = self.table_under(of.goes_to(part.start), HUGE_LEVEL);
                    result = result.and(reached);
                    return true;
                }
                Span::Huge(..) => return false,
            };
            seen += 1;
            if seen.is_multiple_of(TABLES) {
                // Outside a section, and with no table claimed.
                cond_resched(self.machine());
            }
            let base = part.start & !(ENTRIES as u64 - 1);
            let (first, end) = ((part.start - base) as usize, (part.end - base) as usize);
            if result.is_err() || table.next_used(first, end).is_none() {
                return true;
            }
            let (first, last) = (of.goes_to(part.start), of.goes_to(part.end - 1));
            // A table's pages may go to two tables.
            result = match of.moves_whole(part) {
                true => self.table_under(first, 1),
                false => self
                    .table_under(first, 0)
                    .and_then(|()| self.table_under(last, 0)),
            };
            true
        });
        result
    }

    /// Installs tables over `page` down to the one with entries at `level`. The page's slot is not empty.
    fn table_under(&self, page: u64, level: usize) -> Result<(), Errno> {
        let mut backoff = Backoff::new();
        let mut spare = None;
        let result = loop {
            let section = self.memory.enter();
            match self.descend_to(Page(page), level, &section) {
                Walk::Leaf { .. } => break Ok(()),
                Walk::Missing { entry, .. } if let Some(table) = spare => {
                    let txn = PteTxn::begin(self.machine());
                    // The claim fails if a fault beside these pages has installed a table first.
                    if let Ok(claim) = txn.claim(entry, 0, || Ok(())) {
                        claim.publish(self.with_tlb_owner(Self::FORMAT.table(table)));
                        self.rss.came(self.machine().cpu(), RssKind::Table);
                        self.memory.count(Counter::TableAlloc);
                        spare = None;
                    }
                }
                Walk::Missing { .. } => {
                    drop(section);
                    match self.memory.allocate_table() {
                        Ok(table) => spare = Some(table),
                        Err(none) => break Err(none.into()),
                    }
                }
                // Of the mapping that is being replaced: it is zapped after this.
                Walk::Huge { entry, value, .. } => self.split(entry, value, page),
                Walk::Busy => {
                    drop(section);
                    backoff.turn(self.machine());
                }
            }
        };
        if let Some(table) = spare {
            self.machine().frames().free(self.machine().cpu(), table);
        }
        result
    }

    /// Moves the pages of the source; the target is empty. Calls `on_moved` before a page is shown at an
    /// address that its descriptor does not hold.
    pub(crate) fn move_pages(&self, of: &Move, on_moved: &dyn Fn()) {
        let mut gather = Gather::new();
        // The first and the last page that have moved one by one, at the target.
        let mut moved: Option<(u64, u64)> = None;
        let mut has_whole = false;
        self.for_each_span(of.source, |span, section| {
            if of.moves_whole(span) && self.has_no_table(of.goes_to(span.start), section) {
                has_whole = true;
                return;
            }
            for part in of.by_target_tables(span) {
                let to = of.goes_to(part.start);
                let Some(target) = self.table_at(to, section) else {
                    // Target tables were prepared for all entries, after the last fault could publish one.
                    debug_assert!(self.is_empty(part), "no table to move to");
                    continue;
                };
                self.for_each_entry(part, &mut |entry, page| {
                    let value = self.change(entry, |_| 0);
                    let is_dropped = value == Self::FORMAT.marker() && !of.keeps_reports;
                    if value == 0 || is_dropped {
                        return;
                    }
                    let value = match of.keeps_reports {
                        true => value,
                        false => value & !Self::FORMAT.reports_writes,
                    };
                    let to = of.goes_to(page);
                    self.gather(value, page, &mut gather);
                    let hidden = match Self::FORMAT.has_page(value) {
                        false => value,
                        true => Self::FORMAT.with_protection(value, Protection::default(), false),
                    };
                    let before = self.change(target.entry(to, 0), |_| hidden);
                    debug_assert_eq!(before, 0, "a page is where another one moves to");
                    moved = Some((moved.map_or(to, |(first, _)| first), to));
                });
            }
        });
        self.flush(&mut gather);
        if let Some((first, last)) = moved {
            self.for_each_span(Pages::new(first, last + 1), |span, _| {
                self.for_each_entry(span, &mut |entry, page| {
                    self.show_moved(of, entry, page, on_moved)
                });
            });
        }
        if has_whole {
            on_moved();
            self.move_whole_tables(of);
        }
    }

    /// Moves the tables entirely inside the source to where there is no table, in batches of one flush each.
    fn move_whole_tables(&self, of: &Move) {
        let entries = ENTRIES as u64;
        let (machine, cpu) = (self.machine(), self.machine().cpu());
        let mut at = self.first_table(of.source.start, of.source.end);
        while at < of.source.end {
            let start = at & !(entries - 1);
            let limit = start + MOVED_TABLES * entries;
            let mut gather = Gather::new();
            let txn = PteTxn::begin(machine);
            let section = self.memory.enter();
            let mut backoff = Backoff::new();
            let (mut end, mut has_hidden) = (start, false);
            let mut huge = [(0, 0); MOVED_TABLES as usize];
            while end < limit {
                let span = Pages::new(end, end + entries);
                let is_whole = span.and(of.source).len() == entries
                    && of.moves_whole(span)
                    && self.has_no_table(of.goes_to(end), &section);
                if is_whole && let Some(value) = self.take_huge_entry(end, &section) {
                    // Its descriptors keep the old place, as those of pages in tables that move whole.
                    self.gather_huge(value, end, &mut gather);
                    huge[((end - start) / entries) as usize] = (end, value);
                    has_hidden = true;
                } else if is_whole {
                    // SAFETY: inside the section, with interrupts off until `relink`.
                    let detached = unsafe {
                        detach_whole::<M::Format, M>(machine, self.root, end, cpu, &mut gather)
                    };
                    match detached {
                        // Never wait for claims while a table is hidden: their holder may reach that table
                        // (rule R9).
                        Detached::Busy if has_hidden && !mutant(Mutant::WaitsWithTablesHidden) => {
                            break;
                        }
                        Detached::Busy => {
                            backoff.turn(machine);
                            continue;
                        }
                        Detached::Done => has_hidden = true,
                        Detached::NoTable => {}
                    }
                }
                end += entries;
            }
            let batch = Pages::new(start, end);
            if !mutant(Mutant::TableMovedWithoutFlush) {
                self.flush(&mut gather);
            }
            let mut attach = |base, frame| {
                let table = self.with_tlb_owner(Self::FORMAT.table(frame));
                self.attach(of.goes_to(base), table, &section);
            };
            // SAFETY: as above; every claim of this CPU in the batch is of a table detached just now.
            unsafe { relink::<M::Format, M>(machine, self.root, batch, cpu, &mut attach) };
            for (base, value) in huge.into_iter().filter(|&(_, value)| value != 0) {
                // Any CPU may load it, whatever was loaded at the old place.
                let shown = value | Self::FORMAT.accessed;
                self.attach(of.goes_to(base), shown, &section);
            }
            drop(section);
            drop(txn);
            machine.poll();
            at = self.first_table(batch.end, of.source.end);
            if at < of.source.end {
                cond_resched(machine);
            }
        }
    }

    /// Returns the lowest table over `page`.
    fn table_at<'s>(&'s self, page: u64, _section: &'s Section<'_>) -> Option<&'s Table> {
        let mut backoff = Backoff::new();
        loop {
            // SAFETY: the section keeps tables from being reused.
            match unsafe { lowest::<M::Format, M>(self.machine(), self.root, page) } {
                Lowest::Table(table) => return Some(table),
                Lowest::Missing => return None,
                // A neighbour's zap checks whether the table is empty.
                Lowest::Busy => backoff.turn(self.machine()),
            }
        }
    }

    /// Whether the entries of pages of one table are empty, but for late claims of faults.
    fn is_empty(&self, pages: Pages) -> bool {
        let mut is_empty = true;
        self.for_each_entry(pages, &mut |entry, _| {
            let value = entry.load();
            is_empty &= value == 0 || Self::FORMAT.is_claimed(value);
        });
        is_empty
    }

    /// Whether no table covers the pages from `base` on. In this range, only a fault that has already claimed
    /// the parent entry can install one.
    fn has_no_table(&self, base: u64, section: &Section<'_>) -> bool {
        let mut backoff = Backoff::new();
        loop {
            match self.descend_to(Page(base), 1, section) {
                Walk::Leaf { value, .. } => match Self::FORMAT.decode(value, 1) {
                    Pte::Empty => return true,
                    Pte::Claimed => backoff.turn(self.machine()),
                    _ => return false,
                },
                Walk::Missing { .. } => return false,
                Walk::Busy | Walk::Huge { .. } => backoff.turn(self.machine()),
            }
        }
    }

    /// Takes the entry of a huge page out. `None`: there is no huge page over the pages from `base` on.
    fn take_huge_entry(&self, base: u64, section: &Section<'_>) -> Option<u64> {
        let Walk::Leaf { entry, .. } = self.descend_to(Page(base), HUGE_LEVEL, section) else {
            return None;
        };
        loop {
            let value = entry.load();
            if !Self::FORMAT.is_huge(value) || Self::FORMAT.is_claimed(value) {
                return None;
            }
            if entry.replace(value, 0).is_ok() {
                return Some(value);
            }
        }
    }

    /// Puts a table, or a huge page, over the pages from `base` on, where there is none.
    fn attach(&self, base: u64, new: u64, section: &Section<'_>) {
        let mut backoff = Backoff::new();
        loop {
            if let Walk::Leaf { entry, .. } = self.descend_to(Page(base), 1, section)
                && entry.replace(0, new).is_ok()
            {
                return;
            }
            // A fault has claimed the entry, and withdraws.
            backoff.turn(self.machine());
        }
    }

    /// Calls `act` with the pages of each table over `pages`, in a section.
    fn for_each_span(&self, pages: Pages, mut act: impl FnMut(Pages, &Section<'_>)) {
        let mut at = self.first_table(pages.start, pages.end);
        while at < pages.end {
            let base = at & !(ENTRIES as u64 - 1);
            let span = Pages::new(base, base + ENTRIES as u64).and(pages);
            let section = self.memory.enter();
            act(span, &section);
            drop(section);
            self.machine().poll();
            at = self.first_table(span.end, pages.end);
            if at < pages.end {
                cond_resched(self.machine());
            }
        }
    }

    /// Makes the entry that has moved to `page` present.
    fn show_moved(&self, of: &Move, entry: &Entry, page: u64, on_moved: &dyn Fn()) {
        let format = Self::FORMAT;
        self.change(entry, |value| {
            if self.swap_of(value).is_some() {
                return value | format.soft_dirty;
            }
            if !format.has_page(value) {
                // Only a late claim was here, and is withdrawn; or a guard has moved here, and stays a guard.
                return value;
            }
            let own = self.is_exclusive(value);
            match self.counted(value) {
                // No other CPU uses the descriptor before the entry is published (rule R7).
                Some(descriptor) if own => descriptor.move_to(page),
                // Other spaces map the page at the old address, which its descriptor keeps: search for it
                // here.
                Some(_) => on_moved(),
                None => {}
            }
            // A moved page counts as written, as on Linux: a watcher of the old place does not know the new
            // one.
            let value = value | format.soft_dirty;
            let value = format.with_protection(value, of.protection, own || of.shared);
            if of.shared {
                self.mark_dirty(value);
            }
            value
        });
    }

    /// Replaces an entry's value `v` by `to(v)`, and returns `v`. Waits while the entry is claimed.
    fn change(&self, entry: &Entry, to: impl Fn(u64) -> u64) -> u64 {
        let mut backoff = Backoff::new();
        loop {
            let value = entry.load();
            if Self::FORMAT.is_claimed(value) && !mutant(Mutant::ClaimsNotAwaited) {
                backoff.turn(self.machine());
                continue;
            }
            let new = to(value);
            if new == value || entry.replace(value, new).is_ok() {
                return value;
            }
        }
    }
}
