//! Splits an entry that shows a huge page: a table of entries that show its pages takes its place.
//!
//! * The table is filled before it is shown, from the entry's value, and shown by a compare-and-swap from that value. So what
//!   hardware, the host or another split does meanwhile is not lost, and nothing waits.
//! * Where stores are logged, a split is what lets one page be written, or be clean, alone. It is made before a vCPU needs it (KVM:
//!   `eager_page_split`): when logging begins, or when a log that began full is cleared. Without memory for the table, the entry
//!   stays whole without write access; the marks of its pages, if they are not cleaned, move to the bits of the log. The next
//!   store's fault then splits it.
//!
//! *Writes*: the entry, the table.
//!
//! *Models*: loom `huge.rs`.

use faultless_mm::{FrameSource, NoMemory};
use faultless_paging::{PAGE_SIZE, Pages, Table, Value};
use faultless_sync::{Mutant, mutant};

use crate::format::SecondLevel;
use crate::guest::{Guest, GuestMachine, HostSpace};
use crate::log::bitmap;
use crate::slots::slot::SlotBody;
use crate::tables::{InterruptsOff, Spot};

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Splits the huge page of an entry, if it still shows one. `change` makes of each small entry what it is to be. The caller is in
    /// a section, and has the lock, if this guest has one.
    ///
    /// # Errors
    /// [`NoMemory`]; nothing is changed then.
    #[cold]
    #[inline(never)]
    pub(crate) fn split(
        &self,
        slot: &SlotBody,
        spot: Spot<'_>,
        change: impl Fn(Value) -> Value,
    ) -> Result<(), NoMemory> {
        let frame = self.memory.allocate_deposit()?;
        // SAFETY: a table that nothing links yet.
        let table = unsafe { Table::at(self.machine(), frame) };
        loop {
            let value = self.settled(spot.entry);
            if !M::SecondLevel::has_huge(value) {
                self.memory.retire_table(frame);
                return Ok(());
            }
            let (first, step) = self.parts_of(value);
            let first = change(first);
            for (number, entry) in (0..).zip(table.entries()) {
                entry.set(first + number * step);
            }
            if mutant(Mutant::GuestSplitByStore) {
                spot.entry.set(Self::FORMAT.table(frame));
                break;
            }
            // Release: the entries come before the table.
            if spot.entry.replace(value, Self::FORMAT.table(frame)).is_ok() {
                break;
            }
        }
        for (page, entry) in (spot.first()..).zip(table.entries()) {
            let pages = Pages::new(page, page + 1);
            self.mapped(slot, Spot::new(entry, pages));
        }
        Ok(())
    }

    /// Returns the first entry of the parts of a huge page, and by how much each is more than the one before. All parts of the huge zero
    /// page are the small one, as in the host.
    fn parts_of(&self, value: Value) -> (Value, u64) {
        let (frames, first) = (self.machine().frames(), Self::FORMAT.part(value, 0));
        match frames.huge_zero_frame() == Some(Self::FORMAT.frame(value)) {
            true => (Self::FORMAT.with_frame(first, frames.zero_frame()), 0),
            false => (first, PAGE_SIZE),
        }
    }

    /// Makes the pages of a huge entry clean, because a log begins. Returns whether anything was changed that has to be flushed.
    #[cold]
    #[inline(never)]
    pub(crate) fn protect_huge(&self, slot: &SlotBody, spot: Spot<'_>) -> bool {
        let clean = |value| self.cleaned(value).unwrap_or(value);
        let is_split = self.options.eager_page_split && self.split(slot, spot, clean).is_ok();
        is_split || self.change(spot, |value| self.cleaned(value)).is_some()
    }

    /// Makes some of the pages of a huge entry able to be clean alone, because they are about to be: splits it, if it counts as
    /// written. Returns whether it has become clean as a whole instead, which has to be flushed, and the log's bits say which of its
    /// pages are dirty.
    #[cold]
    #[inline(never)]
    pub(crate) fn open_huge(&self, slot: &SlotBody, spot: Spot<'_>) -> bool {
        loop {
            let value = self.settled(spot.entry);
            if !spot.has_page::<M::SecondLevel>(value) {
                return false;
            }
            let Some(clean) = self.cleaned(value) else {
                return false;
            };
            if self.options.eager_page_split && self.split(slot, spot, |value| value).is_ok() {
                return false;
            }
            // As for the mark of a page that is zapped.
            let _off = InterruptsOff::new(self.machine());
            if let Ok(claim) = spot
                .entry
                .claim::<M::SecondLevel>(value, self.machine().cpu())
            {
                self.mark(slot, spot);
                claim.publish(clean);
                return true;
            }
        }
    }

    /// Marks the pages of an entry in the log's bits.
    #[inline(never)]
    pub(crate) fn mark(&self, slot: &SlotBody, spot: Spot<'_>) {
        for page in spot.first()..spot.pages().end {
            bitmap::set(self.machine(), slot, page - slot.pages.start);
        }
    }
}
