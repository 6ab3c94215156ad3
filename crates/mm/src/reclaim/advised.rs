//! Finds the pages that a program wants to leave (`MADV_PAGEOUT`), whether they were used or not.
//!
//! As on Linux only a page leaves that one entry shows: others may be using it.
//!
//! * Pages of anonymous memory are taken with the range held. Lazily freed pages, and those of droppable mappings, are
//!   discarded, also without a swap device.
//! * Pages of an object are only noted: to take one needs the list of spaces, which is not waited for with a range held.
//!   They are taken afterwards ([`take_noted`]). Every claim is validated then, so a mapping may change meanwhile.
//!
//! *Writes*: what taking a page writes ([`crate::reclaim::page_out`], [`crate::reclaim::shared`]).
//!
//! *Models*: loom `reclaim/advised.rs`.

use faultless_frames::{Flags, FrameSource, Reserve};
use faultless_paging::{Frame, Pages, Value};
use faultless_sync::{Mutant, mutant};

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::object::MemoryObject;
use crate::reclaim::page_out::{Batch, Candidate, Candidates, is_sole_anonymous, take};
use crate::reclaim::shared::take_of_object;
use crate::reclaim::sweep::attributes;
use crate::rmap::claims::{Places, Purpose};
use crate::space::AddressSpace;
use crate::tree::mapping::ObjectRef;
use crate::tune::PAGE_OUT_BATCH;

/// Pages of one object.
pub(crate) struct Noted<M: Machine> {
    store: Option<MemoryObject<M>>,
    pages: [(u64, Frame); PAGE_OUT_BATCH],
    count: usize,
}

impl<M: Machine> Noted<M> {
    pub(crate) fn new() -> Self {
        Self {
            store: None,
            pages: [(0, Frame(0)); PAGE_OUT_BATCH],
            count: 0,
        }
    }

    /// Notes pages of this object from now on. Returns whether that is possible: none of another object is noted.
    fn begin(&mut self, memory: &'static Memory<M>, backed: &ObjectRef) -> bool {
        let is_same = |store: &MemoryObject<M>| store.is_at(backed.pointer());
        if !self.store.as_ref().is_some_and(is_same) {
            if self.count > 0 {
                return false;
            }
            // What it held before may be freed here: a mapping of the range held has it, too.
            self.store = Some(MemoryObject::of(memory, backed.pointer()));
        }
        true
    }

    fn add(&mut self, index: u64, frame: Frame) {
        self.pages[self.count] = (index, frame);
        self.count += 1;
    }
}

/// Takes pages from the start of `pages`, all of one mapping, or notes them, until there is no more room in the batch.
/// Says in the batch where to continue, if that is not behind them. Mappings do not change meanwhile.
pub(crate) fn take_advised<M: Machine>(
    space: &AddressSpace<M>,
    pages: Pages,
    batch: &mut Batch,
    noted: &mut Noted<M>,
) {
    let format = AddressSpace::<M>::FORMAT;
    let section = space.memory().enter();
    let Some(attributes) = attributes(space, pages.start, &section) else {
        return;
    };
    if let Some(backed) = &attributes.backed
        && !noted.begin(space.memory(), backed)
    {
        batch.next = Some(pages.start);
        return;
    }
    let has_swap = space.memory().has_swap();
    let room = batch.room();
    let mut candidates = Candidates::new(room);
    let mut stop = pages.end;
    space.tables().for_each_entry(pages, &mut |entry, page| {
        let value = entry.load();
        if page >= stop || !format.is_present(value) || format.is_claimed(value) {
            return;
        }
        let is_clean = !format.is_dirty(value) || mutant(Mutant::TakenThoughWritten);
        let is_discarded = attributes.flags.droppable || is_clean;
        let is_anonymous = is_sole_anonymous(space, value) && (has_swap || is_discarded);
        let of_object = attributes
            .backed
            .filter(|_| is_sole_of_object(space, value));
        if !is_anonymous && of_object.is_none() {
            return;
        }
        if candidates.count() + noted.count == room {
            stop = page;
        } else if let Some(backed) = of_object {
            noted.add(backed.index(page), format.frame(value));
        } else {
            // SAFETY: the section keeps the table.
            let entry = unsafe { &*core::ptr::from_ref(entry) };
            candidates.push(Candidate::new(entry, page, value, is_discarded));
        }
    });
    let has_slots = take(space, &mut candidates, batch, |_| true);
    drop(section);
    if !has_slots {
        batch.next = None;
    } else if stop < pages.end {
        batch.next = Some(stop);
    }
}

/// Takes the pages that were noted. The caller holds nothing.
pub(crate) fn take_noted<M: Machine>(
    memory: &'static Memory<M>,
    noted: Noted<M>,
    batch: &mut Batch,
) {
    let Some(store) = noted.store.filter(|_| noted.count > 0) else {
        return;
    };
    let source = memory.machine().frames();
    let Ok(places) = source.allocate_reserved(memory.machine().cpu(), Reserve::Reclaim) else {
        // Nothing has to leave.
        return;
    };
    let places = Places::new(memory, places);
    let spaces = memory.keep_spaces();
    for &page in &noted.pages[..noted.count] {
        take_of_object(&store, &places, page, Purpose::PageOut, batch);
        memory.machine().poll();
    }
    drop(spaces);
    // This may be the object's last holder: nothing is locked.
    drop(store);
}

/// Whether an entry's page is an object's, mapped by this entry alone, and not pinned.
fn is_sole_of_object<M: Machine>(space: &AddressSpace<M>, value: Value) -> bool {
    space.tables().counted(value).is_some_and(|page| {
        page.flags().has(Flags::FILE) && page.map_count() == 1 && page.pins() == 0
    })
}
