//! Whether an address space may show breakpoints of probes ([`crate::probe`]).
//!
//! A word of the space says whether it *may* show breakpoints. If it cannot, a trap at a breakpoint is the
//! program's own.
//!
//! * A mapping with probes that enters the tree sets the word, under the edit that shows it. This precedes
//!   any breakpoint in its pages.
//! * If such a mapping leaves the tree, the answer is only marked as *to be checked again*: under the same
//!   edit, after the slots say so. The zap that follows knows nothing of probes.
//! * The next trap that is no probe's searches the tree, with no lock. It clears the word if no mapping with
//!   probes is left, unless one has entered meanwhile: the same word counts each entry.
//! * A probe that is ending still counts as a probe, and leaves the answer in doubt.
//! * The end of a probe skips a space that cannot show any. This is safe: code that sets a breakpoint first
//!   sets the word, and then checks, under the claim, whether the probe is ending.
//! * A mapping that moves leaves its old place when it is at the new one, which counts as an entry. A search
//!   finds it at one of them, or fails to clear the word.
//!
//! *Writes*: `Mappings::probed`, when mappings with probes enter or leave the tree.
//!
//! *Models*: loom `probe/probes.rs`, shuttle `probe/probes.rs`.

use faultless_paging::Pages;
use faultless_sync::atomic::Ordering;
use faultless_sync::{Mutant, mutant};

use crate::base::machine::Machine;
use crate::lock::Mappings;
use crate::object::probe::{ProbeFilter, ProbeInfo};
use crate::tree::PAGES;
use crate::tree::mapping::{Attributes, ObjectRef};

/// In the word: the space may show breakpoints.
const MAY_SHOW: u32 = 1;
/// In the word: the answer is to be checked again.
const CHECK: u32 = 2;
/// In the word: one more mapping with probes has entered the tree.
const ONE: u32 = 4;

impl Attributes {
    /// Returns the memory object of which the mapping can show probes. Breakpoints are set only in mappings
    /// that are not writable, but stay if they become writable.
    pub(crate) fn shows_probes(&self) -> Option<&ObjectRef> {
        self.backed.as_ref().filter(|_| !self.flags.shared)
    }

    /// Whether the mapping can show probes.
    #[inline]
    pub(crate) fn may_show_probes(&self) -> bool {
        self.shows_probes().is_some()
    }
}

impl<M: Machine> Mappings<M> {
    pub(crate) fn find_probe_of(&self, backed: &ObjectRef, byte: u64) -> Option<ProbeInfo> {
        let bytes = byte..byte.checked_add(1)?;
        self.memory
            .find_probe(backed.pointer().as_ptr().cast(), bytes, ProbeFilter::Listed)
    }

    /// Whether the space may show breakpoints of probes.
    pub(crate) fn may_show_probes(&self) -> bool {
        // Acquire: pairs with the release in `show_probes`.
        self.probed.load(Ordering::Acquire) & MAY_SHOW != 0
    }

    /// Whether a mapping with these attributes shows probes in `pages`.
    pub(crate) fn has_probes(
        &self,
        pages: Pages,
        attributes: &Attributes,
        which: ProbeFilter,
    ) -> bool {
        let backed = attributes.shows_probes();
        backed.is_some_and(|backed| {
            let index = backed.index(pages.start);
            let cache = backed.pointer().as_ptr().cast();
            self.memory.probe_in(cache, index, pages, which).is_some()
        })
    }

    /// Records that a mapping that could show probes, or a part of it, has left the tree, and that its slots
    /// say so. The probes may have ended since. Reads the word only now, so that a breakpoint set at the last
    /// moment is seen.
    #[inline]
    pub(super) fn takes_probes(&self) {
        if self.may_show_probes() {
            self.check_probes_later();
        }
    }

    /// Marks the answer as in doubt.
    #[cold]
    pub(crate) fn check_probes_later(&self) {
        // Release: the next check sees the slots.
        self.probed.fetch_or(CHECK, Ordering::Release);
    }

    /// Records that a mapping of `pages` has entered the tree. No thread runs it yet.
    #[inline]
    pub(super) fn brings_probes(&self, pages: Pages, attributes: &Attributes) {
        if self.memory.has_probes() && self.has_probes(pages, attributes, ProbeFilter::Listed) {
            self.show_probes();
        }
    }

    #[cold]
    pub(crate) fn show_probes(&self) {
        let more = |word: u32| Some(word.wrapping_add(ONE) | MAY_SHOW);
        let (set, fetch) = (Ordering::AcqRel, Ordering::Relaxed);
        let _ = self.probed.fetch_update(set, fetch, more);
    }

    /// Searches the tree for a mapping that shows probes, if the answer is in doubt. Clears the word if there
    /// is none.
    pub(crate) fn check_probes(&self) {
        // Acquire: pairs with the releases above.
        if self.probed.load(Ordering::Acquire) & CHECK == 0 {
            return;
        }
        // A mapping that leaves from here on sets the bit again.
        let seen = self.probed.fetch_and(!CHECK, Ordering::AcqRel) & !CHECK;
        let (mut at, mut is_doubtful) = (0, false);
        while let Some((part, attributes)) = self.mapped_in(at, PAGES) {
            at = part.end;
            // In this order: a probe that ends in between marks the answer as in doubt itself.
            if self.has_probes(part, &attributes, ProbeFilter::Registered) {
                return;
            }
            is_doubtful |= self.has_probes(part, &attributes, ProbeFilter::Listed);
        }
        if is_doubtful {
            self.check_probes_later();
            return;
        }
        let cleared = seen & !MAY_SHOW;
        if mutant(Mutant::ProbesForgotten) {
            self.probed.fetch_and(!MAY_SHOW, Ordering::AcqRel);
            return;
        }
        // Fails if a mapping has entered since: it has raised the count, and may be where the search has
        // been.
        let (set, fetch) = (Ordering::AcqRel, Ordering::Relaxed);
        let _ = self.probed.compare_exchange(seen, cleared, set, fetch);
    }

    /// Lets a child that nothing else knows yet show what its parent may show. It may have inherited less.
    pub(super) fn inherit_probes(&self, parent: &Self) {
        if parent.may_show_probes() {
            self.probed.store(MAY_SHOW | CHECK, Ordering::Relaxed);
        }
    }
}
