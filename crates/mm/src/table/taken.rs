//! Few pages that nobody else may be using are taken away under the edit under which they were detached.
//!
//! A zap has nothing held because it may wait: for claims, and for other CPUs that have to flush. Where
//! there is nothing to wait for, and few pages, a second edit would hold others up for longer than
//! the pages do: a bounded number of them, in one table that stays, each an own page that no TLB holds
//! but, perhaps, this CPU's. What is not so is left for [`crate::table::zap`], which also flushes and frees what was
//! taken till then.
//!
//! That the table stays is seen under the edit: whoever has something mapped in it can detach that only
//! by an edit of the same part, and looks for tables to free afterwards.
//!
//! Written lines: the entries and the frames' descriptors.

use faultless_frames::Descriptor;
use faultless_paging::{ENTRIES, Entry, Gather, Lowest, Pages, Table, Value, lowest};
use faultless_sync::Cpu;

use crate::base::frame_list::FrameList;
use crate::base::machine::Machine;
use crate::table::Tables;
use crate::table::free::FreeTables;
use crate::table::rss::{RssDelta, RssKind};
use crate::table::zap::{is_in_one_table, is_shared};
use crate::tree::Tree;
use crate::tune::INLINE_ZAP;

/// Pages that were taken away, to be flushed if they are not yet, and freed.
#[must_use]
pub(crate) struct Taken {
    pub(crate) gather: Gather,
    pub(crate) chain: FrameList,
}

impl Taken {
    /// None.
    pub(crate) fn new() -> Self {
        Self {
            gather: Gather::new(),
            chain: FrameList::default(),
        }
    }

    /// Whether there are none.
    pub(crate) fn is_none(&self) -> bool {
        self.gather.is_empty() && self.chain.is_empty()
    }

    /// Takes all of them out.
    #[inline]
    pub(crate) fn take(&mut self) -> Self {
        core::mem::replace(self, Self::new())
    }

    /// Under no edit: frees them, where nothing is left to be flushed.
    #[inline]
    pub(crate) fn free<M: Machine>(self, machine: &M) {
        debug_assert!(self.gather.is_empty(), "some TLB may hold them");
        if !self.chain.is_empty() {
            self.chain.free_all(machine);
        }
    }
}

impl<M: Machine> Tables<M> {
    /// Takes away `pages`, which admit no new claims, and flushes them, if nobody has to be waited for, and no
    /// table goes with them. Whether all of that is done; then they are still to be freed.
    #[inline(always)]
    pub(crate) fn take_at_once(
        &self,
        tree: &Tree,
        pages: Pages,
        tables: FreeTables,
        taken: &mut Taken,
    ) -> bool {
        if pages.len() > INLINE_ZAP || !is_in_one_table(pages) {
            return false;
        }
        let start = self.memory.trace_start();
        // Its fence is that of rule R1: a fault that is not seen here sees that nothing is mapped.
        let section = self.memory.enter();
        // SAFETY: inside the section.
        let table = match unsafe { lowest::<M::Format, M>(self.machine(), self.root, pages.start) }
        {
            Lowest::Table(table) => table,
            Lowest::Missing => {
                drop(section);
                // A table above may go.
                return tables != FreeTables::All || self.is_unpopulated(tree, pages);
            }
            Lowest::Busy => return false,
        };
        let base = pages.start & !(ENTRIES as u64 - 1);
        let span = Pages::new(base, base + ENTRIES as u64);
        // The first is looked at before others are asked about: often it says that it is for a zap.
        let is_done = self.begins_own(table, pages)
            && (tables != FreeTables::All || !tree.is_vacant_beside(span, pages))
            && self.take_from(table, pages, taken)
            && self.flush_here(&mut taken.gather);
        if is_done {
            self.trace_zap(start, pages);
        }
        is_done
    }

    /// Whether the first of `pages` that is there, if any is, may be taken at once, as far as one look can tell.
    fn begins_own(&self, table: &Table, pages: Pages) -> bool {
        let base = pages.start & !(ENTRIES as u64 - 1);
        let first = table.next_used((pages.start - base) as usize, (pages.end - base) as usize);
        let cpu = self.machine().cpu();
        first.is_none_or(|number| self.is_own(table.entries()[number].load(), cpu))
    }

    /// Whether an entry is a page that no other CPU's TLB holds.
    #[inline]
    fn is_own(&self, value: Value, cpu: Cpu) -> bool {
        let format = Self::FORMAT;
        format.is_present(value)
            && !format.is_claimed(value)
            && format.holders(value).are_only(cpu, &self.cpus)
    }

    /// Takes pages out of their table, as far as that waits for nobody; whether all are.
    fn take_from(&self, table: &Table, pages: Pages, taken: &mut Taken) -> bool {
        let base = pages.start & !(ENTRIES as u64 - 1);
        let (mut at, end) = ((pages.start - base) as usize, (pages.end - base) as usize);
        let cpu = self.machine().cpu();
        let mut gone = RssDelta::default();
        let mut is_all = true;
        while let Some(number) = table.next_used(at, end) {
            let entry = &table.entries()[number];
            is_all = self.take_one(entry, base + number as u64, cpu, (taken, &mut gone));
            if !is_all {
                break;
            }
            at = number + 1;
        }
        self.rss.gone(cpu, &gone);
        is_all
    }

    #[inline]
    fn take_one(
        &self,
        entry: &Entry,
        page: u64,
        cpu: Cpu,
        (taken, gone): (&mut Taken, &mut RssDelta),
    ) -> bool {
        loop {
            let value = entry.load();
            if value == 0 {
                return true;
            }
            if !self.is_own(value, cpu) {
                return false;
            }
            let counted = self.counted(value);
            if counted.is_some_and(is_shared) {
                return false;
            }
            if entry.replace(value, 0).is_ok() {
                self.gather(value, page, &mut taken.gather);
                gone.add(counted.map(RssKind::of));
                if counted.is_some_and(Descriptor::unmap) {
                    taken
                        .chain
                        .push(self.machine().frames(), Self::FORMAT.frame(value));
                }
                return true;
            }
        }
    }
}
