//! Frees empty page tables beside live neighbours, without a lock over the span (rule R5).
//!
//! For each candidate:
//!
//! 1. Claim its parent entry, which hardware can still use, and fence.
//! 2. Check whether its span has a mapping, and scan the table. If either check finds something, withdraw the
//!    claim.
//! 3. Hide the entry from hardware. The claim now remembers the table's frame.
//! 4. After the caller has flushed walk caches, [`unlink`] clears the claims and hands the tables over to be
//!    retired. Walkers may still read them until their sections end.
//!
//! Entries that the caller has *kept* count as empty: its own claims that remember a page, or a table that it
//! has detached. So pages and tables of all levels are freed with one flush, and [`kept_in`] takes them out
//! of the tables that are handed over. Other operations do see kept entries. If an operation keeps something
//! and finds a table not empty, it scans the table again after it has released what it kept. So of several
//! operations, the last one frees the table.
//!
//! A fault that claims an entry in the table validates the parent's link after its own fence. Either it sees
//! the parent claimed and withdraws, or the scan sees its claim. Loom model (b) checks this code.
//!
//! A writer that maps a range, fences, and then walks its tables without a section relies on the second check
//! for mappings. Either the writer sees the parent claimed and waits, or the check sees the new mapping. So
//! tables over mapped ranges stay.
//!
//! Several operations may free neighbouring tables concurrently. A claim that hardware can still use is held
//! only for the scan, and an operation that meets it waits. So of two operations that see each other's pages,
//! the last one frees the table.

use faultless_sync::{Backoff, Cpu, Mutant, Wait, mutant};

use crate::address::{Frame, PAGE_SIZE, Pages};
use crate::entry::Entry;
use crate::format::EntryFormat;
use crate::memory::PhysicalMemory;
use crate::table::{ENTRIES, LEVELS, Table, index, span};
use crate::tlb::Gather;

/// Calls `visit` on every non-empty entry at `level` (1 or more) that spans pages of `pages`, in tables that
/// exist.
///
/// Each entry is read once. Entries that are filled concurrently, and tables that concurrently replace
/// others, may be missed.
///
/// # Safety
/// As for [`crate::walk()`].
pub unsafe fn entries_at<F: EntryFormat, M: PhysicalMemory + Wait>(
    machine: &M,
    root: Frame,
    pages: Pages,
    level: usize,
    visit: &mut impl FnMut(&Entry, u64),
) {
    let mut page = pages.start & !(span(level) - 1);
    'next: while page < pages.end {
        let mut frame = root;
        let mut at = LEVELS - 1;
        let mut backoff = Backoff::new();
        loop {
            // SAFETY: found linked after the caller's section began.
            let table = unsafe { Table::at(machine, frame) };
            if at == level {
                let base = page & !(span(level + 1) - 1);
                let last = (pages.end - 1 - base) / span(level);
                let end = last.min(ENTRIES as u64 - 1) as usize + 1;
                let mut number = index(page, level);
                while let Some(used) = table.next_used(number, end) {
                    visit(&table.entries()[used], base + used as u64 * span(level));
                    number = used + 1;
                }
                page = base + span(level + 1);
                continue 'next;
            }
            let value = table.entry(page, at).load();
            if value == 0 {
                // Nothing below: continue with the next non-empty entry.
                let base = page & !(span(at + 1) - 1);
                let used = table.next_used(index(page, at) + 1, ENTRIES);
                page = base + used.map_or(span(at + 1), |used| used as u64 * span(at));
                continue 'next;
            }
            if F::FORMAT.is_table(value) {
                (frame, at) = (F::FORMAT.frame(value), at - 1);
            } else if F::FORMAT.is_claimed(value) {
                // A table is being installed or freed: wait for it (rule R1).
                backoff.turn(machine);
            } else {
                // A huge page: no table below.
                page = (page | (span(at) - 1)) + 1;
                continue 'next;
            }
        }
    }
}

