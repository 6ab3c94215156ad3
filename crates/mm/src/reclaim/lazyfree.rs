//! Lazily freed pages (`MADV_FREE`): the program does not need them unless it writes them again. They stay
//! until memory is short.
//!
//! * The entry's dirty bit is the only mark. Every page of anonymous memory is dirty from the start, except
//!   those that were lazily freed and not written since.
//! * To free lazily is to clear the bit and to flush, once, before the operation returns: a TLB that holds the
//!   bit as set would let a store through that leaves no trace. No permission is lowered, so no claim is held
//!   until the flush (rule R2 is about what an entry allows). A store that is not seen precedes the operation's
//!   end.
//! * To reclaim a page is the reverse of a fault: claim the entry from the clean value, validate, flush, empty
//!   it. A store in between has set the bit, so that the claim fails, or it follows the claim and faults.
//!   Nothing is waited for under a claim. Only present pages that are exclusive to this space are reclaimed.
//! * In a droppable mapping (`MAP_DROPPABLE`) every page counts as lazily freed, written or not. The entry is
//!   claimed from its present value, and validation checks that the mapping is still droppable.
//! * A pinned page is neither marked nor reclaimed: a write through the pin bypasses the entry. The entry's bit
//!   was set when the pin was made, and has to stay.
//! * A fault or a pin of the same address space that finds no frame reclaims, and so can the port
//!   ([`AddressSpace::take_lazyfree`]). So does the sweep, where a swap device is in use ([`crate::reclaim::sweep`]).
//!
//! *Writes*: the entries; the descriptors of reclaimed pages; `Mappings::notes`.
//!
//! *Models*: loom `reclaim/lazyfree.rs`.

use faultless_frames::{Descriptor, Flags, FrameSource};
use faultless_paging::{Entry, Gather, Page, Pages, Walk};
use faultless_sync::atomic::{Ordering, fence};
use faultless_sync::reclaim::Section;
use faultless_sync::{Backoff, Mutant, mutant};
use faultless_trace::Counter;

use crate::base::machine::Machine;
use crate::base::notes::Note;
use crate::space::AddressSpace;
use crate::table::retry::Retry;
use crate::table::rss::RssKind;
use crate::table::txn::{PteRef, PteTxn};
use crate::tree::SlotState;
use crate::tune::LAZYFREE_BATCH;

/// Frees the pages of `pages` lazily. Mappings do not change meanwhile.
pub(crate) fn mark_lazyfree<M: Machine>(space: &AddressSpace<M>, pages: Pages) {
    let format = AddressSpace::<M>::FORMAT;
    let mut gather = Gather::new();
    let mut freed = 0;
    let section = space.memory().enter();
    space.tables().for_each_entry(pages, &mut |entry, page| {
        let mut backoff = Backoff::new();
        loop {
            let value = entry.load();
            if format.is_claimed(value) {
                backoff.turn(space.machine());
                continue;
            }
            if let Some(swapped) = space.tables().swap_of(value) {
                // As on Linux, such a page is discarded.
                if entry.replace(value, 0).is_ok() {
                    return space.tables().drop_swap(&swapped);
                }
                continue;
            }
            if !format.has_page(value)
                || !format.is_dirty(value)
                || !is_sole_anonymous(space, value)
            {
                return;
            }
            if let Some(before) = clean(space, entry, value) {
                freed += 1;
                space.tables().gather(before, page, &mut gather);
                return;
            }
        }
    });
    if !mutant(Mutant::LetGoWithoutFlush) {
        space.tables().flush(&mut gather);
    }
    drop(section);
    if freed > 0 {
        space.maps.note(Note::LAZYFREE);
        let counters = space.memory().this_cpu().counters();
        counters.add(Counter::LazyFree, freed);
    }
}

/// Marks a page that may be lazily freed as clean. Returns the last value of its entry, if that was still
/// `value`, apart from hardware's bits. Under a claim: a pin leaves the entry unchanged, and no pin is made
/// from the claim on that this does not see.
fn clean<M: Machine>(space: &AddressSpace<M>, entry: &Entry, value: u64) -> Option<u64> {
    let format = AddressSpace::<M>::FORMAT;
    let validate = || match is_sole_anonymous(space, value) || mutant(Mutant::PinsNotTested) {
        true => Ok(()),
        false => Err(Retry::PageChanged),
    };
    let txn = PteTxn::begin(space.machine());
    let claim = txn.claim_present(entry, value, validate).ok()?;
    Some(claim.publish(|value| format.cleaned(value)))
}

