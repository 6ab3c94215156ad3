//! The scan that makes huge pages of small ones in the background (Linux: `khugepaged`).
//!
//! A thread of the port calls [`Memory::scan_huge`] at intervals. It goes through the spaces that are registered
//! ([`crate::space::huge_scan`]), one after the other, in the order of their numbers, and table by table.
//!
//! * It looks at a table inside a section, without a lock. Only a table that Linux's rules let collapse is collapsed, as
//!   `MADV_COLLAPSE` does, with the span's range locked: something in it can be written and was used since it was last looked
//!   at, and the settings bound what is empty, swapped out or shared ([`HugeScanSetting`]).
//! * Under the lock the rules are asked again, apart from the use.
//! * A space that ends waits for the step that is in it, which leaves it before the next table.
//! * Without a free block of frames, pages are moved to make one, if that is wanted ([`crate::reclaim::blocks`]).
//!
//! *Writes*: what a collapse writes; the scan's state.
//!
//! *Models*: loom `table/collapse.rs`, shuttle `ops/any.rs`.

use faultless_frames::NoMemory;
use faultless_paging::{ENTRIES, Frame, Page, Pages, Table, Walk};
use faultless_sync::atomic::Ordering;
use faultless_sync::cond_resched;
use faultless_trace::Counter;

use crate::base::errno::Errno;
use crate::base::huge::{HugeMode, HugeScanSetting};
use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::space::AddressSpace;
use crate::table::collapse::{Bounds, Survey};
use crate::table::huge::{HUGE_LEVEL, huge_span};
use crate::tree::mapping::Attributes;

/// How a step of the scan ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugeScan {
    /// There is nothing to scan: no space is registered, or none gets huge pages.
    Idle,
    /// It has looked at as many pages as a step does, or at all.
    Done,
    /// It has found no block of frames.
    NoBlock,
}

impl<M: Machine> Memory<M> {
    /// Makes one step of the scan. Lets other threads run in between. One thread calls this, and holds nothing.
    pub fn scan_huge(&'static self) -> HugeScan {
        let state = &self.huge.scan;
        let mut left = u64::from(self.huge.of_scan(HugeScanSetting::PagesToScan));
        let mut rounds = 0;
        // As on Linux, a step begins at most one round.
        while left > 0 && rounds < 2 {
            let has_work = state.spaces.load(Ordering::Relaxed) > 0;
            if !has_work || self.huge.mode() == HugeMode::Never {
                return HugeScan::Idle;
            }
            let number = state.space.load(Ordering::Relaxed);
            let is_meant = |space: &AddressSpace<M>| space.is_registered_for_scan();
            let Some(space) = self.visit_next(number.saturating_sub(1), is_meant) else {
                state.space.store(0, Ordering::Relaxed);
                state.rounds.fetch_add(1, Ordering::Relaxed);
                rounds += 1;
                continue;
            };
            let from = match space.number() == number {
                true => state.page.load(Ordering::Relaxed),
                false => 0,
            };
            left -= 1;
            let (next, result) = space.scan_huge(from, &mut left);
            let (number, page) = match next {
                Some(page) => (space.number(), page),
                None => (space.number() + 1, 0),
            };
            drop(space);
            state.space.store(number, Ordering::Relaxed);
            state.page.store(page, Ordering::Relaxed);
            if result.is_err() {
                return HugeScan::NoBlock;
            }
            cond_resched(self.machine());
        }
        HugeScan::Done
    }

    /// Returns a block of frames for the scan.
    fn block_for_scan(&'static self) -> Result<Frame, NoMemory> {
        let makes = self.huge.of_scan(HugeScanSetting::Defrag) != 0;
        self.allocate_huge().or_else(|none| match makes {
            true => self.make_block(),
            false => Err(none),
        })
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Scans tables from the one of page `from` on, while pages are `left` to be looked at. Returns the page from which to
    /// continue, if there is more, and whether there was a block for each table that is to be collapsed.
    fn scan_huge(&self, from: u64, left: &mut u64) -> (Option<u64>, Result<(), NoMemory>) {
        let end = self.all_pages().end;
        let mut at = from;
        while *left > 0 {
            at = self.tables().first_table(at, end);
            if at >= end || self.is_ending() || self.huge_is_off() {
                return (None, Ok(()));
            }
            let span = huge_span(at);
            at = span.end;
            // As on Linux, what gets no huge pages costs next to nothing.
            let is_meant = self.is_meant(span);
            let cost = if is_meant { span.len() } else { 1 };
            *left = left.saturating_sub(cost);
            if is_meant && self.may_gain(span) {
                let result = self.collapse_in_background(span);
                if result == Err(Errno::ENOMEM) {
                    return (Some(at), Err(NoMemory));
                }
            }
            cond_resched(self.machine());
        }
        (Some(at), Ok(()))
    }

    fn collapse_in_background(&self, span: Pages) -> Result<(), Errno> {
        let (memory, settings) = (self.memory(), &self.memory().huge);
        self.bring_back(span);
        let bounds = Bounds {
            empty: settings.of_scan(HugeScanSetting::MaxNone),
            shared: settings.of_scan(HugeScanSetting::MaxShared),
        };
        let is_allowed = |attributes: &Attributes| match self.may_scan(attributes) {
            true => Ok(()),
            false => Err(Errno::EINVAL),
        };
        self.make_huge(span, bounds, is_allowed, || memory.block_for_scan())?;
        settings.scan.collapsed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Whether mappings with these attributes are scanned.
    fn may_scan(&self, attributes: &Attributes) -> bool {
        self.wants_huge_pages(attributes) && !attributes.protection.is_none()
    }

    /// Whether one mapping that is scanned covers a span.
    fn is_meant(&self, span: Pages) -> bool {
        let part = self.next_part(span.start, span.end);
        part.is_some_and(|(run, attributes)| {
            run.pages == span && attributes.is_some_and(|attributes| self.may_scan(&attributes))
        })
    }

    /// Whether a span has a table that is to be collapsed.
    fn may_gain(&self, span: Pages) -> bool {
        let section = self.memory().enter();
        let format = Self::FORMAT;
        let walked = self
            .tables()
            .descend_to(Page(span.start), HUGE_LEVEL, &section);
        match walked {
            Walk::Leaf { value, .. } if format.is_table(value) && !format.is_claimed(value) => {
                // SAFETY: found linked inside the section.
                let table = unsafe { Table::at(self.machine(), format.frame(value)) };
                self.is_worth_it(&self.tables().survey(table))
            }
            _ => false,
        }
    }

    /// Whether the rules say that a table is to be collapsed.
    fn is_worth_it(&self, found: &Survey) -> bool {
        let bound = |which| self.memory().huge.of_scan(which);
        let exceeds = [
            (
                found.swapped,
                HugeScanSetting::MaxSwap,
                Counter::ThpScanExceedSwap,
            ),
            (
                found.empty,
                HugeScanSetting::MaxNone,
                Counter::ThpScanExceedNone,
            ),
            (
                found.shared,
                HugeScanSetting::MaxShared,
                Counter::ThpScanExceedShared,
            ),
        ];
        for (count, most, counter) in exceeds {
            if count > bound(most) {
                self.memory().count(counter);
                return false;
            }
        }
        let is_used = found.used > 0 && (found.swapped == 0 || found.used >= ENTRIES as u32 / 2);
        found.is_fit() && is_used
    }
}
