//! Finds the page-table entry of a page without a lock.
//!
//! Loads are acquire, so that a walk sees a table initialised. A table that is unlinked meanwhile stays a
//! table until the walker's section ends. The unlink shows in the table's [`Link`], which is validated after
//! the claim.
//!
//! *Writes*: nothing, except for [`walk_marking`], a machine's own walk, which marks the entries that it
//! loads.

use faultless_sync::{Cpu, Mutant, mutant};

use crate::address::{Frame, Page};
use crate::entry::{Entry, Value};
use crate::format::EntryFormat;
use crate::memory::PhysicalMemory;
use crate::pte::Pte;
use crate::table::{ENTRIES, LEVELS, Table, index, span};

/// A table's link in its parent entry. A claim in the table is validated against it.
#[derive(Clone, Copy)]
pub struct Link<'s> {
    parent: Option<(&'s Entry, Value)>,
    /// Bits that table walks set in the parent entry.
    marks: Value,
    is_frozen: bool,
}

impl<'s> Link<'s> {
    /// Returns the table, in which the entries beside the one that was found are; `None` for a root.
    #[inline]
    pub fn table<F: EntryFormat, P: PhysicalMemory + ?Sized>(
        &self,
        memory: &P,
    ) -> Option<&'s Table> {
        let (_, value) = self.parent?;
        // SAFETY: the walk has found it linked, and during `'s` it is not reused.
        Some(unsafe { Table::at(memory, F::FORMAT.frame(value)) })
    }

    /// Whether the parent entry still links the table, and the table is not frozen. Called after a full fence
    /// that follows the claim. Partners: the fence after the claim of the parent in [`crate::free`], and the
    /// fence after a fork froze the parent.
    #[inline]
    pub fn is_valid(&self) -> bool {
        if self.is_frozen && !mutant(Mutant::FrozenIgnored) {
            return false;
        }
        match self.parent {
            Some((entry, value)) => {
                (entry.load_relaxed() ^ value) & !self.marks == 0
                    || mutant(Mutant::LinkNotValidated)
            }
            None => true,
        }
    }

    /// Whether the table was frozen: hardware allows no store to its pages, and a fork has not copied it yet.
    #[inline]
    pub fn is_frozen(&self) -> bool {
        self.is_frozen
    }
}

/// The result of a walk.
pub enum Walk<'s> {
    /// At the entry of the page.
    Leaf {
        /// The entry.
        entry: &'s Entry,
        /// Its value.
        value: Value,
        /// Its table's link.
        link: Link<'s>,
    },
    /// At an empty entry above the page: a table is missing.
    Missing {
        /// The level of the empty entry, 1 or more.
        level: usize,
        /// The empty entry.
        entry: &'s Entry,
        /// Its table's link.
        link: Link<'s>,
    },
    /// At an entry above the page that maps a huge page.
    Huge {
        /// The level of the entry, 1 or more.
        level: usize,
        /// The entry.
        entry: &'s Entry,
        /// Its value.
        value: Value,
        /// Its table's link.
        link: Link<'s>,
    },
    /// At a claimed entry above the page: a table is being installed or freed.
    Busy,
}

/// Returns `page`, or the first page after it that may have a table of the lowest level. Skips large ranges
/// that were never touched. Returns at least `limit` if there is no such page before it.
///
/// # Safety
/// As for [`walk()`].
pub unsafe fn next_table<F: EntryFormat, P: PhysicalMemory + ?Sized>(
    memory: &P,
    root: Frame,
    page: u64,
    limit: u64,
) -> u64 {
    let mut page = page;
    'root: while page < limit {
        let mut frame = root;
        for level in (1..LEVELS).rev() {
            // SAFETY: found linked as a table after the section began.
            let table = unsafe { Table::at(memory, frame) };
            let first = index(page, level);
            let Some(number) = table.next_used(first, ENTRIES) else {
                // Nothing more in this table.
                page = (page | (span(level + 1) - 1)) + 1;
                continue 'root;
            };
            if number != first {
                page = (page & !(span(level) - 1)) + (number - first) as u64 * span(level);
            }
            let value = table.entries()[number].load();
            if !F::FORMAT.is_table(value) {
                // A huge page, or a table that is being installed or freed, or was freed: the caller looks
                // closer.
                return page;
            }
            frame = F::FORMAT.frame(value);
        }
        return page;
    }
    page
}

/// The lowest table over a page, as found by a walk that does not wait.
pub enum Lowest<'s> {
    /// The table.
    Table(&'s Table),
    /// There is no table.
    Missing,
    /// A table is being installed or freed, or there is a huge page.
    Busy,
}

