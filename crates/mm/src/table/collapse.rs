//! Collapse: the small pages of a span become one huge page.
//!
//! The table of the span is claimed like an entry, and hidden from hardware while none of its entries is claimed, as for a
//! move ([`faultless_paging::relink`]). After one flush nothing reaches the pages: they are copied into a fresh block, and
//! the huge page's entry takes the table's place. The old table is retired, because walks may still be in it.
//!
//! * The caller has the range alone: no writer, no fork, no move, and no operation that keeps mappings as they are, works on
//!   the span. Such an operation may change entries without a look at the tables above. A fault on the span finds the claim,
//!   and tries again. Faults elsewhere go on.
//! * A fault that has found the table before validates the table's link after its claim (rule R1). Either it sees this claim
//!   and withdraws, or the look for claims here sees its claim, and nothing is hidden.
//! * The old table's entries stay as they are. A walk that has found one of them claims it, fails to validate, and comes
//!   again; where it found nothing, it would take the page for gone.
//! * Pages that are shared are copied, too, as a write to them would. A page that is pinned, swapped out or hidden, a guard
//!   and a page of which stores are reported keep the span as it is. So does a table in which nothing can be written.
//!
//! *Writes*: the entry and the entries of its table; the new frames and their descriptors; the old ones.
//!
//! *Models*: loom `table/collapse.rs`.

use faultless_frames::Flags;
use faultless_paging::{
    ENTRIES, Entry, Frame, Gather, PAGE_SIZE, Page, Pages, Pte, Table, Value, Walk,
};
use faultless_sync::{Mutant, mutant};
use faultless_trace::Counter;

use crate::base::frame_list::FrameList;
use crate::base::machine::Machine;
use crate::table::Tables;
use crate::table::huge::{HUGE_LEVEL, frames_of};
use crate::table::huge_share::{begin_huge, mappings_of};
use crate::table::rss::{RssDelta, RssKind};
use crate::table::txn::PteTxn;

/// How a try ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Collapsed {
    /// There is a huge page now, or was before.
    Done,
    /// Another operation is at work in the table: try again.
    Busy,
    /// A page of the span cannot be in a huge page, or there is no table.
    Unfit,
}

/// What a collapse puts in the place of small pages.
pub(crate) struct NewHuge {
    /// The first frame of the block, with undefined content.
    pub(crate) first: Frame,
    /// The table for a later split.
    pub(crate) table: Frame,
    /// The entry.
    pub(crate) leaf: Value,
    /// The number of the space.
    pub(crate) owner: u64,
    /// How many empty entries and shared pages there may be.
    pub(crate) bounds: Bounds,
}

/// The most entries of some kinds in a table that is collapsed.
#[derive(Clone, Copy)]
pub(crate) struct Bounds {
    pub(crate) empty: u32,
    pub(crate) shared: u32,
}

impl Bounds {
    /// None: a program has asked for the huge page.
    pub(crate) const NONE: Self = Self {
        empty: u32::MAX,
        shared: u32::MAX,
    };
}

/// What the entries of a table hold.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Survey {
    /// Nothing, or the shared zero page.
    pub(crate) empty: u32,
    /// Pages that were swapped out.
    pub(crate) swapped: u32,
    /// Pages that other entries map, too.
    pub(crate) shared: u32,
    /// Pages that were used.
    pub(crate) used: u32,
    /// Pages that can be written.
    pub(crate) writable: u32,
    /// Something that cannot be in a huge page.
    unfit: u32,
}

impl Survey {
    /// Whether a huge page can take the place of the table, once swapped pages are back. As on Linux, not if nothing in it
    /// can be written.
    pub(crate) fn is_fit(&self) -> bool {
        self.unfit == 0 && self.writable > 0
    }
}

