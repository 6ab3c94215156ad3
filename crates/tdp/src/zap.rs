//! Zaps the pages of a slot that is no longer used, and frees its tables.
//!
//! The pages are zapped in batches, between which other threads run. All of them are flushed at once, and faults no longer find
//! the slot. The host may give up a page before that: it flushes then ([`crate::flush`]).
//!
//! *Writes*: entries.
//!
//! *Models*: loom `slots.rs`.

use faultless_paging::{ENTRIES, Gather, LEVELS, Pages, free};
use faultless_sync::{cond_resched, fence_after_rmw};

use crate::fault::LIMIT;
use crate::format::SecondLevel;
use crate::guest::{Guest, GuestMachine, HostSpace};
use crate::slots::slot::SlotBody;
use crate::tables::InterruptsOff;

/// Pages that one section works on.
const BATCH: u64 = 8 * ENTRIES as u64;

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Zaps all pages of a slot, flushes, and frees tables that are empty. With `keeps_log`, the log has what was written.
    pub(crate) fn zap(&self, slot: &SlotBody, keeps_log: bool) {
        let pages = slot.pages;
        let mut at = pages.start;
        let mut lowering = self.lowering();
        while at < pages.end {
            let part = Pages::new(at, pages.end.min((at | (BATCH - 1)) + 1));
            let lock = self.mmu_lock();
            let section = self.memory.enter();
            self.for_each(slot, part, &mut |spot| {
                self.change(spot, |value| {
                    lowering.will_change();
                    // Nothing reads or clears the log while slots change.
                    if keeps_log && M::SecondLevel::is_written(value) {
                        self.mark(slot, spot);
                    }
                    Some(0)
                });
                self.unmapped(slot, spot);
            });
            drop(section);
            drop(lock);
            at = self.next_table(part.end, pages.end);
            cond_resched(self.machine());
        }
        lowering.finish();
        self.free_tables(pages);
    }

    /// Returns how many pages the tables show by entries of their own, and how many huge pages. They may be changing meanwhile.
    pub fn count_pages(&self) -> [u64; 2] {
        let (mut counts, mut at) = ([0; 2], 0);
        while at < LIMIT {
            let part = Pages::new(at, LIMIT.min((at | (BATCH - 1)) + 1));
            let section = self.memory.enter();
            self.for_each_in_tables(part, part, &mut |spot| {
                let has_page = spot.has_page::<M::SecondLevel>(spot.entry.load());
                counts[usize::from(spot.is_huge())] += u64::from(has_page);
            });
            drop(section);
            at = self.next_table(part.end, LIMIT);
            cond_resched(self.machine());
        }
        counts
    }

    /// Returns `page`, or the first page behind it that may have a table; `limit` if there is none before it.
    pub(crate) fn next_table(&self, page: u64, limit: u64) -> u64 {
        let _section = self.memory.enter();
        // SAFETY: inside the section.
        unsafe {
            faultless_paging::next_table::<M::SecondLevel, M>(
                self.machine(),
                self.root,
                page,
                limit,
            )
        }
    }

    /// Frees the tables of a range that are empty (rule R5). The caller excludes changes of slots, so that only one such call
    /// runs at a time.
    fn free_tables(&self, pages: Pages) {
        let (machine, cpu) = (self.machine(), self.machine().cpu());
        for level in 1..LEVELS {
            let _section = self.memory.enter();
            let _off = InterruptsOff::new(machine);
            // The entries were taken out by read-modify-writes.
            fence_after_rmw();
            // The machine flushes whole guests.
            let mut gather = Gather::new();
            // SAFETY: inside the section, with interrupts off until `unlink`.
            let detached = unsafe {
                free::detach::<M::SecondLevel, M>(
                    machine,
                    self.root,
                    pages,
                    level,
                    cpu,
                    &mut gather,
                    &|_| true,
                )
            };
            if detached == 0 {
                return;
            }
            self.flush();
            let mut give = |frame| self.memory.retire_table(frame);
            // SAFETY: this CPU detached them just now, and they are flushed.
            unsafe {
                free::unlink::<M::SecondLevel, M>(machine, self.root, pages, level, cpu, &mut give);
            }
        }
    }
}
