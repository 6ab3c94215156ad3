//! Second-level tables: an entry with the tables that lead to it, and walks over ranges.
//!
//! The protocol is that of the first level ([`faultless_paging::entry`]). A table is installed like a page, and is freed only
//! with its slot or its guest.
//!
//! *Writes*: the entries.
//!
//! *Models*: loom `guests.rs`.

use faultless_mm::NoMemory;
use faultless_paging::{
    ENTRIES, Entry, Frame, Gather, LEVELS, Link, Page, Pages, Table, Value, Walk, free, walk,
};
use faultless_sync::reclaim::Section;
use faultless_sync::{Backoff, cond_resched, fence_after_rmw};

use crate::format::SecondLevel;
use crate::guest::{Guest, GuestMachine, HostSpace};
use crate::log::bitmap;
use crate::slots::slot::SlotBody;

/// Pages that one section works on.
const BATCH: u64 = 8 * ENTRIES as u64;

/// An entry of a page, with what its claim is validated against.
pub(crate) struct Place<'s> {
    pub(crate) entry: &'s Entry,
    pub(crate) value: Value,
    pub(crate) link: Link<'s>,
}

/// Why a fault tries again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// Another operation is at work on an entry, or was faster.
    Busy,
    /// The host's page has to be brought first, by a fault at this page of the host.
    Host(u64),
    /// There is no memory for a table.
    Memory,
}

impl From<NoMemory> for Again {
    fn from(_: NoMemory) -> Self {
        Again::Memory
    }
}

/// Interrupts are off as long as this lives: between a claim and its publication.
pub(crate) struct InterruptsOff<'a, M: GuestMachine>(&'a M, bool);

impl<'a, M: GuestMachine> InterruptsOff<'a, M> {
    #[inline]
    pub(crate) fn new(machine: &'a M) -> Self {
        Self(machine, machine.interrupts_off())
    }
}

impl<M: GuestMachine> Drop for InterruptsOff<'_, M> {
    #[inline]
    fn drop(&mut self) {
        self.0.interrupts_restore(self.1);
    }
}

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Walks to the entry of a page.
    #[inline]
    pub(crate) fn descend<'s>(&'s self, page: Page, _section: &'s Section<'_>) -> Walk<'s> {
        // SAFETY: the root lives as long as `self`, and the section keeps tables from being reused.
        unsafe { walk::<M::SecondLevel, M>(self.machine(), self.root, page) }
    }

    /// Returns the entry of a page, with tables made as needed.
    #[inline]
    pub(crate) fn place<'s>(
        &'s self,
        page: Page,
        section: &'s Section<'_>,
    ) -> Result<Place<'s>, Again> {
        loop {
            match self.descend(page, section) {
                Walk::Leaf { entry, value, link } => return Ok(Place { entry, value, link }),
                Walk::Missing { entry, link, .. } => self.install(entry, link)?,
                Walk::Busy | Walk::Huge { .. } => return Err(Again::Busy),
            }
        }
    }

    /// Installs an empty table.
    #[cold]
    fn install(&self, entry: &Entry, link: Link<'_>) -> Result<(), Again> {
        let frame = self.memory.allocate_table()?;
        let machine = self.machine();
        let _off = InterruptsOff::new(machine);
        match entry.claim::<M::SecondLevel>(0, machine.cpu()) {
            Ok(claim) if link.is_valid() => {
                claim.publish(Self::FORMAT.table(frame));
                Ok(())
            }
            _ => {
                self.memory.retire_table(frame);
                Err(Again::Busy)
            }
        }
    }

    /// Calls `visit` with every entry of `pages` that is not empty. The caller is in a section.
    pub(crate) fn for_each(&self, pages: Pages, visit: &mut impl FnMut(&Entry, u64)) {
        let mut table_of = |parent: &Entry, base: u64| {
            let mut backoff = Backoff::new();
            let value = loop {
                let value = parent.load();
                if !Self::FORMAT.is_claimed(value) {
                    break value;
                }
                // A table is being installed or freed (rule R1).
                backoff.turn(self.machine());
            };
            if !Self::FORMAT.is_table(value) {
                return;
            }
            // SAFETY: found linked inside the caller's section.
            let table = unsafe { Table::at(self.machine(), Self::FORMAT.frame(value)) };
            self.machine().poll();
            let part = pages.and(Pages::new(base, base + ENTRIES as u64));
            let (mut at, end) = ((part.start - base) as usize, (part.end - base) as usize);
            while let Some(number) = table.next_used(at, end) {
                visit(&table.entries()[number], base + number as u64);
                at = number + 1;
            }
        };
        // SAFETY: inside the caller's section.
        unsafe {
            free::entries_at::<M::SecondLevel, M>(
                self.machine(),
                self.root,
                pages,
                1,
                &mut table_of,
            );
        }
    }

    /// Changes an entry with a page, and waits for a claim. `change` returns the new value, or `None` to leave it. Returns the
    /// value that was replaced.
    #[inline]
    pub(crate) fn change(
        &self,
        entry: &Entry,
        mut change: impl FnMut(Value) -> Option<Value>,
    ) -> Option<Value> {
        let mut backoff = Backoff::new();
        loop {
            let value = entry.load();
            if Self::FORMAT.is_claimed(value) {
                backoff.turn(self.machine());
                continue;
            }
            if !M::SecondLevel::has_page(value) {
                return None;
            }
            let new = change(value)?;
            if entry.replace(value, new).is_ok() {
                return Some(value);
            }
        }
    }

    /// Zaps all pages of a range, flushes, and frees tables that are empty. What was written goes into the log of `slot`, if
    /// that is still used.
    pub(crate) fn zap(&self, pages: Pages, slot: Option<&SlotBody>) {
        let slot = slot.filter(|slot| slot.logs());
        let mut at = pages.start;
        let mut has_zapped = false;
        while at < pages.end {
            let part = Pages::new(at, pages.end.min((at | (BATCH - 1)) + 1));
            let section = self.memory.enter();
            self.for_each(part, &mut |entry, page| {
                if let Some(before) = self.change(entry, |_| Some(0)) {
                    has_zapped = true;
                    if let Some(slot) = slot.filter(|_| M::SecondLevel::is_written(before)) {
                        bitmap::set(self.machine(), slot, page - slot.pages.start);
                    }
                }
            });
            drop(section);
            at = self.next_table(part.end, pages.end);
            cond_resched(self.machine());
        }
        if has_zapped {
            self.flush();
        }
        self.free_tables(pages);
    }

    /// Returns `page`, or the first page behind it that may have a table; `limit` if there is none before it.
    fn next_table(&self, page: u64, limit: u64) -> u64 {
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

    /// Retires all tables. Only the caller uses them, and perhaps the hook.
    pub(crate) fn retire_tables(&self) {
        self.retire_below(self.root, LEVELS - 1);
    }

    fn retire_below(&self, frame: Frame, level: usize) {
        // SAFETY: linked, and not yet retired.
        let table = unsafe { Table::at(self.machine(), frame) };
        if level > 0 {
            let values = table.entries().iter().map(Entry::load);
            for value in values.filter(|&value| Self::FORMAT.is_table(value)) {
                self.retire_below(Self::FORMAT.frame(value), level - 1);
            }
        }
        self.memory.retire_table(frame);
    }
}