/// Detaches the tables at `level - 1` under entries at `level` that have no entries but those that `cpu` has
/// kept. Returns their number, and adds their walk-cache entries to `gather`.
///
/// `vacant` says whether a span of pages has no mapping. Before the claim it is a cheap filter; after the
/// claim it keeps the tables of new mappings.
///
/// # Safety
/// As for [`crate::walk()`]. Interrupts are off until [`unlink`].
pub unsafe fn detach<F: EntryFormat, M: PhysicalMemory + Wait>(
    machine: &M,
    root: Frame,
    pages: Pages,
    level: usize,
    cpu: Cpu,
    gather: &mut Gather,
    vacant: &impl Fn(Pages) -> bool,
) -> usize {
    let mut detached = 0;
    let mut visit = |entry: &Entry, page: u64| {
        let pages = Pages::new(page, page + span(level));
        let mut backoff = Backoff::new();
        let (claim, value) = loop {
            let value = entry.load();
            let is_page = F::FORMAT.is_huge(value) || F::FORMAT.is_hidden(value);
            if value == 0 || is_page || !vacant(pages) {
                return;
            }
            if !F::FORMAT.is_claimed(value) {
                if let Ok(claim) = entry.claim_present::<F>(value) {
                    break (claim, value);
                }
            } else if !F::FORMAT.is_present(value) {
                // Another operation is freeing it.
                return;
            } else {
                backoff.turn(machine);
            }
        };
        let asks = !mutant(Mutant::VacancyNotAskedAgain) && !mutant(Mutant::TableNotScanned);
        if asks && !vacant(pages) {
            return;
        }
        // SAFETY: linked until now, and the claim keeps it linked.
        let table = unsafe { Table::at(machine, F::FORMAT.frame(value)) };
        if !has_kept_alone::<F>(table, cpu) && !mutant(Mutant::TableNotScanned) {
            return;
        }
        // The last value before the claim hid it: walks mark the entry until then.
        let hidden = claim.hide(cpu);
        let holders = F::FORMAT.holders(hidden.before());
        hidden.keep();
        if !mutant(Mutant::TableNotFlushed) {
            gather.add_table(page * PAGE_SIZE, span(level) * PAGE_SIZE, holders);
        }
        detached += 1;
    };
    // SAFETY: passed on to the caller.
    unsafe { entries_at::<F, M>(machine, root, pages, level, &mut visit) };
    detached
}

/// Whether an entry holds what `cpu` has kept: a claim that remembers a frame.
pub(crate) fn is_kept<F: EntryFormat>(value: u64, cpu: Cpu) -> bool {
    let format = F::FORMAT;
    let is_claim = !format.is_present(value) && value == format.claim_of(value, cpu);
    value != 0 && is_claim && format.frame(value) != Frame(0)
}

/// Whether a table has no entries but those that `cpu` has kept.
fn has_kept_alone<F: EntryFormat>(table: &Table, cpu: Cpu) -> bool {
    let mut at = 0;
    while let Some(used) = table.next_used(at, ENTRIES) {
        if !is_kept::<F>(table.entries()[used].load(), cpu) {
            return false;
        }
        at = used + 1;
    }
    true
}

/// After the flush, clears the entries that `cpu` has kept in a table, and passes each to `give`. Claims of
/// late faults may remain.
pub fn kept_in<F: EntryFormat>(table: &Table, cpu: Cpu, give: &mut dyn FnMut(u64)) {
    let mut at = 0;
    while let Some(used) = table.next_used(at, ENTRIES) {
        let entry = &table.entries()[used];
        let value = entry.load();
        if is_kept::<F>(value, cpu) {
            entry.set(0);
            give(value);
        }
        at = used + 1;
    }
}

/// After the flush, clears the claims that [`detach`] left at `level`, and passes each table to `give`.
/// Unlink higher levels first: no walk passes a kept entry.
///
/// # Safety
/// As for [`crate::walk()`]; `cpu` called `detach` for the same pages, nothing else detaches in that span
/// under this CPU's number, and walk caches are flushed.
pub unsafe fn unlink<F: EntryFormat, M: PhysicalMemory + Wait>(
    machine: &M,
    root: Frame,
    pages: Pages,
    level: usize,
    cpu: Cpu,
    give: &mut impl FnMut(Frame),
) {
    let mut visit = |entry: &Entry, _page: u64| {
        let value = entry.load();
        if is_kept::<F>(value, cpu) {
            entry.set(0);
            give(F::FORMAT.frame(value));
        }
    };
    // SAFETY: passed on to the caller.
    unsafe { entries_at::<F, M>(machine, root, pages, level, &mut visit) };
}
