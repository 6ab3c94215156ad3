//! Huge pages: entries one level above the lowest that map as many pages as a table has.
//!
//! * **A huge page is as many frames as a table has entries, side by side, and one entry.** Each frame has its own
//!   descriptor, as if it were mapped alone. So a huge page is *split* without touching its frames: a table with the same
//!   pages takes the place of its entry.
//! * **The frames of a huge page are exclusive, and the entry is their only use**, or a fork has shared it as a whole
//!   ([`crate::table::huge_share`]). A pin and a migration split it first. So an exclusive one is taken out, freed and raised
//!   as a whole, without a look at each descriptor.
//! * A huge page of a memory object is many mappings' at once. Its entry is counted at each frame, as the entries of small pages
//!   are ([`crate::fault::kinds::huge_object`]).
//! * A huge page is installed only over an empty entry (rule R5), and only where one mapping covers its span.
//! * The table for a split is *deposited* with the huge page: no operation fails for want of it. The
//!   descriptor of one of its frames names it. Only an operation that has claimed, or taken out, an entry takes one.
//! * The shared huge zero page has no deposit. Its entry makes way for a table that maps the shared zero page everywhere, so
//!   that what was populated stays so; or, without memory for that, it is emptied.
//! * A split changes neither what an address maps nor what is allowed there, so other CPUs go on meanwhile, and no TLB is
//!   flushed. A TLB may then hold the huge translation and small ones, which agree; a flush of one of the pages flushes
//!   both (Intel SDM, volume 3, 4.10.2.3 and 4.10.4.1). Where a TLB must not hold both ([`Machine::breaks_before_make`]), the
//!   entry is not present until the huge translation is flushed: an access meanwhile faults, and tries again.
//! * [`Tables::descend`] and the walks over a range split what they meet. What only looks uses [`Tables::look`] and
//!   [`Tables::for_each_page`].
//!
//! *Writes*: the entry, the table, and the first frame's descriptor; of the huge zero page, the space's list.
//!
//! *Models*: loom `table/huge.rs`.

use faultless_frames::{Descriptor, Flags, FrameSource};
use faultless_paging::{BITS, ENTRIES, Entry, Frame, Gather, PAGE_SIZE, Page, Pages, Table, Value};
use faultless_sync::{Mutant, mutant};
use faultless_trace::Counter;