/// Reclaims some of the lazily freed pages that were not written since. Returns whether there were any. A fault
/// that finds no frame does this in its own space; a port can do it in any space before it fails an allocation.
#[cold]
pub(crate) fn take_lazyfree<M: Machine>(space: &AddressSpace<M>) -> bool {
    // A concurrent lazy free sets the flag again.
    let droppable = space.maps.has_note(Note::DROPPABLE);
    if !space.maps.take_note(Note::LAZYFREE) && !droppable {
        return false;
    }
    let format = AddressSpace::<M>::FORMAT;
    let (mut seen, mut taken) = (false, 0);
    let section = space.memory().enter();
    let all = Pages::of_bytes(0..space.layout().end);
    space.tables().for_each_entry(all, &mut |entry, page| {
        let value = entry.load();
        let may_go =
            format.is_present(value) && !format.is_claimed(value) && is_anonymous(space, value);
        let is_clean = may_go && (!format.is_dirty(value) || mutant(Mutant::TakenThoughWritten));
        seen |= is_clean;
        let is_taken = (is_clean || may_go && droppable)
            && taken < LAZYFREE_BATCH
            && take_page(space, Page(page), value, is_clean, &section);
        taken += u64::from(is_taken);
    });
    drop(section);
    if seen {
        // There may be more, and shared pages may become exclusive later.
        space.maps.note(Note::LAZYFREE);
    }
    if taken == 0 {
        return false;
    }
    let counters = space.memory().this_cpu().counters();
    counters.add(Counter::LazyFreed, taken);
    true
}

/// Whether the page of an entry is anonymous.
fn is_anonymous<M: Machine>(space: &AddressSpace<M>, value: u64) -> bool {
    space
        .tables()
        .counted(value)
        .is_some_and(|descriptor| descriptor.flags().has(Flags::ANONYMOUS))
}

/// Whether it is anonymous, with no other mapping and no pin.
fn is_sole_anonymous<M: Machine>(space: &AddressSpace<M>, value: u64) -> bool {
    is_anonymous(space, value)
        && space
            .tables()
            .counted(value)
            .is_some_and(Descriptor::is_sole_use)
}

/// Reclaims the page of an entry that holds `value`, if it `is_clean` or its mapping is droppable. Returns
/// whether that was possible.
fn take_page<M: Machine>(
    space: &AddressSpace<M>,
    page: Page,
    value: u64,
    is_clean: bool,
    section: &Section<'_>,
) -> bool {
    // Held by validation alone, as under the policy `speculative`.
    let found = space.tree().find(page.0);
    // SAFETY: inside the section.
    let SlotState::Live(mapping) = (unsafe { found.word.content() }) else {
        return false;
    };
    let is_droppable = || mapping.attributes().flags.droppable;
    if !is_clean && !is_droppable() {
        return false;
    }
    let walked = space.tables().look(page, section);
    let Walk::Leaf { entry, link, .. } = walked else {
        return false;
    };
    let source = space.machine().frames();
    let frame = AddressSpace::<M>::FORMAT.frame(value);
    let at = PteRef {
        entry,
        value,
        link,
        vma: &found,
    };
    let mut is_taken = false;
    let published = space.tables().transact(&at, || {
        // Sees what a fork that had copied the table before the validation has done to the page: as in
        // `is_alone` (`fault/kinds/cow.rs`), with the same partner.
        fence(Ordering::Acquire);
        if !is_sole_anonymous(space, value) {
            // Shared by a fork since.
            return Ok(value);
        }
        space.tables().flush_page(page, value);
        is_taken = true;
        Ok(0)
    });
    if published.is_err() || !is_taken {
        return false;
    }
    let cpu = space.machine().cpu();
    space.tables().rss.gone_one(cpu, RssKind::Anonymous);
    if source.descriptor(frame).unmap() {
        source.free(cpu, frame);
    }
    true
}
