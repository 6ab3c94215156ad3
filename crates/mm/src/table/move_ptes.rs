//! Moving pages from one place of an address space to another (`mremap`).
//!
//! The caller has the ranges of both places, and neither admits new claims. Where source and target lie alike
//! in their tables, a table that is all the source's moves whole ([`faultless_paging::relink`]): its entries stay
//! what they are. Of the others every entry is taken out of the source, late claims waited for (rule R1), and
//! put into the target *hidden*, where no hardware uses it. The source is flushed, and only then does the target
//! become present (rule R2): no CPU ever reaches a page by both addresses.
//!
//! * Claims that come late and are withdrawn again are seen in both places all the while: of faults that
//!   found what was mapped there before, and of walks of an object's mappings, which validate after their
//!   claims. So entries are written by compare-and-swap alone, and a claim is waited for: its withdrawal writes
//!   back what it has seen.
//! * Tables are put under the target before anything is taken, because that can fail and moving cannot; by
//!   then no fault puts anything into the source.
//! * A page whose table moved whole is not where its descriptor says. The space notes that (`on_moved`), and
//!   the reverse map looks for the page everywhere in it.
//!
//! *Writes*: both places' entries, or the entries above them; descriptors of pages that move one by one and are
//! this space's alone.
//!
//! *Models*: loom `ops/remap.rs` and `crates/paging/tests/loom/relink.rs`, shuttle `ops/{moves,whole_tables,remap}.rs`.

use faultless_frames::FrameSource;
use faultless_paging::relink::{Detached, detach_whole, relink};
use faultless_paging::{
    ENTRIES, Entry, Frame, Gather, Lowest, Page, Pages, Protection, Pte, Table, Walk, lowest,
};
use faultless_sync::reclaim::Section;
use faultless_sync::{Backoff, Mutant, cond_resched, mutant};
use faultless_trace::Counter;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::table::Tables;
use crate::table::rss::RssKind;
use crate::table::txn::PteTxn;
use crate::tune::MOVED_TABLES;

/// Tables of the lowest level between two looks whether another thread should run.
const TABLES: u64 = 32;

/// What moves where, and what the mapping there allows.
pub(crate) struct Move {
    pub(crate) source: Pages,
    /// The first page of the target.
    pub(crate) target: u64,
    pub(crate) protection: Protection,
    /// Whether the mapping is shared, so that stores go through at once.
    pub(crate) shared: bool,
    /// Whether tables move whole: not where what moves has to count as written from now on.
    pub(crate) by_tables: bool,
}

impl Move {
    /// Where a page of the source goes.
    fn goes_to(&self, page: u64) -> u64 {
        page - self.source.start + self.target
    }

    /// Pages of one table of the source, by the table in which they lie at the target.
    fn by_target_tables(&self, pages: Pages) -> impl Iterator<Item = Pages> {
        let to = self.goes_to(pages.start);
        let rest = ENTRIES as u64 - to % ENTRIES as u64;
        let cut = pages.end.min(pages.start + rest);
        let parts = [Pages::new(pages.start, cut), Pages::new(cut, pages.end)];
        parts.into_iter().filter(|part| !part.is_empty())
    }

    /// Whether the pages of one table are all the source's, and lie in one table where they go.
    fn moves_whole(&self, pages: Pages) -> bool {
        self.by_tables
            && pages.len() == ENTRIES as u64
            && self.goes_to(pages.start).is_multiple_of(ENTRIES as u64)
    }
}

impl<M: Machine> Tables<M> {
    /// Puts tables under the pages at the target that pages of the source will go to.
    ///
    /// # Errors
    /// `ENOMEM`; tables that are there stay, and are freed with what is mapped beside them.
    pub(crate) fn prepare_tables(&self, of: &Move) -> Result<(), Errno> {
        let mut result = Ok(());
        let mut seen = 0u64;
        // SAFETY below: of tables over what is mapped, or reserved, none is freed (rule R5).
        self.for_each_table(of.source, &mut |table, part| {
            seen += 1;
            if seen.is_multiple_of(TABLES) {
                // Outside a section, and with no table claimed.
                cond_resched(self.machine());
            }
            let base = part.start & !(ENTRIES as u64 - 1);
            let (first, end) = ((part.start - base) as usize, (part.end - base) as usize);
            if result.is_err() || table.next_used(first, end).is_none() {
                return;
            }
            let (first, last) = (of.goes_to(part.start), of.goes_to(part.end - 1));
            // A table's pages may go to two.
            result = match of.moves_whole(part) {
                true => self.table_under(first, 1),
                false => self
                    .table_under(first, 0)
                    .and_then(|()| self.table_under(last, 0)),
            };
        });
        result
    }

