//! Moves a whole page table from one parent entry to another.
//!
//! All pages of the table change their addresses in one step, and none of its entries is written. In ranges
//! that admit no new claims:
//!
//! 1. [`detach_whole`] claims the parent entry, and hides the table from hardware if none of its entries is
//!    claimed. The move waits for every earlier claim: it may belong to an operation that walks back to its
//!    entries by address (DONTNEED, a guard).
//! 2. One flush (rule R2).
//! 3. [`relink`] empties the old parent entries and passes each table to the caller, which links it at the
//!    new one.
//!
//! While the caller waits for such a claim, it has no table hidden: the holder may reach the hidden table
//! before it releases its claim (rule R9).
//!
//! *Writes*: the two parent entries.

use faultless_sync::atomic::{Ordering, fence};
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

/// The outcome of an attempt to hide a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detached {
    /// The table is hidden.
    Done,
    /// There is no table.
    NoTable,
    /// The table or one of its entries is claimed: try again.
    Busy,
}

/// Tries to hide the lowest-level table over the pages from `base`, which is the first page of a table. Until
/// [`relink`], its parent entry then holds a claim of `cpu` that remembers the table.
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
        // The drop withdraws this claim: the holder of the other one may wait for this entry.
        return Detached::Busy;
    }
    let hidden = claim.hide(cpu);
    let holders = F::FORMAT.holders(hidden.before());
    hidden.keep();
    gather.add_table(base * PAGE_SIZE, span(1) * PAGE_SIZE, holders);
    Detached::Done
}

/// Whether any entry is claimed. Reads all entries, which saves a test for each. One fence saves the order of each
/// load: if an operation's claim is gone, so is everything that the operation did (its partner is the release of
/// whatever replaced the claim).
fn has_claims<F: EntryFormat>(table: &Table) -> bool {
    // By lines, because the compiler does not unroll loops of atomic loads.
    let (lines, rest) = table.entries().as_chunks::<8>();
    let of = |entries: &[Entry]| {
        entries
            .iter()
            .fold(0, |seen, entry| seen | entry.load_relaxed())
    };
    let seen = lines.iter().fold(of(rest), |seen, line| seen | of(line));
    fence(Ordering::Acquire);
    F::FORMAT.is_claimed(seen)
}

/// After the flush, empties the parent entries over `pages` that `detach_whole` left claimed. Calls `attach`
/// with the first page and the frame of each table.
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