use crate::base::frame_list::FrameList;
use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::table::Tables;
use crate::table::huge_share::{leave_whole, release_huge, take_deposit};
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

    /// Whether the entry of a huge page maps one of a memory object. The page is counted, or what was read is validated later.
    #[inline]
    pub(crate) fn is_huge_of_object(&self, value: Value) -> bool {
        let first = Self::FORMAT.frame(value);
        !self.is_huge_zero(value)
            && self
                .machine()
                .frames()
                .descriptor(first)
                .flags()
                .has(Flags::FILE)
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

    /// Splits the huge page of an entry that holds `value`, if it still does.
    #[cold]
    #[inline(never)]
    pub(crate) fn split(&self, entry: &Entry, value: Value, page: u64) {
        let interrupts = self.machine().interrupts_off();
        match self.is_huge_zero(value) {
            true => self.split_zero(entry, value, page),
            false => self.split_frames(entry, value, page),
        }
        self.machine().interrupts_restore(interrupts);
    }

    fn split_zero(&self, entry: &Entry, value: Value, page: u64) {
        let frame = self.memory.allocate_deposit().ok();
        if !self.replace_zero(entry, value, page, frame)
            && let Some(frame) = frame
        {
            self.machine().frames().free(self.machine().cpu(), frame);
        }
    }

    /// Replaces the huge zero page of an entry by a table, if there is a frame for it. Returns whether the entry still held
    /// `value`.
    fn replace_zero(&self, entry: &Entry, value: Value, page: u64, frame: Option<Frame>) -> bool {
        let Ok(claim) = entry.claim::<M::Format>(value, self.machine().cpu()) else {
            return false;
        };
        // Its parts are in another frame.
        let mut gather = Gather::new();
        self.gather_huge(value, page, &mut gather);
        self.flush(&mut gather);
        let Some(frame) = frame else {
            claim.publish(0);
            return true;
        };
        // SAFETY: a table that nothing links yet.
        let table = unsafe { Table::at(self.machine(), frame) };
        let part = self.with_tlb_owner(self.part_of(value, page));
        table.entries().iter().for_each(|small| small.set(part));
        claim.publish(self.with_tlb_owner(Self::FORMAT.table(frame)));
        self.count_split();
        true
    }

    fn split_frames(&self, entry: &Entry, value: Value, page: u64) {
        let first = Self::FORMAT.frame(value);
        let early = mutant(Mutant::DepositTakenBeforeClaim).then(|| self.take_deposit(first));
        let Ok(claim) = entry.claim_present::<M::Format>(value) else {
            return;
        };
        let Some(frame) = early.unwrap_or_else(|| self.take_deposit(first)) else {
            debug_assert!(false, "a huge page without a table");
            return;
        };
        let leave = || match self.is_huge_of_object(value) {
            true => leave_whole(self.memory, first),
            false => {
                self.count_parts(first);
                self.memory.count_huge(first, 1u64.wrapping_neg());
            }
        };
        if self.machine().breaks_before_make() {
            let hidden = claim.hide(self.machine().cpu());
            let before = hidden.before();
            if !mutant(Mutant::SplitNotFlushed) {
                let mut gather = Gather::new();
                self.gather_huge(before, page, &mut gather);
                self.flush_cpus(&mut gather);
            }
            self.fill(frame, before);
            leave();
            hidden.publish(Self::FORMAT.table(frame));
        } else {
            self.fill(frame, value);
            leave();
            // Release: the entries come before the table.
            claim.publish(|_| Self::FORMAT.table(frame));
        }
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
    pages: RssDelta,
}

impl HugeGone {
    /// Adds the huge page of an entry that was taken out.
    pub(crate) fn add<M: Machine>(&mut self, tables: &Tables<M>, value: Value) {
        if tables.is_huge_zero(value) {
            return;
        }
        let first = Tables::<M>::FORMAT.frame(value);
        // The table remembers the huge page: several spaces may take the same one out at once.
        let Some(table) = tables.take_deposit(first) else {
            debug_assert!(false, "a huge page without a table");
            return;
        };
        let source = tables.machine().frames();
        source.descriptor(table).set_deposit(first.0);
        self.chain.push(source, table);
        let head = source.descriptor(first);
        let kind = RssKind::of(head);
        self.pages.add_many(kind, ENTRIES as u64);
        if kind == RssKind::Anonymous {
            tables.memory.count_huge(first, 1u64.wrapping_neg());
            return;
        }
        leave_whole(tables.memory, first);
        if Tables::<M>::FORMAT.is_used(value) {
            // The pages stay, and no entry says so any more.
            let parts = source.descriptors_of_huge(first);
            parts.iter().for_each(Descriptor::mark_used);
        }
    }

    /// Adds what is to be flushed, and counted, to what else the caller has taken out.
    pub(crate) fn add_to(&mut self, gone: &mut RssDelta, gather: &mut Gather) {
        gone.join(&self.pages);
        gather.join(core::mem::take(&mut self.gather));
    }

    /// Frees the tables, and the huge pages that no other space uses, after the flush.
    pub(crate) fn free<M: Machine>(mut self, tables: &Tables<M>) {
        let (source, cpu) = (tables.machine().frames(), tables.machine().cpu());
        while let Some(table) = self.chain.pop(source) {
            let first = Frame(source.descriptor(table).deposit());
            source.free(cpu, table);
            release_huge(tables.memory, first);
            tables.machine().poll();
        }
    }
}

/// Frees the huge page of a space that nothing uses any more. Returns how many pages there were.
pub(crate) fn free_huge_page<M: Machine>(memory: &Memory<M>, first: Frame) -> u64 {
    let (source, cpu) = (memory.machine().frames(), memory.machine().cpu());
    if source.huge_zero_frame() == Some(first) {
        return 0;
    }
    if let Some(table) = take_deposit(source, first) {
        source.free(cpu, table);
    }
    match source.descriptor(first).flags().has(Flags::FILE) {
        true => leave_whole(memory, first),
        false => memory.count_huge(first, 1u64.wrapping_neg()),
    }
    release_huge(memory, first);
    ENTRIES as u64
}