    /// Puts tables over `page` down to the one whose entries are at `level`. The page's slot is not empty.
    fn table_under(&self, page: u64, level: usize) -> Result<(), Errno> {
        let mut backoff = Backoff::new();
        let mut spare = None;
        let result = loop {
            let section = self.memory.enter();
            match self.descend_to(Page(page), level, &section) {
                Walk::Leaf { .. } => break Ok(()),
                Walk::Missing { entry, .. } if let Some(table) = spare => {
                    let txn = PteTxn::begin(self.machine());
                    // If not, a fault beside these pages was quicker.
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
                Walk::Busy | Walk::Huge { .. } => {
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

    /// Moves the pages of the source, where nothing is at the target. Calls `on_moved` before a page is shown
    /// where its descriptor does not say.
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
                    // Tables were prepared for all that was there when no fault could publish any more.
                    debug_assert!(self.is_empty(part), "no table to move to");
                    continue;
                };
                self.for_each_entry(part, &mut |entry, page| {
                    let value = self.change(entry, |_| 0);
                    if value == 0 {
                        return;
                    }
                    let to = of.goes_to(page);
                    self.gather(value, page, &mut gather);
                    let hidden = match Self::FORMAT.is_guard(value) {
                        true => value,
                        false => Self::FORMAT.with_protection(value, Protection::default(), false),
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

    /// Moves the tables that are all the source's to where there is none, in batches of one flush each.
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
            while end < limit {
                let span = Pages::new(end, end + entries);
                let is_whole = span.and(of.source).len() == entries
                    && of.moves_whole(span)
                    && self.has_no_table(of.goes_to(end), &section);
                if is_whole {
                    // SAFETY: inside the section, with interrupts off until `relink`.
                    let detached = unsafe {
                        detach_whole::<M::Format, M>(machine, self.root, end, cpu, &mut gather)
                    };
                    match detached {
                        // Never wait for claims while a table is hidden: their holder may come to that one.
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
            let mut attach = |base, frame| self.attach_table(of.goes_to(base), frame, &section);
            // SAFETY: as above; what this CPU has kept in the batch was detached just now.
            unsafe { relink::<M::Format, M>(machine, self.root, batch, cpu, &mut attach) };
            drop(section);
            drop(txn);
            machine.poll();
            at = self.first_table(batch.end, of.source.end);
            if at < of.source.end {
                cond_resched(machine);
            }
        }
    }

    /// The lowest table over `page`.
    fn table_at<'s>(&'s self, page: u64, _section: &'s Section<'_>) -> Option<&'s Table> {
        let mut backoff = Backoff::new();
        loop {
            // SAFETY: the section keeps tables from being reused.
            match unsafe { lowest::<M::Format, M>(self.machine(), self.root, page) } {
                Lowest::Table(table) => return Some(table),
                Lowest::Missing => return None,
                // A neighbour's zap looks whether the table is empty.
                Lowest::Busy => backoff.turn(self.machine()),
            }
        }
    }

    /// Whether nothing is in the entries of pages of one table but claims of faults that come too late.
    fn is_empty(&self, pages: Pages) -> bool {
        let mut is_empty = true;
        self.for_each_entry(pages, &mut |entry, _| {
            let value = entry.load();
            is_empty &= value == 0 || Self::FORMAT.is_claimed(value);
        });
        is_empty
    }

    /// Whether no table is over the pages from `base` on, in a range where none comes any more but that of a
    /// fault which has claimed its entry already.
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

    /// Puts a table over the pages from `base` on, where none is.
    fn attach_table(&self, base: u64, table: Frame, section: &Section<'_>) {
        let new = self.with_tlb_owner(Self::FORMAT.table(table));
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

    /// Lets hardware use what has moved to `page`.
    fn show_moved(&self, of: &Move, entry: &Entry, page: u64, on_moved: &dyn Fn()) {
        let format = Self::FORMAT;
        self.change(entry, |value| {
            if value == 0 || format.is_guard(value) {
                // Nothing has moved there, but for a claim that was withdrawn; or a
                // guard has, which stays what it is.
                return value;
            }
            let own = self.is_exclusive(value);
            match self.counted(value) {
                // No other CPU looks at it before it is published (rule R7).
                Some(descriptor) if own => descriptor.move_to(page),
                // What others have at the old place has to be looked for here.
                Some(_) => on_moved(),
                None => {}
            }
            // What has moved counts as written, as on Linux: a watcher of the old place does not know the new
            // one.
            let value = value | format.soft_dirty;
            format.with_protection(value, of.protection, own || of.shared)
        });
    }

    /// Puts `to` of what an entry holds into it; what that was. A claim is waited for.
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
