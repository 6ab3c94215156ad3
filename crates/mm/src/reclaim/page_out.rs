//! Taking pages out of an address space: to a swap device, or, if the program does not need them, to nowhere.
//!
//! A batch of pages has one flush (rule R2):
//!
//! 1. Collect *candidates*: entries of pages that may leave. Allocate a slot for each page that has to be written.
//! 2. For each candidate: claim the entry, validate, and keep the claim. Only pages of anonymous memory that this
//!    entry alone maps and nothing pins are taken. Entries that other operations have claimed are passed over:
//!    nothing is waited for while claims are held (rule R9).
//! 3. Flush once.
//! 4. Put the slots into the entries, which releases the claims. A fault that comes now waits for the write,
//!    with nothing held.
//! 5. With interrupts on and nothing held, not even the range: write the pages to the device, and free them. A
//!    page that the device does not take stays in its frame ([`crate::swap`]), and no further batch is taken.
//!
//! *Writes*: the entries, the slots, the descriptors, the space's page counts on this CPU's line.
//!
//! *Models*: loom `reclaim/page_out.rs`.

use faultless_frames::{Descriptor, Flags};
use faultless_paging::{Claim, Entry, Frame, Gather, PAGE_SIZE, SwapEntry, Value};
use faultless_sync::atomic::{Ordering, fence};
use faultless_sync::{Mutant, mutant};
use faultless_trace::{Counter, Kind};

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::space::AddressSpace;
use crate::table::retry::Retry;
use crate::table::rss::{RssDelta, RssKind};
use crate::table::txn::PteTxn;
use crate::tune::PAGE_OUT_BATCH;

/// A page that has left its entry. Without a slot, its content is not needed any more.
#[derive(Clone, Copy)]
struct Leaving {
    slot: Option<SwapEntry>,
    frame: Frame,
}

/// Pages that have left their entries, and are not written yet.
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

    /// Adds a page. There is room for it.
    pub(crate) fn push(&mut self, slot: Option<SwapEntry>, frame: Frame) {
        self.pages[self.count] = Some(Leaving { slot, frame });
        self.count += 1;
    }

    fn all(&self) -> impl Iterator<Item = &Leaving> {
        self.pages[..self.count].iter().flatten()
    }

    /// Returns how many more pages it can have.
    pub(crate) fn room(&self) -> usize {
        PAGE_OUT_BATCH - self.count
    }
}

/// The result of writing a batch.
pub(crate) struct Written {
    /// Pages whose frames are free now.
    pub(crate) freed: u64,
    /// Whether the devices have taken all pages.
    pub(crate) is_all: bool,
}

/// Writes the pages of a batch, frees their frames, and wakes what waits for them.
pub(crate) fn write<M: Machine>(memory: &Memory<M>, batch: &Batch) -> Written {
    let start = memory.trace_start();
    let mut freed = 0;
    for page in batch.all().filter(|page| page.slot.is_none()) {
        memory.free_swapped(page.frame);
        freed += 1;
    }
    freed += memory.write_slots(batch.count, |number| {
        let page = batch.pages.get(number).copied().flatten()?;
        Some((page.slot?, page.frame))
    });
    if batch.count > 0 {
        let bytes = batch.count as u64 * PAGE_SIZE;
        memory.trace_end(Kind::PageOut, start, 0, bytes, 0);
    }
    Written {
        freed,
        is_all: freed == batch.count as u64,
    }
}

/// An entry whose page may leave, as it was seen.
pub(crate) struct Candidate<'s> {
    entry: &'s Entry,
    page: u64,
    value: Value,
    /// Whether the page's content is not needed.
    is_discarded: bool,
    slot: Option<SwapEntry>,
    is_claimed: bool,
}

impl<'s> Candidate<'s> {
    pub(crate) fn new(entry: &'s Entry, page: u64, value: Value, is_discarded: bool) -> Self {
        Self {
            entry,
            page,
            value,
            is_discarded,
            slot: None,
            is_claimed: false,
        }
    }

    pub(crate) fn entry(&self) -> &'s Entry {
        self.entry
    }

    pub(crate) fn page(&self) -> u64 {
        self.page
    }

    pub(crate) fn value(&self) -> Value {
        self.value
    }

    pub(crate) fn is_discarded(&self) -> bool {
        self.is_discarded
    }
}

/// Candidates of one space, found in one section.
pub(crate) struct Candidates<'s> {
    list: [Option<Candidate<'s>>; PAGE_OUT_BATCH],
    count: usize,
    most: usize,
}

