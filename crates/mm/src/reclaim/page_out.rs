//! Swapping pages out.
//!
//! A batch of pages has one flush (rule R2):
//!
//! 1. For each page: allocate a slot, claim the entry, validate, and keep the claim. Only pages of anonymous
//!    memory that this entry alone maps and nothing pins are taken. Entries that other operations have
//!    claimed are passed over: nothing is waited for while claims are held (rule R9).
//! 2. Flush once.
//! 3. Put the slots into the entries, which releases the claims. A fault that comes now waits for the write,
//!    with nothing held.
//! 4. With interrupts on and nothing held, not even the range: write the pages to the device, and free them. A
//!    page that the device does not take stays in its frame ([`crate::base::swap`]), and no further batch is taken.
//!
//! *Writes*: the entries, the slots, the descriptors, the space's page counts on this CPU's line.
//!
//! *Models*: loom `reclaim/page_out.rs`.

use faultless_frames::Flags;
use faultless_paging::{Claim, Entry, Frame, Gather, Pages, SwapEntry, Value};
use faultless_sync::atomic::{Ordering, fence};
use faultless_sync::{Mutant, mutant};

use crate::base::machine::Machine;
use crate::space::AddressSpace;
use crate::table::retry::Retry;
use crate::table::rss::{RssDelta, RssKind};
use crate::table::txn::PteTxn;
use crate::tune::PAGE_OUT_BATCH;

/// A page that is being swapped out.
#[derive(Clone, Copy)]
struct Leaving {
    slot: SwapEntry,
    frame: Frame,
}

/// The pages of a batch.
pub(crate) struct Batch {
    pages: [Option<Leaving>; PAGE_OUT_BATCH],
    count: usize,
    /// The page from which to continue; `None` if there was no free slot.
    pub(crate) next: Option<u64>,
}

impl Batch {
    /// Creates an empty batch of pages before `end`.
    pub(crate) fn new(end: u64) -> Self {
        Self {
            pages: [None; PAGE_OUT_BATCH],
            count: 0,
            next: Some(end),
        }
    }
}

/// Writes the pages of a batch, and wakes what waits for them. Returns whether the devices have taken all of them.
pub(crate) fn write<M: Machine>(space: &AddressSpace<M>, batch: &Batch) -> bool {
    let (mut is_taken, mut devices) = (true, 0u32);
    for page in batch.pages.iter().flatten() {
        is_taken &= space.memory().write_slot(&page.slot, page.frame);
        devices |= 1 << page.slot.device;
        space.machine().poll();
    }
    let is_used = |device: &u32| devices & 1 << device != 0;
    (0..u32::BITS)
        .filter(is_used)
        .for_each(|device| space.memory().end_writes(device));
    is_taken
}

/// Takes pages from the start of `pages`, of which mappings do not change meanwhile, until the batch is full. Says
/// in the batch where to continue, if that is not behind them.
pub(crate) fn take_batch<M: Machine>(space: &AddressSpace<M>, pages: Pages, batch: &mut Batch) {
    let first = batch.count;
    let mut gather = Gather::new();
    let (mut stop, mut is_full) = (pages.end, false);
    let txn = PteTxn::begin(space.machine());
    let section = space.memory().enter();
    let mut claims: [Option<(&Entry, Value)>; PAGE_OUT_BATCH] = [None; PAGE_OUT_BATCH];
    space.tables().for_each_entry(pages, &mut |entry, page| {
        if page >= stop {
            return;
        }
        if batch.count == PAGE_OUT_BATCH {
            stop = page;
            return;
        }
        match claim(space, &txn, entry, page, &mut gather) {
            Ok(Some((leaving, value))) => {
                // SAFETY: the section keeps the table.
                let entry = unsafe { &*core::ptr::from_ref(entry) };
                claims[batch.count] = Some((entry, value));
                batch.pages[batch.count] = Some(leaving);
                batch.count += 1;
            }
            Ok(None) => {}
            Err(NoSlot) => {
                (stop, is_full) = (page, true);
            }
        }
    });
    if !mutant(Mutant::SwappedWithoutFlush) {
        space.tables().flush(&mut gather);
    }
    let mut gone = RssDelta::default();
    let mut came = RssDelta::default();
    let taken = batch.pages[first..].iter().flatten();
    for ((entry, value), leaving) in claims[first..].iter().flatten().zip(taken) {
        let format = AddressSpace::<M>::FORMAT;
        let slot = SwapEntry {
            is_soft_dirty: format.is_soft_dirty(*value),
            reports_writes: format.reports_writes(*value),
            ..leaving.slot
        };
        // A slot that was allocated has an entry.
        entry.set(format.swap_entry(&slot).unwrap_or(0));
        gone.add(Some(RssKind::Anonymous));
        came.add(Some(RssKind::Swap));
    }
    let cpu = space.machine().cpu();
    space.tables().rss.gone(cpu, &gone);
    space.tables().rss.came_all(cpu, &came);
    drop(section);
    drop(txn);
    if is_full {
        batch.next = None;
    } else if stop < pages.end {
        batch.next = Some(stop);
    }
}

/// No slot is free.
struct NoSlot;

/// Claims the entry of a page that may be swapped out, and keeps the claim. Returns the page, and the last value
/// of the entry.
fn claim<M: Machine>(
    space: &AddressSpace<M>,
    txn: &PteTxn<'_, M>,
    entry: &Entry,
    page: u64,
    gather: &mut Gather,
) -> Result<Option<(Leaving, Value)>, NoSlot> {
    let format = AddressSpace::<M>::FORMAT;
    let value = entry.load();
    if !format.is_present(value) || format.is_claimed(value) || !may_leave(space, value) {
        return Ok(None);
    }
    let frame = format.frame(value);
    let slot = space.memory().allocate_slot().ok_or(NoSlot)?;
    let validate = || {
        // Sees what a fork that had copied the table has done to the page (`fault/kinds/cow.rs`).
        fence(Ordering::Acquire);
        match may_leave(space, value) {
            true => Ok(()),
            false => Err(Retry::PageChanged),
        }
    };
    // Fails if hardware has set a bit, or another CPU was faster: the page is in use.
    match txn.claim(entry, value, validate) {
        Ok(claim) => {
            let before = Claim::before(&claim);
            claim.keep();
            space.tables().gather(before, page, gather);
            Ok(Some((Leaving { slot, frame }, before)))
        }
        Err(_) => {
            space.memory().take_back_slot(&slot);
            Ok(None)
        }
    }
}

/// Whether an entry's page may be swapped out: anonymous, mapped by this entry alone, and not pinned.
fn may_leave<M: Machine>(space: &AddressSpace<M>, value: Value) -> bool {
    let wanted = Flags::ANONYMOUS.and(Flags::EXCLUSIVE);
    space
        .tables()
        .counted(value)
        .is_some_and(|page| page.flags().has(wanted) && page.is_sole_use())
}
