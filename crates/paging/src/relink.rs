//! Moving a whole table: from under one parent entry to under another.
//!
//! The pages of a table change their addresses all at once, and no entry of theirs is written. In ranges that
//! admit no new claims:
//!
//! 1. [`detach_whole`] claims the parent entry, waits until no entry of the table is claimed, and hides the
//!    table from hardware. A claim that came too early may belong to an operation that walks back to its
//!    entries by their addresses (DONTNEED, a guard), so that the table waits for all of them.
//! 2. One flush (rule R2).
//! 3. [`relink`] empties the old parent entries and gives the tables to their new ones.
//!
//! While it waits for a claim nothing is claimed here: the holder of that claim may be waiting for the table's
//! parent (rule R9).
//!
//! *Writes*: the two parent entries.

use faultless_sync::{Backoff, Cpu, Mutant, Wait, mutant};

use crate::address::{Frame, PAGE_SIZE, Page};
use crate::entry::Entry;
use crate::format::EntryFormat;
use crate::free::{entries_at, is_kept};
use crate::memory::PhysicalMemory;
use crate::table::{ENTRIES, LEVELS, Table, span};
use crate::tlb::Gather;
use crate::walk::{Walk, walk_to};
use crate::{Pages, Pte};

/// Hides the lowest table over the pages from `base` on; `base` is the first page of a table. Whether there is
/// one. Until [`relink`] its parent entry holds a claim of `cpu` that remembers the table.
///
/// # Safety
/// As for [`crate::walk()`]. Interrupts are off until `relink`.
pub unsafe fn detach_whole<F: EntryFormat, M: PhysicalMemory + Wait>(
    machine: &M,
    root: Frame,
    base: u64,
    cpu: Cpu,
    gather: &mut Gather,
) -> bool {
    let mut backoff = Backoff::new();
    loop {
        // SAFETY: passed on to the caller.
        let (entry, value) = match unsafe { walk_to::<F, M>(machine, root, Page(base), 1) } {
            Walk::Leaf { entry, value, .. } => (entry, value),
            Walk::Missing { .. } => return false,
            Walk::Busy | Walk::Huge { .. } => {
                backoff.turn(machine);
                continue;
            }
        };
        let Pte::Table(frame) = F::FORMAT.decode(value, 1) else {
            if value == 0 {
                return false;
            }
            backoff.turn(machine);
            continue;
        };
        let Ok(claim) = entry.claim_present::<F>(value) else {
            continue;
        };
        // SAFETY: linked until now, and the claim keeps it linked.
        let table = unsafe { Table::at(machine, frame) };
        if has_claims::<F>(table) && !mutant(Mutant::ClaimedTableMoved) {
            // Dropped, the claim is withdrawn: its holder may wait for this entry.
            drop(claim);
            backoff.turn(machine);
            continue;
        }
        let hidden = claim.hide(cpu);
        let holders = F::FORMAT.holders(hidden.before());
        hidden.keep();
        gather.add_table(base * PAGE_SIZE, span(1) * PAGE_SIZE, holders);
        return true;
    }
}

fn has_claims<F: EntryFormat>(table: &Table) -> bool {
    let mut at = 0;
    while let Some(used) = table.next_used(at, ENTRIES) {
        if F::FORMAT.is_claimed(table.entries()[used].load()) {
            return true;
        }
        at = used + 1;
    }
    false
}

/// After the flush: empties the entries of `pages` that `detach_whole` has left claimed, and calls `attach` with
/// the first page and the frame of each table.
///
/// # Safety
/// As for [`crate::walk()`]; `cpu` called `detach_whole` for tables of `pages`, and detaches nothing else there.
pub unsafe fn relink<F: EntryFormat, M: PhysicalMemory + Wait>(
    machine: &M,
    root: Frame,
    pages: Pages,
    cpu: Cpu,
    attach: &mut impl FnMut(u64, Frame),
) {
    const { assert!(LEVELS >= 2) };
    let mut visit = |entry: &Entry, page: u64| {
        let value = entry.load();
        if is_kept::<F>(value, cpu) {
            entry.set(0);
            attach(page, F::FORMAT.frame(value));
        }
    };
    // SAFETY: passed on to the caller.
    unsafe { entries_at::<F, M>(machine, root, pages, 1, &mut visit) };
}
