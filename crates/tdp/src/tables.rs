//! Second-level tables: an entry with the tables that lead to it, and its changes.
//!
//! The protocol is that of the first level ([`faultless_paging::entry`]), under both MMUs ([`crate::mmu`]). A table is installed
//! like a page. An entry one level up may show a huge page instead ([`crate::huge`]).
//!
//! *Writes*: the entries.
//!
//! *Models*: loom `host.rs`, `log.rs`, `slots.rs`.

use faultless_mm::NoMemory;
use faultless_paging::{
    Entry, Frame, LEVELS, Link, Page, Pages, Table, Value, Walk, walk, walk_to,
};
use faultless_sync::Backoff;
use faultless_sync::reclaim::Section;

use crate::format::SecondLevel;
use crate::guest::{Guest, GuestMachine, HostSpace};
use crate::huge::{HUGE_LEVEL, span_of};
use crate::log::ring::RingFull;

/// An entry of a page, with what its claim is validated against.
pub(crate) struct Place<'s> {
    pub(crate) entry: &'s Entry,
    pub(crate) value: Value,
    pub(crate) link: Link<'s>,
    /// It is the entry of a huge page around the page.
    pub(crate) is_huge: bool,
}

/// An entry with the pages that it shows: one, or those of a huge page. Two words, so that a visit of one costs no memory.
#[derive(Clone, Copy)]
pub(crate) struct Spot<'e> {
    pub(crate) entry: &'e Entry,
    /// Twice the first page, and 1 more for a huge page.
    place: u64,
}

impl<'e> Spot<'e> {
    /// Returns the spot of these pages: one, or those of a huge page.
    #[inline]
    pub(crate) fn new(entry: &'e Entry, pages: Pages) -> Self {
        let place = pages.start << 1 | u64::from(pages.len() > 1);
        Self { entry, place }
    }

    #[inline]
    pub(crate) fn is_huge(self) -> bool {
        self.place & 1 != 0
    }

    /// Returns the first page.
    #[inline]
    pub(crate) fn first(self) -> u64 {
        self.place >> 1
    }

    /// Returns the pages.
    #[inline]
    pub(crate) fn pages(self) -> Pages {
        match self.is_huge() {
            true => span_of(self.first()),
            false => Pages::new(self.first(), self.first() + 1),
        }
    }

    /// Whether a value of the entry shows a page. Where a huge page was, there may be a table meanwhile.
    #[inline]
    pub(crate) fn has_page<F: SecondLevel>(self, value: Value) -> bool {
        match self.is_huge() {
            true => F::has_huge(value),
            false => F::has_page(value),
        }
    }
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
    /// There is no place in the ring. The fault ends with this.
    Ring(RingFull),
}

impl From<RingFull> for Again {
    fn from(full: RingFull) -> Self {
        Again::Ring(full)
    }
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
    /// Walks to the entry of a page, or to that of a huge page around it. One of which access is tracked looks busy.
    #[inline]
    pub(crate) fn descend<'s>(&'s self, page: Page, _section: &'s Section<'_>) -> Walk<'s> {
        // SAFETY: the root lives as long as `self`, and the section keeps tables from being reused.
        unsafe { walk::<M::SecondLevel, M>(self.machine(), self.root, page) }
    }

    /// Walks to the entry that a huge page around a page has.
    pub(crate) fn descend_to_huge<'s>(&'s self, page: Page, _section: &'s Section<'_>) -> Walk<'s> {
        // SAFETY: as above.
        unsafe { walk_to::<M::SecondLevel, M>(self.machine(), self.root, page, HUGE_LEVEL) }
    }

    /// Returns the entry of a page, with tables made as needed, or that of a huge page around it.
    #[inline]
    pub(crate) fn place<'s>(
        &'s self,
        page: Page,
        section: &'s Section<'_>,
    ) -> Result<Place<'s>, Again> {
        loop {
            match self.descend(page, section) {
                Walk::Leaf { entry, value, link } => {
                    return Ok(Place {
                        entry,
                        value,
                        link,
                        is_huge: false,
                    });
                }
                Walk::Missing { entry, link, .. } => self.install(entry, link)?,
                Walk::Huge { .. } | Walk::Busy => return self.huge_around(page, section),
            }
        }
    }

    #[cold]
    fn huge_around<'s>(&'s self, page: Page, section: &'s Section<'_>) -> Result<Place<'s>, Again> {
        match self.descend_to_huge(page, section) {
            Walk::Leaf { entry, value, link } if M::SecondLevel::has_huge(value) => Ok(Place {
                entry,
                value,
                link,
                is_huge: true,
            }),
            _ => Err(Again::Busy),
        }
    }

    /// Installs an empty table.
    #[cold]
    pub(crate) fn install(&self, entry: &Entry, link: Link<'_>) -> Result<(), Again> {
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

    /// Returns an entry's value when it is not claimed; waits for claims.
    #[inline]
    pub(crate) fn settled(&self, entry: &Entry) -> Value {
        let mut backoff = Backoff::new();
        loop {
            let value = entry.load();
            if !Self::FORMAT.is_claimed(value) {
                return value;
            }
            backoff.turn(self.machine());
        }
    }

    /// Changes an entry with a page, and waits for a claim. `change` returns the new value, or `None` to leave it. Returns the
    /// value that was replaced.
    #[inline]
    pub(crate) fn change(
        &self,
        spot: Spot<'_>,
        mut change: impl FnMut(Value) -> Option<Value>,
    ) -> Option<Value> {
        let mut backoff = Backoff::new();
        loop {
            let value = spot.entry.load();
            if Self::FORMAT.is_claimed(value) {
                backoff.turn(self.machine());
                continue;
            }
            if !spot.has_page::<M::SecondLevel>(value) {
                return None;
            }
            let new = change(value)?;
            if spot.entry.replace(value, new).is_ok() {
                return Some(value);
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
