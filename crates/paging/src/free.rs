//! Freeing empty tables, with live neighbours in them and no lock over the span (rule R5).
//!
//! For each candidate: claim its entry in the parent (still usable by
//! hardware), fence, ask whether anything is mapped there, and look through the table. If anything
//! is there, restore.
//! Otherwise take the entry from hardware, the claim now remembering the
//! table's frame. After the caller's flush of walk caches, [`unlink`] clears
//! the claims and hands the tables over, to be retired: walkers may still look
//! at them until their sections end.
//!
//! What the caller has *kept* is not anything: a claim of its own that remembers a page, or a table that it
//! has detached. So pages and tables of all levels go with one flush, and are taken out of the tables that are
//! handed over ([`kept_in`]). Others do see it. Who has kept something, and found a table not to be empty, looks
//! again when he has given that up: of several the last one frees it.
//!
//! A fault that claims an entry in the table validates the parent's link after
//! its own fence. Either it sees the parent claimed and withdraws, or its claim
//! is seen by the look through the table. Loom model (b) checks this code.
//!
//! Whoever maps something and then, after a fence, walks its tables without a section relies on the
//! question being asked again: either he sees the parent claimed, and waits, or what he has
//! mapped is seen. So tables over what is mapped stay.
//!
//! Several may free neighbouring tables at once. A claim that hardware can still use is held for
//! the look alone: who meets it waits, so that of two who each see the other's pages the last one
//! frees the table.

use faultless_sync::{Backoff, Cpu, Mutant, Wait, mutant};

use crate::address::{Frame, PAGE_SIZE, Pages};
use crate::entry::Entry;
use crate::format::EntryFormat;
use crate::memory::PhysicalMemory;
use crate::table::{ENTRIES, LEVELS, Table, index, span};
use crate::tlb::Gather;

/// Calls `visit` on every entry at `level` (1 or more) that is not empty, spans
/// pages of `pages`, and whose own table exists.
///
/// An entry is looked at once. What is put beside a visit into entries that were
/// empty, or into a table in place of one that was, is not seen.
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
                // Nothing below; go on with the next entry that has something.
                let base = page & !(span(at + 1) - 1);
                let used = table.next_used(index(page, at) + 1, ENTRIES);
                page = base + used.map_or(span(at + 1), |used| used as u64 * span(at));
                continue 'next;
            }
            if F::FORMAT.is_table(value) {
                (frame, at) = (F::FORMAT.frame(value), at - 1);
            } else if F::FORMAT.is_claimed(value) {
                // A table comes or goes: rule R1 says to wait for it.
                backoff.turn(machine);
            } else {
                // A huge page of a higher level: there is nothing below.
                page = (page | (span(at) - 1)) + 1;
                continue 'next;
            }
        }
    }
}

/// Claims the tables at `level - 1` under entries at `level` that are empty, but for what `cpu` has kept.
/// Returns how many; their walk-cache entries are in `gather`.
///
/// `vacant` says whether a span of pages holds no mapping. Before the claim it is a cheap
/// filter; after it, it keeps tables of what was mapped meanwhile.
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
            if value == 0 || F::FORMAT.is_huge(value) || !vacant(pages) {
                return;
            }
            if !F::FORMAT.is_claimed(value) {
                if let Ok(claim) = entry.claim_present::<F>(value) {
                    break (claim, value);
                }
            } else if !F::FORMAT.is_present(value) {
                // Somebody else is freeing it.
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
        // What it was to the last: walks mark it until it is hidden.
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

/// Whether there is nothing in a table but what `cpu` has kept.
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

/// Clears what `cpu` has kept in a table, after the flush, and hands each over. Of other
/// claims there may be some, of faults that come too late.
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

/// Clears the claims that [`detach`] left at `level`, after the flush, and
/// hands each table over. Higher levels first: below what is kept nothing is found.
///
/// # Safety
/// As for [`crate::walk()`]; `cpu` called `detach` for the same pages, nobody
/// else detaches in that span under this CPU's number, and walk caches are flushed.
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