impl<M: Machine> Tables<M> {
    /// Makes the pages of a span one huge page. Only if it is done because of this call, as [`Collapsed::Done`] with `true`,
    /// does what is `new` belong to it. The caller has the range alone.
    pub(crate) fn collapse(&self, span: Pages, new: &NewHuge) -> (Collapsed, bool) {
        let (machine, format) = (self.machine(), Self::FORMAT);
        let txn = PteTxn::begin(machine);
        let section = self.memory.enter();
        let walked = self.descend_to(Page(span.start), HUGE_LEVEL, &section);
        let Walk::Leaf { entry, value, .. } = walked else {
            let is_busy = matches!(walked, Walk::Busy);
            return (
                if is_busy {
                    Collapsed::Busy
                } else {
                    Collapsed::Unfit
                },
                false,
            );
        };
        if format.is_claimed(value) {
            return (Collapsed::Busy, false);
        }
        if format.is_huge(value) {
            return (Collapsed::Done, false);
        }
        if !format.is_table(value) {
            return (Collapsed::Unfit, false);
        }
        let frame = format.frame(value);
        // SAFETY: found linked inside the section.
        let table = unsafe { Table::at(machine, frame) };
        if !self.survey(table).is_fit() {
            return (Collapsed::Unfit, false);
        }
        let Ok(claim) = txn.claim_present(entry, value, || Ok(())) else {
            return (Collapsed::Busy, false);
        };
        let all = table
            .entries()
            .iter()
            .fold(0, |all, entry| all | entry.load());
        if format.is_claimed(all) && !mutant(Mutant::CollapsedBesideClaims) {
            return (Collapsed::Busy, false);
        }
        let hidden = claim.hide(machine.cpu());
        let mut gather = Gather::new();
        let holders = format.holders(hidden.before());
        gather.add_table(span.start * PAGE_SIZE, span.len() * PAGE_SIZE, holders);
        for (entry, page) in table.entries().iter().zip(span.start..) {
            self.gather(entry.load(), page, &mut gather);
        }
        self.flush(&mut gather);
        // Only claims appear from here on, of faults that withdraw them. Pins are taken under claims.
        let values = || table.entries().iter().map(|entry| self.settled(entry));
        let found = self.survey_of(values());
        let is_in_bounds = found.empty <= new.bounds.empty && found.shared <= new.bounds.shared;
        if !found.is_fit() || found.swapped > 0 || !is_in_bounds {
            // Dropping the claim shows the table again.
            return (Collapsed::Unfit, false);
        }
        let mut gone = RssDelta::default();
        let mut chain = FrameList::default();
        for (value, to) in values().zip(frames_of(new.first)) {
            let page = (value != 0).then(|| self.counted(value));
            match page.flatten() {
                Some(_) => machine.copy(format.frame(value), to),
                None => machine.zero(to),
            }
            machine.poll();
        }
        begin_huge(
            machine.frames(),
            (new.first, new.table),
            (new.owner, span.start),
        );
        for (entry, value) in table.entries().iter().zip(values()) {
            if mutant(Mutant::CollapsedTableEmptied) {
                entry.set(0);
            }
            if value != 0 {
                gone.add(self.give_up(value, &mut chain));
            }
        }
        hidden.publish(self.with_tlb_owner(new.leaf));
        self.memory.retire_table(frame);
        gone.add(Some(RssKind::Table));
        let mut came = RssDelta::default();
        came.add_many(RssKind::Anonymous, ENTRIES as u64);
        self.rss.came_all(machine.cpu(), &came);
        self.rss.gone(machine.cpu(), &gone);
        self.memory.count(Counter::TableFree);
        self.memory.count_huge(new.first, 1);
        self.memory.count(Counter::ThpCollapse);
        drop(section);
        drop(txn);
        chain.free_all(machine);
        (Collapsed::Done, true)
    }

    /// Returns what the entries of a table hold. Changes nothing.
    pub(crate) fn survey(&self, table: &Table) -> Survey {
        self.survey_of(table.entries().iter().map(Entry::load))
    }

    fn survey_of(&self, values: impl Iterator<Item = Value>) -> Survey {
        let (format, source) = (Self::FORMAT, self.machine().frames());
        let mut found = Survey::default();
        for value in values {
            match format.decode(value, 0) {
                Pte::Empty => found.empty += 1,
                // Looked at again once it is not.
                Pte::Claimed => {}
                Pte::Swap(_) if !format.reports_writes(value) => found.swapped += 1,
                Pte::Page(frame) if self.is_zero_page(frame) => found.empty += 1,
                Pte::Page(frame) if self.is_fit(value) => {
                    found.shared += u32::from(mappings_of(source, frame) > 1);
                    found.used += u32::from(format.is_used(value));
                    found.writable += u32::from(format.is_writable(value));
                }
                _ => found.unfit += 1,
            }
        }
        found
    }

    /// Whether a page can be a part of a huge page: an anonymous page that nothing pins.
    fn is_fit(&self, value: Value) -> bool {
        let is_free = self
            .counted(value)
            .is_some_and(|page| page.flags().has(Flags::ANONYMOUS) && page.pins() == 0);
        is_free && !Self::FORMAT.reports_writes(value)
    }
}
