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
//! the machine ([`AddressSpace::take_let_go`]); nothing else reclaims yet.
//!
//! Written lines: the entries; for those taken their descriptors; `AddressSpace::notes`.

use faultless_frames::{Descriptor, Flags, FrameSource};
use faultless_paging::{Entry, Gather, Page, Pages, Walk, walk};
use faultless_sync::atomic::{Ordering, fence};
use faultless_sync::reclaim::Section;
use faultless_sync::{Backoff, Mutant, mutant};
use faultless_trace::Counter;

use crate::base::machine::Machine;
use crate::fault::PteRef;
use crate::fault::vma::{Mode, VmaRef};
use crate::space::{AddressSpace, Note};
use crate::table::rss::RssKind;

/// Pages taken before the fault tries again.
const BATCH: u64 = if cfg!(any(loom, shuttle)) { 1 } else { 256 };

impl<M: Machine> AddressSpace<M> {
    /// Lets go of the pages of `pages`; mappings stay as they are meanwhile.
    pub(crate) fn let_go(&self, pages: Pages) {
        let format = Self::FORMAT;
        let mut gather = Gather::new();
        let mut freed = 0;
        let section = self.memory.enter();
        self.for_each_entry(pages, &mut |entry, page| {
            let mut backoff = Backoff::new();
            loop {
                let value = entry.load();
                if value == 0 || format.is_guard(value) {
                    return;
                }
                if format.is_claimed(value) {
                    backoff.turn(self.machine());
                    continue;
                }
                if !format.is_dirty(value) || !self.may_be_let_go(value) {
                    return;
                }
                if let Some(before) = self.clean(entry, value) {
                    freed += 1;
                    self.gather(before, page, &mut gather);
                    return;
                }
            }
        });
        if !mutant(Mutant::LetGoWithoutFlush) {
            self.flush(&mut gather);
        }
        drop(section);
        if freed > 0 {
            self.note(Note::LET_GO);
            let counters = self.memory.this_cpu().counters();
            counters.add(Counter::LazyFree, freed);
        }
    }

    /// Lets a page that may be let go of count as not written; what its entry held to the last,
    /// if that was still `value`, but for what hardware sets. Under a claim: a pin leaves the entry what it was, and from the claim on none comes
    /// that this does not see.
    fn clean(&self, entry: &Entry, value: u64) -> Option<u64> {
        let format = Self::FORMAT;
        let interrupts = self.machine().interrupts_off();
        let cleaned = match entry.claim_present::<M::Format>(value) {
            Ok(claim) if self.may_be_let_go(value) || mutant(Mutant::PinsNotTested) => {
                Some(claim.publish(|value| format.cleaned(value)))
            }
            // A claim that is dropped is withdrawn.
            _ => None,
        };
        self.machine().interrupts_restore(interrupts);
        cleaned
    }

    /// Takes some of the pages that `MADV_FREE` let go of and that were not written since;
    /// whether there were any. A fault that finds no frame does this in its own space; a
    /// port may do it in any, before it gives up.
    #[cold]
    pub fn take_let_go(&self) -> bool {
        // Whoever lets go while this looks notes it again.
        let droppable = self.has_note(Note::DROPPABLE);
        if !self.take_note(Note::LET_GO) && !droppable {
            return false;
        }
        let format = Self::FORMAT;
        let (mut seen, mut taken) = (false, 0);
        let section = self.memory.enter();
        let all = Pages::of_bytes(0..self.layout.end);
        self.for_each_entry(all, &mut |entry, page| {
            let value = entry.load();
            let may_go =
                format.is_present(value) && !format.is_claimed(value) && self.is_anonymous(value);
            let is_clean =
                may_go && (!format.is_dirty(value) || mutant(Mutant::TakenThoughWritten));
            seen |= is_clean;
            let is_taken = (is_clean || may_go && droppable)
                && taken < BATCH
                && self.take_page(Page(page), value, is_clean, &section);
            taken += u64::from(is_taken);
        });
        drop(section);
        if seen {
            // There may be more, or what is shared now may be this space's alone later.
            self.note(Note::LET_GO);
        }
        if taken == 0 {
            return false;
        }
        let counters = self.memory.this_cpu().counters();
        counters.add(Counter::LazyFreed, taken);
        true
    }

    /// Whether the page of an entry is one of anonymous memory.
    fn is_anonymous(&self, value: u64) -> bool {
        self.counted(value)
            .is_some_and(|descriptor| descriptor.flags().has(Flags::ANONYMOUS))
    }

    /// Whether it is one that nobody else maps or has pinned.
    fn may_be_let_go(&self, value: u64) -> bool {
        self.is_anonymous(value) && self.counted(value).is_some_and(Descriptor::is_sole_use)
    }

    /// Takes a page away whose entry holds `value`, if it `is_clean` or may go at any time;
    /// whether that was possible.
    fn take_page(&self, page: Page, value: u64, is_clean: bool, section: &Section<'_>) -> bool {
        // By validation alone, as under the policy `speculative`.
        let Ok(Some(hold)) = VmaRef::find(self, page, Mode::Locked, section) else {
            return false;
        };
        let is_droppable = || hold.attributes().is_some_and(|of| of.flags.droppable);
        if !is_clean && !is_droppable() {
            return false;
        }
        // SAFETY: inside the section.
        let walked = unsafe { walk::<M::Format, M>(self.machine(), self.root, page) };
        let Walk::Leaf { entry, link, .. } = walked else {
            return false;
        };
        let source = self.machine().frames();
        let frame = Self::FORMAT.frame(value);
        let at = PteRef {
            entry,
            value,
            link,
            hold: &hold,
        };
        let mut is_taken = false;
        let published = self.publish(&at, || {
            // Of what a fork that was over before the validation has done to the page: as in
            // `is_alone` (`shared.rs`), and with the same partner.
            fence(Ordering::Acquire);
            if !self.may_be_let_go(value) {
                // Forked since.
                return Ok(value);
            }
            self.flush_page(page, value);
            is_taken = true;
            Ok(0)
        });
        if published.is_err() || !is_taken {
            return false;
        }
        let cpu = self.machine().cpu();
        self.rss.gone_one(cpu, RssKind::Anonymous);
        if source.descriptor(frame).unmap() {
            source.free(cpu, frame);
        }
        true
    }
}
