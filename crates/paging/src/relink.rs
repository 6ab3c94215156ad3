//! Moving a whole table: from under one parent entry to under another.
//!
//! The pages of a table change their addresses all at once, and no entry of theirs is written. In ranges that
//! admit no new claims:
//!
//! 1. [`detach_whole`] claims the parent entry, and hides the table from hardware if no entry of it is claimed.
//!    A claim that came too early may belong to an operation that walks back to its entries by their
//!    addresses (DONTNEED, a guard), so that the table waits for all of them.
//! 2. One flush (rule R2).
//! 3. [`relink`] empties the old parent entries and gives the tables to their new ones.
//!
//! While the caller waits for such a claim it has no table hidden, this one or another: the holder may come to
//! that one before it gives up its claim (rule R9).
//!
//! *Writes*: the two parent entries.

use faultless_sync::{Cpu, Mutant, Wait, mutant};

use crate::address::{Frame, PAGE_SIZE, Page};
use crate::entry::Entry;
use crate::format::EntryFormat;
use crate::free::{entries_at, is_kept};
use crate::memory::PhysicalMemory;
use crate::table::{LEVELS, Table, span};
use crate::tlb::Gather;
use crate::walk::{Walk, walk_to};
use crate::{Pages, Pte};

/// How a try to hide a table ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detached {
    /// It is hidden.
    Done,
    /// There is none.
    NoTable,
    /// The table, or an entry of it, is claimed: to be tried again.
    Busy,
}

/// Tries to hide the lowest table over the pages from `base` on; `base` is the first page of a table. Until
/// [`relink`] its parent entry then holds a claim of `cpu` that remembers the table.
///
/// # Safety
/// As for [`crate::walk()`]. Interrupts are off until `relink`.
pub unsafe fn detach_whole<F: EntryFormat, M: PhysicalMemory + Wait>(
    machine: &M,
    root: Frame,
    base: u64,
    cpu: Cpu,
    gather: &mut Gather,
) -> Detached {
    // SAFETY: passed on to the caller.
    let (entry, value) = match unsafe { walk_to::<F, M>(machine, root, Page(base), 1) } {
        Walk::Leaf { entry, value, .. } => (entry, value),
        Walk::Missing { .. } => return Detached::NoTable,
        Walk::Busy | Walk::Huge { .. } => return Detached::Busy,
    };
    let frame = match F::FORMAT.decode(value, 1) {
        Pte::Table(frame) => frame,
        Pte::Empty => return Detached::NoTable,
        _ => return Detached::Busy,
    };
    let Ok(claim) = entry.claim_present::<F>(value) else {
        return Detached::Busy;
    };
    // SAFETY: linked until now, and the claim keeps it linked.
    let table = unsafe { Table::at(machine, frame) };
    if has_claims::<F>(table) && !mutant(Mutant::ClaimedTableMoved) {
        // Dropped, the claim is withdrawn: the holder of the other may wait for this entry.
        return Detached::Busy;
    }
    let hidden = claim.hide(cpu);
    let holders = F::FORMAT.holders(hidden.before());
    hidden.keep();
    gather.add_table(base * PAGE_SIZE, span(1) * PAGE_SIZE, holders);
    Detached::Done
}

/// Whether any entry is claimed: all are looked at, so that it is done without a test for each.
fn has_claims<F: EntryFormat>(table: &Table) -> bool {
    let all = table.entries().iter();
    F::FORMAT.is_claimed(all.fold(0, |seen, entry| seen | entry.load()))
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