impl<'s> Candidates<'s> {
    /// Creates an empty list of so many candidates at most.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            list: [const { None }; PAGE_OUT_BATCH],
            count: 0,
            most: most.min(PAGE_OUT_BATCH),
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.count == self.most
    }

    /// Adds a candidate. There is room for it.
    pub(crate) fn push(&mut self, candidate: Candidate<'s>) {
        self.list[self.count] = Some(candidate);
        self.count += 1;
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    fn all(&self) -> impl Iterator<Item = &Candidate<'s>> {
        self.list[..self.count].iter().flatten()
    }

    fn all_mut(&mut self) -> impl Iterator<Item = &mut Candidate<'s>> {
        self.list[..self.count].iter_mut().flatten()
    }

    /// Allocates the slots. A candidate goes if there is none. Returns whether there were enough.
    fn allocate_slots<M: Machine>(&mut self, memory: &Memory<M>) -> bool {
        let mut is_enough = true;
        for place in &mut self.list[..self.count] {
            let Some(candidate) = place.as_mut().filter(|one| !one.is_discarded) else {
                continue;
            };
            // After the first failure no device is asked again.
            candidate.slot = is_enough.then(|| memory.allocate_slot()).flatten();
            if candidate.slot.is_none() {
                is_enough = false;
                *place = None;
            }
        }
        is_enough
    }
}

/// Takes the candidates out of their entries, with one flush, and adds their pages to the batch. `validate` says
/// whether a candidate's page may leave, after its entry was claimed. The caller is in a section. Returns whether
/// there were enough free slots.
pub(crate) fn take<M: Machine>(
    space: &AddressSpace<M>,
    candidates: &mut Candidates<'_>,
    batch: &mut Batch,
    validate: impl Fn(&Candidate<'_>) -> bool,
) -> bool {
    let format = AddressSpace::<M>::FORMAT;
    let has_slots = candidates.allocate_slots(space.memory());
    let mut gather = Gather::new();
    let txn = PteTxn::begin(space.machine());
    for candidate in candidates.all_mut() {
        claim(space, &txn, candidate, &mut gather, &validate);
    }
    if !mutant(Mutant::SwappedWithoutFlush) {
        space.tables().flush(&mut gather);
    }
    let (mut gone, mut came) = (RssDelta::default(), RssDelta::default());
    let mut discarded = 0;
    for candidate in candidates.all().filter(|one| one.is_claimed) {
        discarded += u64::from(candidate.is_discarded);
        let slot = candidate.slot.map(|slot| SwapEntry {
            is_soft_dirty: format.is_soft_dirty(candidate.value),
            reports_writes: format.reports_writes(candidate.value),
            ..slot
        });
        let left = slot.and_then(|slot| format.swap_entry(&slot));
        candidate.entry.set(left.unwrap_or(0));
        gone.add(Some(RssKind::Anonymous));
        came.add(slot.map(|_| RssKind::Swap));
        batch.push(slot, format.frame(candidate.value));
    }
    let cpu = space.machine().cpu();
    space.tables().rss.gone(cpu, &gone);
    space.tables().rss.came_all(cpu, &came);
    drop(txn);
    let counters = space.memory().this_cpu().counters();
    counters.add(Counter::LazyFreed, discarded);
    for candidate in candidates.all().filter(|one| !one.is_claimed) {
        candidate
            .slot
            .iter()
            .for_each(|slot| space.memory().take_back_slot(slot));
    }
    has_slots
}

/// Claims a candidate's entry, and keeps the claim.
fn claim<M: Machine>(
    space: &AddressSpace<M>,
    txn: &PteTxn<'_, M>,
    candidate: &mut Candidate<'_>,
    gather: &mut Gather,
    validate: impl Fn(&Candidate<'_>) -> bool,
) {
    let (entry, value) = (candidate.entry, candidate.value);
    let is_valid = || {
        // Sees what a fork that had copied the table has done to the page (`fault/kinds/cow.rs`).
        fence(Ordering::Acquire);
        match is_sole_anonymous(space, value) && validate(candidate) {
            true => Ok(()),
            false => Err(Retry::PageChanged),
        }
    };
    // Fails if hardware has set a bit, or another CPU was faster: the page is in use.
    if let Ok(claim) = txn.claim(entry, value, is_valid) {
        let before = Claim::before(&claim);
        claim.keep();
        space.tables().gather(before, candidate.page, gather);
        candidate.value = before;
        candidate.is_claimed = true;
    }
}

/// Whether an entry's page is anonymous, mapped by this entry alone, and not pinned.
pub(crate) fn is_sole_anonymous<M: Machine>(space: &AddressSpace<M>, value: Value) -> bool {
    space
        .tables()
        .counted(value)
        .is_some_and(|page| page.flags().has(Flags::ANONYMOUS) && Descriptor::is_sole_use(page))
}
