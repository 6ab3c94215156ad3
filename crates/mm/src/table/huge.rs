//! Huge pages: entries one level above the lowest that map as many pages as a table has.
//!
//! * **A huge page is as many frames as a table has entries, side by side, and one entry.** Each frame has its own
//!   descriptor, as if it were mapped alone. So a huge page is *split* without touching its frames: a table with the same
//!   pages takes the place of its entry.
//! * **The frames of a huge page are exclusive, and the entry is their only use.** A fork, a pin and a migration split it
//!   first. So it is taken out, freed and raised as a whole, without a look at each descriptor.
//! * A huge page is installed only over an empty entry (rule R5), and only where one mapping covers its span.
//! * The table for a split is *deposited* with the huge page: no operation fails for want of it. The
//!   descriptor of the first frame names it. Only the operation that has claimed, or taken out, the entry reads that.
//! * The shared huge zero page has no descriptor to name a table. So a space keeps as many tables as it has entries of the
//!   huge zero page, in a list. An operation puts one in before it publishes such an entry, and takes one out after it has
//!   claimed, or taken out, the entry. Its parts map the shared zero page: what was populated stays so.
//! * A split changes neither what an address maps nor what is allowed there, so other CPUs go on meanwhile, and no TLB is
//!   flushed. A TLB may then hold the huge translation and small ones, which agree; a flush of one of the pages flushes
//!   both (Intel SDM, volume 3, 4.10.2.3 and 4.10.4.1).
//! * [`Tables::descend`] and the walks over a range split what they meet. What only looks uses [`Tables::look`] and
//!   [`Tables::for_each_page`].
//!
//! *Writes*: the entry, the table, and the first frame's descriptor; of the huge zero page, the space's list.
//!
//! *Models*: loom `table/huge.rs`.

use faultless_frames::FrameSource;
use faultless_paging::{BITS, ENTRIES, Entry, Frame, Gather, PAGE_SIZE, Page, Pages, Table, Value};
use faultless_sync::{Cpu, Mutant, mutant};
use faultless_trace::Counter;

use crate::base::frame_list::FrameList;
use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::table::Tables;
use crate::table::rss::{RssDelta, RssKind};

/// The level of the entries that map huge pages.
pub(crate) const HUGE_LEVEL: usize = 1;

/// Returns the pages of the huge page around a page.
#[inline]
pub(crate) fn huge_span(page: u64) -> Pages {
    let start = page >> BITS << BITS;
    Pages::new(start, start + ENTRIES as u64)
}

/// Iterates over the frames of a huge page.
pub(crate) fn frames_of(first: Frame) -> impl Iterator<Item = Frame> {
    (first.0..first.0 + ENTRIES as u64).map(Frame)
}

impl<M: Machine> Tables<M> {
    /// Whether the entry of a huge page maps the shared huge zero page.
    #[inline]
    pub(crate) fn is_huge_zero(&self, value: Value) -> bool {
        self.machine().frames().huge_zero_frame() == Some(Self::FORMAT.frame(value))
    }

    /// Returns the value that the entry of `page` would have, if the huge page around it were split.
    #[inline]
    pub(crate) fn part_of(&self, huge: Value, page: u64) -> Value {
        match self.is_huge_zero(huge) {
            // Each page of the huge zero page is as one of the small: the shared zero page.
            true => Self::FORMAT.with_frame(
                Self::FORMAT.part(huge, 0),
                self.machine().frames().zero_frame(),
            ),
            false => Self::FORMAT.part(huge, page % ENTRIES as u64),
        }
    }

    /// Leaves a table with the frames of a huge page that no entry maps yet.
    pub(crate) fn deposit(&self, first: Frame, table: Frame) {
        let descriptor = self.machine().frames().descriptor(first);
        descriptor.set_deposit(table.0 + 1);
    }