/// Returns the lowest table over `page`.
///
/// # Safety
/// As for [`walk()`].
#[inline]
pub unsafe fn lowest<'s, F: EntryFormat, P: PhysicalMemory + ?Sized>(
    memory: &P,
    root: Frame,
    page: u64,
) -> Lowest<'s> {
    let mut frame = root;
    for level in (1..LEVELS).rev() {
        // SAFETY: found linked as a table after the section began.
        let value = unsafe { Table::at(memory, frame) }
            .entry(page, level)
            .load();
        if !F::FORMAT.is_table(value) {
            return match value {
                0 => Lowest::Missing,
                _ => Lowest::Busy,
            };
        }
        frame = F::FORMAT.frame(value);
    }
    // SAFETY: as above.
    Lowest::Table(unsafe { Table::at(memory, frame) })
}

/// Walks from `root` to the entry of `page`.
///
/// # Safety
/// `root` is a root table, and tables that are linked below it when the walk begins are not reused during
/// `'s`: the caller is in a read section, or excludes freeing.
#[inline]
pub unsafe fn walk<'s, F: EntryFormat, P: PhysicalMemory + ?Sized>(
    memory: &P,
    root: Frame,
    page: Page,
) -> Walk<'s> {
    // SAFETY: passed on to the caller.
    unsafe { walk_by::<F, P>(memory, root, page, 0, &|entry| entry.load()) }
}

/// Walks from `root` to the entry of `page` at `level`, where 0 is the lowest.
///
/// # Safety
/// As for [`walk()`].
#[inline]
pub unsafe fn walk_to<'s, F: EntryFormat, P: PhysicalMemory + ?Sized>(
    memory: &P,
    root: Frame,
    page: Page,
    level: usize,
) -> Walk<'s> {
    // SAFETY: passed on to the caller.
    unsafe { walk_by::<F, P>(memory, root, page, level, &|entry| entry.load()) }
}

/// Walks like hardware, as CPU `cpu` of a machine that marks loads ([`crate::Tlb::marks_loads`]). Each entry
/// that leads to a table is marked before the table is read. The caller marks the page's own entry, if it
/// allows the access.
///
/// # Safety
/// `root` is a root table, and during `'s` a flush that names `cpu` waits for the caller.
#[inline]
pub unsafe fn walk_marking<'s, F: EntryFormat, P: PhysicalMemory + ?Sized>(
    memory: &P,
    root: Frame,
    page: Page,
    cpu: Cpu,
) -> Walk<'s> {
    let load = |entry: &Entry| {
        loop {
            let value = entry.load();
            if !F::FORMAT.is_present(value) || F::FORMAT.is_claimed(value) {
                return value;
            }
            let marked = F::FORMAT.loaded(value, cpu);
            if marked == value || entry.replace(value, marked).is_ok() {
                return marked;
            }
        }
    };
    // SAFETY: passed on to the caller: freeing a table flushes every CPU that has marked its parent.
    unsafe { walk_by::<F, P>(memory, root, page, 0, &load) }
}

/// Walks from `root` to the entry at level `bottom`, and loads the entries above it by `load`.
#[inline(always)]
unsafe fn walk_by<'s, F: EntryFormat, P: PhysicalMemory + ?Sized>(
    memory: &P,
    root: Frame,
    page: Page,
    bottom: usize,
    load: &impl Fn(&Entry) -> Value,
) -> Walk<'s> {
    let mut frame = root;
    let mut link = Link {
        parent: None,
        marks: F::FORMAT.marks(),
        is_frozen: false,
    };
    let mut level = LEVELS - 1;
    loop {
        // SAFETY: the frame was found linked as a table after the section began.
        let table = unsafe { Table::at(memory, frame) };
        let entry = table.entry(page.0, level);
        let value = if level == bottom {
            entry.load()
        } else {
            load(entry)
        };
        if level == bottom {
            return Walk::Leaf { entry, value, link };
        }
        if !F::FORMAT.is_table(value) {
            return match F::FORMAT.decode(value, level) {
                Pte::Empty => Walk::Missing { level, entry, link },
                Pte::Huge(_) => Walk::Huge {
                    level,
                    entry,
                    value,
                    link,
                },
                _ => Walk::Busy,
            };
        }
        frame = F::FORMAT.frame(value);
        link = Link {
            parent: Some((entry, value)),
            marks: F::FORMAT.marks(),
            is_frozen: F::FORMAT.is_frozen(value),
        };
        level -= 1;
    }
}
