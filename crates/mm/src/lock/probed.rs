//! Whether an address space may show breakpoints of probes ([`crate::probe`]).
//!
//! A word of the space says whether it *may* show breakpoints: who is trapped at one that the space
//! cannot have is trapped at the program's own. It is set where a mapping with probes comes
//! into the tree, under the edit that shows it and before any breakpoint is in its pages. Where one
//! leaves the tree it is only noted that the answer is to be *checked again*, after the slots say so
//! and under the same edit: the zap that follows knows nothing of it. The next who is trapped at what
//! is no probe looks through the tree, with no lock, and clears the word if no mapping is left that
//! has probes; unless one has come meanwhile, which each coming is counted for, in the same word. A probe
//! that is ending is one, and leaves the answer in doubt.
//!
//! Who ends a probe passes over a space that cannot show any: whoever puts a breakpoint in place says so before he
//! asks, under the claim, whether the probe is ending.
//!
//! A mapping that is moved leaves its old place when it is at the new one, which counts as coming: who
//! looks finds one of them, or fails to clear.
//!
//! *Writes*: `Mappings::probed`, when mappings with probes come and go.

use faultless_paging::Pages;
use faultless_sync::atomic::Ordering;
use faultless_sync::{Mutant, mutant};

use crate::base::machine::Machine;
use crate::lock::Mappings;
use crate::object::probe::{ProbeFilter, ProbeInfo};
use crate::tree::PAGES;
use crate::tree::mapping::{Attributes, ObjectRef};

/// In the word: it may show breakpoints.
const MAY_SHOW: u32 = 1;
/// In the word: that is to be checked again.
const CHECK: u32 = 2;
/// In the word: one mapping with probes more has come.
const ONE: u32 = 4;

impl Attributes {
    /// The store whose probes a mapping shows, if it is of that kind. Breakpoints only come to what
    /// cannot be written, but stay when it can.
    pub(crate) fn shows_probes(&self) -> Option<&ObjectRef> {
        self.backed.as_ref().filter(|_| !self.flags.shared)
    }

    /// Whether a mapping is of that kind.
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

    /// Whether it may show breakpoints of probes.
    pub(crate) fn may_show_probes(&self) -> bool {
        // Acquire: of the release of who let it show one.
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

    /// A mapping that may have shown probes, which may be ended by now, or a part of it, has left the
    /// tree, and its slots say so. Asked now and not before: what came to it at the last is seen.
    #[inline]
    pub(crate) fn takes_probes(&self) {
        if self.may_show_probes() {
            self.check_probes_later();
        }
    }

    /// Whether it shows any is in doubt.
    #[cold]
    pub(crate) fn check_probes_later(&self) {
        // Release: who checks again sees the slots.
        self.probed.fetch_or(CHECK, Ordering::Release);
    }

    /// A mapping of `pages` has come into the tree, and nobody runs it yet.
    #[inline]
    pub(crate) fn brings_probes(&self, pages: Pages, attributes: &Attributes) {
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

    /// Looks through the tree whether any mapping shows probes, if that is in doubt.
    pub(crate) fn check_probes(&self) {
        // Acquire: of the releases above.
        if self.probed.load(Ordering::Acquire) & CHECK == 0 {
            return;
        }
        // What leaves from here on sets it again.
        let seen = self.probed.fetch_and(!CHECK, Ordering::AcqRel) & !CHECK;
        let (mut at, mut is_doubtful) = (0, false);
        while let Some((part, attributes)) = self.mapped_in(at, PAGES) {
            at = part.end;
            // In this order: what ends in between says itself that there is doubt.
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
        // Not if one has come since: it counts, and may be where this has been.
        let (set, fetch) = (Ordering::AcqRel, Ordering::Relaxed);
        let _ = self.probed.compare_exchange(seen, cleared, set, fetch);
    }

    /// In a child that nobody else knows: it may show what its parent shows, but for what it did not get.
    pub(crate) fn inherit_probes(&self, parent: &Self) {
        if parent.may_show_probes() {
            self.probed.store(MAY_SHOW | CHECK, Ordering::Relaxed);
        }
    }
}
