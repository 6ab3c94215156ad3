//! A fast path for small unmaps: up to 16 pages are zapped and flushed under the edit that detaches them.
//!
//! A zap holds nothing because it may wait: for claims, and for flushes on other CPUs. If it would not wait,
//! and the pages are few, a second edit delays other writers for longer than the pages do. The fast path
//! takes a bounded number of pages, in one table that stays. Each page is mapped by this space alone, and
//! cached by no TLB except perhaps this CPU's. All other pages are left to [`crate::table::zap`], which also
//! flushes and frees the pages taken so far.
//!
//! The table must stay, which is checked under the edit. Other mappings in the table can be detached only by
//! an edit of the same lock domain. That operation looks for tables to free afterwards.
//!
//! *Writes*: the entries and the frames' descriptors.

use faultless_frames::Descriptor;
use faultless_paging::{ENTRIES, Entry, Gather, Lowest, Pages, Table, Value, lowest};
use faultless_sync::Cpu;

use crate::base::frame_list::FrameList;
use crate::base::machine::Machine;
use crate::table::Tables;
use crate::table::free::FreeTables;
use crate::table::rss::{RssDelta, RssKind};
use crate::table::zap::{is_in_one_table, is_shared};
use crate::tune::INLINE_ZAP;

/// Pages that were taken out of their entries, to be flushed if necessary, and freed.
#[must_use]
pub(crate) struct Taken {
    pub(crate) gather: Gather,
    pub(crate) chain: FrameList,
}

impl Taken {
    /// Creates an empty set.
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

    /// Returns all of them, and leaves none.
    #[inline]
    pub(crate) fn take(&mut self) -> Self {
        core::mem::replace(self, Self::new())
    }

    /// Frees the pages, all of which are flushed. Under no edit.
    #[inline]
    pub(crate) fn free<M: Machine>(self, machine: &M) {
        debug_assert!(self.gather.is_empty(), "some TLB may hold them");
        if !self.chain.is_empty() {
            self.chain.free_all(machine);
        }
    }
}

impl<M: Machine> Tables<M> {
    /// Zaps and flushes `pages`, which admit no new claims, if nothing has to be waited for and no table is
    /// freed. `is_vacant` says whether nothing is mapped in a table's span. Returns whether all of that is done;
    /// the pages are then still to be freed.
    #[inline(always)]
    pub(crate) fn take_at_once(
        &self,
        pages: Pages,
        tables: FreeTables,
        is_vacant: &mut dyn FnMut(Pages) -> bool,
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
                // A table of a higher level may have to be freed.
                return tables != FreeTables::All || self.is_unpopulated(pages, is_vacant);
            }
            Lowest::Busy => return false,
        };
        let base = pages.start & !(ENTRIES as u64 - 1);
        let span = Pages::new(base, base + ENTRIES as u64);
        // Check the first entry before the tree: often it already requires a full zap.
        let is_done = self.begins_own(table, pages)
            && (tables != FreeTables::All || !is_vacant(span))
            && self.take_from(table, pages, taken)
            && self.flush_here(&mut taken.gather);
        if is_done {
            self.trace_zap(start, pages);
        }
        is_done
    }

    /// Whether the first of `pages` that is present, if any, passes a quick check.
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

    /// Takes pages out of their table until one would need a wait. Returns whether all were taken.
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
