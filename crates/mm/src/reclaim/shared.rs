//! Taking a page out that several entries may show: an anonymous page that forks share, or a page of an object.
//!
//! As when such a page moves ([`crate::rmap::migrate`]), all its entries are claimed, its uses are removed in one step,
//! and every space is flushed. What was used since the last look stays, and counts as unused from now on.
//!
//! * Of an anonymous page, every entry then names the slot, and is a use of it. It is not exclusive: each space reads
//!   the page into a frame of its own.
//! * Of an object's page, the entries become empty, and the object's slot names the device's. A page that its pager can
//!   fill again, and that nothing has written, needs none.
//!
//! The caller holds the list of spaces, and writes the batch afterwards.
//!
//! *Writes*: the entries, the object's slot, the frame's descriptor, the spaces' page counts on this CPU's line.
//!
//! *Models*: loom `reclaim/shared.rs`, `object/swapped.rs`, `fault/userfault.rs`.

use faultless_frames::FrameSource;
use faultless_paging::{Frame, SwapEntry, Value};
use faultless_sync::{Mutant, mutant};

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::object::radix::PageSlot;
use crate::object::{MemoryObject, Moving};
use crate::reclaim::page_out::Batch;
use crate::rmap::anon::AllSpaces;
use crate::rmap::claims::{Claims, NotMoved, Places, Purpose};
use crate::space::AddressSpace;
use crate::table::rss::RssKind;

/// Takes an anonymous page out, with a slot for it: a frame that was met at a page of one of its spaces. Searches for
/// entries that are elsewhere, if it `may_search`. Returns whether the page has left, and whether it has searched.
pub(crate) fn take_anonymous<M: Machine>(
    spaces: &AllSpaces<'_, M>,
    places: &Places<M>,
    (frame, page): (Frame, u64),
    may_search: bool,
    batch: &mut Batch,
) -> (bool, bool) {
    let mut claims = Claims::new(places, Purpose::Reclaim);
    let memory = claims.memory();
    let mut has_searched = false;
    // Its descriptor may have the number of a page from which it has moved. A child has the same as its parent.
    let found = claims.claim_at(spaces, frame, page).and_then(|()| {
        has_searched = may_search && !claims.has_all(frame);
        match has_searched {
            true => claims.claim_anonymous(spaces, frame),
            false => Ok(()),
        }
    });
    let slot = found.and_then(|()| slot_with_uses(memory, claims.count()));
    let result = slot.and_then(|slot| {
        claims.freeze(frame, false).inspect_err(|_| {
            (1..claims.count()).for_each(|_| memory.drop_slot_use(&slot));
            memory.take_back_slot(&slot);
        })?;
        Ok(slot)
    });
    let Ok(slot) = result else {
        claims.release(frame);
        return (false, has_searched);
    };
    flush(&claims);
    let is_exclusive = claims.count() == 1;
    claims.replace(|space, before| {
        count(space, before, Some(RssKind::Swap));
        let format = AddressSpace::<M>::FORMAT;
        let entry = SwapEntry {
            is_exclusive,
            is_soft_dirty: format.is_soft_dirty(before),
            reports_writes: format.reports_writes(before),
            ..slot
        };
        // A slot that was allocated has an entry.
        format.swap_entry(&entry).unwrap_or(0)
    });
    leave(memory, frame, Some(slot), batch);
    (true, has_searched)
}

/// Allocates a slot with so many uses for entries.
fn slot_with_uses<M: Machine>(memory: &Memory<M>, entries: usize) -> Result<SwapEntry, NotMoved> {
    let slot = memory.allocate_slot().ok_or(NotMoved::Busy)?;
    for added in 1..entries {
        if !memory.share_slot(&slot) {
            (1..added).for_each(|_| memory.drop_slot_use(&slot));
            memory.take_back_slot(&slot);
            return Err(NotMoved::Busy);
        }
    }
    Ok(slot)
}

/// Takes the page `index` of an object out, which is in `frame`. Whether it has left.
pub(crate) fn take_of_object<M: Machine>(
    store: &MemoryObject<M>,
    places: &Places<M>,
    (index, frame): (u64, Frame),
    purpose: Purpose,
    batch: &mut Batch,
) -> bool {
    let memory = store.memory();
    let interrupts = memory.machine().interrupts_off();
    let is_taken = take_hidden(store, places, (index, frame), purpose, batch);
    memory.machine().interrupts_restore(interrupts);
    is_taken
}

/// The same, with interrupts off.
fn take_hidden<M: Machine>(
    store: &MemoryObject<M>,
    places: &Places<M>,
    (index, frame): (u64, Frame),
    purpose: Purpose,
    batch: &mut Batch,
) -> bool {
    let memory = store.memory();
    let Ok(moving) = Moving::begin_in(store.clone(), index, frame) else {
        return false;
    };
    let mut claims = Claims::new(places, purpose);
    let found = moving.try_for_each_place(|space, page| claims.claim(space, page, frame));
    let frozen = found.and_then(|()| claims.freeze(frame, true));
    // Nothing writes the page any more, and all writes are seen.
    let is_kept = frozen.is_err() || !is_refilled(store, index, frame);
    let slot = match is_kept && frozen.is_ok() {
        true => memory.allocate_slot(),
        false => None,
    };
    if frozen.is_err() || is_kept && slot.is_none() {
        if frozen.is_ok() {
            store.descriptor(frame).thaw(claims.count() as u32, true);
        }
        claims.release(frame);
        drop(moving.end(PageSlot::Page(frame)));
        return false;
    }
    memory.ends_whole(store.cache(), frame);
    flush(&claims);
    claims.replace(|space, before| {
        count(space, before, None);
        let format = AddressSpace::<M>::FORMAT;
        // Where stores are reported, they stay so.
        match format.reports_writes(before) {
            true => format.marker(),
            false => 0,
        }
    });
    let left = slot.map_or(PageSlot::Empty, |slot| PageSlot::Swapped(slot.into()));
    drop(moving.end(left));
    if slot.is_none() {
        store.cache().uncharge(index);
    }
    leave(memory, frame, slot, batch);
    true
}

/// Whether the pager can fill a page again as it is. Exact once the page has no use.
pub(crate) fn is_refilled<M: Machine>(store: &MemoryObject<M>, index: u64, frame: Frame) -> bool {
    !store.descriptor(frame).is_dirty() && !store.cache().is_zeroes(index)
}

fn flush<M: Machine>(claims: &Claims<'_, M>) {
    if !mutant(Mutant::SwappedWithoutFlush) {
        claims.flush();
    }
}

/// Counts an entry that no longer shows its page.
fn count<M: Machine>(space: &AddressSpace<M>, before: Value, came: Option<RssKind>) {
    let (rss, cpu) = (&space.tables().rss, space.machine().cpu());
    if let Some(descriptor) = space.tables().counted(before) {
        rss.gone_one(cpu, RssKind::of(descriptor));
    }
    if let Some(kind) = came {
        rss.came(cpu, kind);
    }
}

/// Adds a page without uses to the batch.
fn leave<M: Machine>(memory: &Memory<M>, frame: Frame, slot: Option<SwapEntry>, batch: &mut Batch) {
    // The use of the batch.
    memory
        .machine()
        .frames()
        .descriptor(frame)
        .set_anonymous(0, 0);
    batch.push(slot, frame);
}
