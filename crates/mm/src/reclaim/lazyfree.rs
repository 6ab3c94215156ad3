//! Pages that the program does not need any more, unless it writes them again
//! (`MADV_FREE`): they stay until memory is short.
//!
//! What says so is the entry's dirty bit, and nothing else: every page of anonymous
//! memory is dirty from when it is made, but for those that were let go of and not
//! written since. To let go is to clear the bit and to flush, once, before the
//! operation returns: a TLB that remembers the bit as set would let a store through
//! that leaves no trace. It lowers nothing that an access may do, so no claim is held
//! meanwhile (rule R2 is about what an entry allows): stores that are not seen are
//! stores that came before the operation's end.
//!
//! To take is what a fault does in reverse: claim the entry from the value that was
//! clean, validate, flush, empty it. A store in between has set the bit, so that the
//! claim fails, or comes after it and faults. Under a claim nothing is waited for. Only
//! present pages that are this space's alone are taken.
//!
//! Of a mapping whose pages may go at any time (`MAP_DROPPABLE`) every page counts as let go of,
//! written or not: the entry is claimed from what it holds, and the validation says that the
//! mapping still is such a one.
//!
//! A page that somebody has pinned is neither let go of nor taken: who writes it does so
//! beside the entry, whose bit was set when the pin was made and has to stay.
//!
//! Who takes is a fault or a pin of the same address space that finds no frame, and whoever runs
//! the machine ([`AddressSpace::take_lazyfree`]); nothing else reclaims yet.
//!
//! Written lines: the entries; for those taken their descriptors; `AddressSpace::notes`.
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

/// Lets go of the pages of `pages`; mappings stay as they are meanwhile.
pub(crate) fn mark_lazyfree<M: Machine>(space: &AddressSpace<M>, pages: Pages) {
    let format = AddressSpace::<M>::FORMAT;
    let mut gather = Gather::new();
    let mut freed = 0;
    let section = space.memory().enter();
    space.tables().for_each_entry(pages, &mut |entry, page| {
        let mut backoff = Backoff::new();
        loop {
            let value = entry.load();
            if value == 0 || format.is_guard(value) {
                return;
            }
            if format.is_claimed(value) {
                backoff.turn(space.machine());
                continue;
            }
            if !format.is_dirty(value) || !is_sole_anonymous(space, value) {
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
        space.maps.note(Note::LET_GO);
        let counters = space.memory().this_cpu().counters();
        counters.add(Counter::LazyFree, freed);
    }
}

/// Lets a page that may be let go of count as not written; what its entry held to the last,
/// if that was still `value`, but for what hardware sets. Under a claim: a pin leaves the entry what it was, and from the claim on none comes
/// that this does not see.
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

/// Takes some of the pages that `MADV_FREE` let go of and that were not written since;
/// whether there were any. A fault that finds no frame does this in its own space; a
/// port may do it in any, before it gives up.
#[cold]
pub(crate) fn take_lazyfree<M: Machine>(space: &AddressSpace<M>) -> bool {
    // Whoever lets go while this looks notes it again.
    let droppable = space.maps.has_note(Note::DROPPABLE);
    if !space.maps.take_note(Note::LET_GO) && !droppable {
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
        // There may be more, or what is shared now may be this space's alone later.
        space.maps.note(Note::LET_GO);
    }
    if taken == 0 {
        return false;
    }
    let counters = space.memory().this_cpu().counters();
    counters.add(Counter::LazyFreed, taken);
    true
}

/// Whether the page of an entry is one of anonymous memory.
fn is_anonymous<M: Machine>(space: &AddressSpace<M>, value: u64) -> bool {
    space
        .tables()
        .counted(value)
        .is_some_and(|descriptor| descriptor.flags().has(Flags::ANONYMOUS))
}

/// Whether it is one that nobody else maps or has pinned.
fn is_sole_anonymous<M: Machine>(space: &AddressSpace<M>, value: u64) -> bool {
    is_anonymous(space, value)
        && space
            .tables()
            .counted(value)
            .is_some_and(Descriptor::is_sole_use)
}

/// Takes a page away whose entry holds `value`, if it `is_clean` or may go at any time;
/// whether that was possible.
fn take_page<M: Machine>(
    space: &AddressSpace<M>,
    page: Page,
    value: u64,
    is_clean: bool,
    section: &Section<'_>,
) -> bool {
    // By validation alone, as under the policy `speculative`.
    let found = space.tree().find(page.0);
    // SAFETY: inside the section.
    let SlotState::Live(mapping) = (unsafe { found.word.content() }) else {
        return false;
    };
    let is_droppable = || mapping.attributes().flags.droppable;
    if !is_clean && !is_droppable() {
        return false;
    }
    let walked = space.tables().descend(page, section);
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
        // Of what a fork that was over before the validation has done to the page: as in
        // `is_alone` (`shared.rs`), and with the same partner.
        fence(Ordering::Acquire);
        if !is_sole_anonymous(space, value) {
            // Forked since.
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