    /// Returns the table that was left with the huge page of an entry. To take it, the caller has claimed the entry, or
    /// taken it out.
    pub(crate) fn deposited(&self, value: Value) -> Option<Frame> {
        if self.is_huge_zero(value) {
            return None;
        }
        let first = self
            .machine()
            .frames()
            .descriptor(Self::FORMAT.frame(value));
        first.deposit().checked_sub(1).map(Frame)
    }

    /// Leaves a table for an entry that is about to map the huge zero page.
    pub(crate) fn deposit_zero(&self, table: Frame) {
        let mut deposits = self.forks.zero_deposits.lock(self.machine());
        deposits.push(self.machine().frames(), table);
    }

    /// Takes the table that was left for an entry of the huge zero page. The caller has claimed the entry, or taken it out.
    pub(crate) fn take_zero_deposit(&self) -> Option<Frame> {
        let mut deposits = self.forks.zero_deposits.lock(self.machine());
        deposits.pop(self.machine().frames())
    }

    /// Calls `visit` with the tables that were left for entries of the huge zero page.
    pub(crate) fn for_each_zero_deposit(&self, visit: &mut impl FnMut(Frame)) {
        let deposits = self.forks.zero_deposits.lock(self.machine());
        deposits.for_each(self.machine().frames(), visit);
    }

    /// Frees the table that was left for an entry of the huge zero page, which has been replaced.
    pub(crate) fn free_zero_deposit(&self) {
        let table = self.take_zero_deposit();
        debug_assert!(table.is_some(), "a huge zero page without a table");
        if let Some(table) = table {
            self.machine().frames().free(self.machine().cpu(), table);
        }
    }

    /// Splits the huge page of an entry that holds `value`, if it still does.
    #[cold]
    #[inline(never)]
    pub(crate) fn split(&self, entry: &Entry, value: Value, page: u64) {
        let interrupts = self.machine().interrupts_off();
        match self.is_huge_zero(value) {
            true => self.split_zero(entry, value, page),
            false => self.split_frames(entry, value),
        }
        self.machine().interrupts_restore(interrupts);
    }

    fn split_zero(&self, entry: &Entry, value: Value, page: u64) {
        let Ok(claim) = entry.claim::<M::Format>(value, self.machine().cpu()) else {
            return;
        };
        // Its parts are in another frame.
        let mut gather = Gather::new();
        self.gather_huge(value, page, &mut gather);
        self.flush(&mut gather);
        let Some(frame) = self.take_zero_deposit() else {
            debug_assert!(false, "a huge zero page without a table");
            return claim.publish(0);
        };
        // SAFETY: a table that nothing links yet.
        let table = unsafe { Table::at(self.machine(), frame) };
        let part = self.with_tlb_owner(self.part_of(value, page));
        table.entries().iter().for_each(|small| small.set(part));
        claim.publish(self.with_tlb_owner(Self::FORMAT.table(frame)));
        self.count_split();
    }

    fn split_frames(&self, entry: &Entry, value: Value) {
        if mutant(Mutant::TableFilledBeforeClaim)
            && let Some(frame) = self.deposited(value)
        {
            self.fill(frame, value);
        }
        let Ok(claim) = entry.claim_present::<M::Format>(value) else {
            return;
        };
        let Some(frame) = self.deposited(value) else {
            debug_assert!(false, "a huge page without a table");
            return;
        };
        if !mutant(Mutant::TableFilledBeforeClaim) {
            self.fill(frame, value);
        }
        // Release: the entries come before the table.
        claim.publish(|_| Self::FORMAT.table(frame));
        self.count_split();
    }

    fn count_split(&self) {
        self.rss.came(self.machine().cpu(), RssKind::Table);
        self.memory.count(Counter::TableAlloc);
        self.memory.count(Counter::ThpSplit);
    }

    /// Fills the table for the split of a huge page, which nothing links yet.
    fn fill(&self, frame: Frame, value: Value) {
        // SAFETY: a table that nothing links yet.
        let table = unsafe { Table::at(self.machine(), frame) };
        // Hardware may set its bits, and another CPU load the entry, until it is replaced. So the parts name no owner, and
        // count as written; that they were used meanwhile may be lost.
        let mut part = match Self::FORMAT.is_used(value) {
            _ if mutant(Mutant::PartsAsRead) => Self::FORMAT.part(value, 0),
            true => Self::FORMAT.part(value, 0) | Self::FORMAT.accessed,
            false => Self::FORMAT.unused(Self::FORMAT.part(value, 0)),
        };
        if Self::FORMAT.is_writable(value) {
            part = Self::FORMAT.written(part);
        }
        for (number, small) in table.entries().iter().enumerate() {
            small.set(part + number as u64 * PAGE_SIZE);
        }
    }

    /// Records that a huge page has to be flushed, after `value` was taken out of its entry or lowered.
    pub(crate) fn gather_huge(&self, value: Value, page: u64, gather: &mut Gather) {
        let span = huge_span(page);
        let bytes = span.len() * PAGE_SIZE;
        gather.add(
            Page(span.start).address(),
            bytes,
            Self::FORMAT.holders(value),
        );
    }

    /// Takes a huge page out of its entry, which holds `value` and admits no new claims. Returns whether it did; if the
    /// entry has changed, the caller looks again.
    pub(crate) fn take_huge(
        &self,
        entry: &Entry,
        value: Value,
        page: u64,
        gone: &mut HugeGone,
    ) -> bool {
        if entry.replace(value, 0).is_err() {
            return false;
        }
        self.gather_huge(value, page, &mut gone.gather);
        gone.add(self, value);
        true
    }
}

/// Huge pages that were taken out of their entries, to be flushed, and then freed.
#[derive(Default)]
pub(crate) struct HugeGone {
    chain: FrameList,
    gather: Gather,
    count: u64,
}

impl HugeGone {
    /// Adds the huge page of an entry that was taken out.
    pub(crate) fn add<M: Machine>(&mut self, tables: &Tables<M>, value: Value) {
        if tables.is_huge_zero(value) {
            return tables.free_zero_deposit();
        }
        let source = tables.machine().frames();
        let first = Tables::<M>::FORMAT.frame(value);
        frames_of(first).for_each(|frame| source.descriptor(frame).unmap_sole());
        self.chain.push(source, first);
        self.count += 1;
    }

    /// Adds what is to be flushed, and counted, to what else the caller has taken out.
    pub(crate) fn add_to(&mut self, gone: &mut RssDelta, gather: &mut Gather) {
        gone.add_many(RssKind::Anonymous, self.count * ENTRIES as u64);
        gather.join(core::mem::take(&mut self.gather));
    }

    /// Frees the huge pages and their tables, after the flush.
    pub(crate) fn free<M: Machine>(mut self, tables: &Tables<M>) {
        let (source, cpu) = (tables.machine().frames(), tables.machine().cpu());
        while let Some(first) = self.chain.pop(source) {
            free_deposit(source, cpu, first);
            source.free_huge(cpu, first);
            tables.machine().poll();
        }
    }
}

fn free_deposit<S: FrameSource>(source: &S, cpu: Cpu, first: Frame) {
    let table = source.descriptor(first).deposit().checked_sub(1);
    if let Some(table) = table {
        source.free(cpu, Frame(table));
    }
}

/// Frees a huge page of a space that nothing uses any more. Returns how many pages there were.
pub(crate) fn free_huge_page<M: Machine>(memory: &Memory<M>, first: Frame) -> u64 {
    let (source, cpu) = (memory.machine().frames(), memory.machine().cpu());
    if source.huge_zero_frame() == Some(first) {
        return 0;
    }
    free_deposit(source, cpu, first);
    frames_of(first).for_each(|frame| source.descriptor(frame).unmap_sole());
    source.free_huge(cpu, first);
    ENTRIES as u64
}
