//! Probes ([`crate::probe::list`]) as one address space has them: whether it shows any, and how a breakpoint
//! gets into it and out of it.
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
//! Written lines: `AddressSpace::probed`, when mappings with probes come and go; in a page's case those
//! of an access from outside.

use faultless_frames::Flags;
use faultless_paging::{Access, PAGE_SIZE, Page, Pages, Walk, walk};
use faultless_sync::atomic::Ordering;
use faultless_sync::{Mutant, mutant};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::object::ObjectInner;
use crate::probe::list::{ProbeFilter, ProbeInfo};
use crate::space::AddressSpace;
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
    fn shows_probes(&self) -> Option<&ObjectRef> {
        self.backed.as_ref().filter(|_| !self.flags.shared)
    }

    /// Whether a mapping is of that kind.
    #[inline]
    pub(crate) fn may_show_probes(&self) -> bool {
        self.shows_probes().is_some()
    }
}

impl<M: Machine> AddressSpace<M> {
    /// The probe at an address, by its tag, for who is trapped at a breakpoint there. `None`: it is the
    /// program's own, if it is still there; or the probe has gone since.
    pub fn probe_at(&self, address: u64) -> Option<u64> {
        if !self.may_show_probes() {
            return None;
        }
        let found = self.lookup(address).and_then(|attributes| {
            let backed = attributes.shows_probes()?;
            let index = backed.index(address / PAGE_SIZE);
            let byte = index.checked_mul(PAGE_SIZE)? + address % PAGE_SIZE;
            self.find_probe_of(backed, byte)
        });
        if found.is_none() {
            self.check_probes();
        }
        found.map(|known| known.tag)
    }

    fn find_probe_of(&self, backed: &ObjectRef, byte: u64) -> Option<ProbeInfo> {
        let bytes = byte..byte.checked_add(1)?;
        self.memory
            .find_probe(backed.pointer().as_ptr(), bytes, ProbeFilter::Listed)
    }

    /// Whether it may show breakpoints of probes.
    pub fn may_show_probes(&self) -> bool {
        // Acquire: of the release of who let it show one.
        self.probed.load(Ordering::Acquire) & MAY_SHOW != 0
    }

    /// Whether a mapping with these attributes shows probes in `pages`.
    fn has_probes(&self, pages: Pages, attributes: &Attributes, which: ProbeFilter) -> bool {
        let backed = attributes.shows_probes();
        backed.is_some_and(|backed| {
            let index = backed.index(pages.start);
            let cache = backed.pointer().as_ptr();
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
        if self.memory.probes().any() && self.has_probes(pages, attributes, ProbeFilter::Listed) {
            self.show_probes();
        }
    }

    #[cold]
    fn show_probes(&self) {
        let more = |word: u32| Some(word.wrapping_add(ONE) | MAY_SHOW);
        let (set, fetch) = (Ordering::AcqRel, Ordering::Relaxed);
        let _ = self.probed.fetch_update(set, fetch, more);
    }

    /// Looks through the tree whether any mapping shows probes, if that is in doubt.
    fn check_probes(&self) {
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

    /// Puts breakpoints into what is mapped of `pages`, for who has changed the tree, with nothing
    /// held. Where there is no memory for one there is none, as on Linux.
    pub(crate) fn install_probes(&self, pages: Pages) {
        // The caller has had the range: see `await_change`.
        if !self.memory.probes().any() {
            return;
        }
        let mut at = pages.start;
        while let Some((part, attributes)) = self.mapped_in(at, pages.end) {
            at = part.end;
            if let Some(backed) = attributes.shows_probes() {
                self.install_in(part, backed);
            }
        }
    }

    /// The same for pages that one mapping has.
    fn install_in(&self, pages: Pages, backed: &ObjectRef) {
        let cache = backed.pointer().as_ptr();
        let mut at = pages.start;
        while at < pages.end {
            let rest = Pages::new(at, pages.end);
            let Some(known) = self.registered_in(cache, backed.index(at), rest) else {
                return;
            };
            at = self.page_of(&known, backed.first);
            // Every probe of a page, one byte after the other.
            let page = at;
            let mut next = Some(known);
            while let Some(known) = next {
                let _ = self.install_probe(page, (cache, backed.first), &known);
                let end = (known.byte / PAGE_SIZE + 1).saturating_mul(PAGE_SIZE);
                let rest = known.byte + 1..end;
                next = self.memory.find_probe(cache, rest, ProbeFilter::Registered);
            }
            at += 1;
        }
    }

    fn registered_in(
        &self,
        cache: *const ObjectInner,
        index: u64,
        pages: Pages,
    ) -> Option<ProbeInfo> {
        self.memory
            .probe_in(cache, index, pages, ProbeFilter::Registered)
    }

    fn page_of(&self, known: &ProbeInfo, first: u64) -> u64 {
        (known.byte / PAGE_SIZE).wrapping_sub(first)
    }

    /// Waits until nobody changes what is mapped at a page, a fork that fills this space included. What
    /// was changed before is seen from here on; who changes it later sees what the caller has done.
    pub(crate) fn await_change(&self, page: u64) {
        if page < self.layout.end / PAGE_SIZE && !mutant(Mutant::ProbeBesideChanges) {
            drop(self.hold_range(Pages::new(page, page + 1)));
        }
    }

    /// Puts a breakpoint into a page, where a mapping of the store shows it that cannot be written and
    /// the probe is registered.
    pub(crate) fn install_probe(
        &self,
        page: u64,
        (cache, first): (*const ObjectInner, u64),
        known: &ProbeInfo,
    ) -> Result<(), Errno> {
        let is_meant = |attributes: &Attributes| {
            let backed = attributes.shows_probes();
            backed.is_some_and(|backed| backed.is(cache, first)) && !attributes.protection.write
        };
        let Some(address) = self.address_of(page, &is_meant) else {
            return Ok(());
        };
        // Before anybody runs it.
        self.show_probes();
        let mut is_put = false;
        let mut put = |frame| {
            let bytes = known.byte..known.byte + 1;
            let found = self
                .memory
                .find_probe(cache, bytes, ProbeFilter::Registered);
            if found.is_some() || mutant(Mutant::ProbeOutlived) {
                self.memory.set_byte_in(frame, known.byte, known.breakpoint);
                is_put = true;
            }
        };
        let result = self.access_meant(address, Access::Write, &is_meant, &mut put);
        if !is_put {
            // What has left meanwhile may have found that it showed none.
            self.check_probes_later();
        }
        match result {
            Err(Errno::ENOMEM) => Err(Errno::ENOMEM),
            // Or there is something else by now.
            _ => Ok(()),
        }
    }

    /// Takes a breakpoint out of a page, where a mapping of the store shows it. Not what the program
    /// has written there itself, in a space that shows no probes.
    pub(crate) fn remove_probe(
        &self,
        page: u64,
        (cache, first): (*const ObjectInner, u64),
        known: &ProbeInfo,
    ) -> Result<(), Errno> {
        let is_meant = |attributes: &Attributes| {
            let backed = attributes.shows_probes();
            backed.is_some_and(|backed| backed.is(cache, first))
        };
        if page >= self.layout.end / PAGE_SIZE || !self.has_copy(page) {
            return Ok(());
        }
        let Some(address) = self.address_of(page, &is_meant) else {
            return Ok(());
        };
        let mut is_there = false;
        let mut look = |frame| {
            is_there = self.memory.byte_in(frame, known.byte) == known.breakpoint;
        };
        // What is not there any more has to be brought for this, and what cannot be shows none.
        let _ = self.access_meant(address, Access::Read, &is_meant, &mut look);
        if !is_there || known.breakpoint == known.original {
            return Ok(());
        }
        let mut put = |frame| {
            if self.memory.byte_in(frame, known.byte) == known.breakpoint {
                self.memory.set_byte_in(frame, known.byte, known.original);
            }
        };
        match self.access_meant(address, Access::Write, &is_meant, &mut put) {
            Err(Errno::ENOMEM) => Err(Errno::ENOMEM),
            // Or it has gone.
            _ => Ok(()),
        }
    }

    /// Whether a page is one of the space's own, in a space that may show breakpoints. A page of the
    /// store shows none. Waits as [`AddressSpace::await_change`] does, and looks while nobody moves it.
    fn has_copy(&self, page: u64) -> bool {
        let _range = self.hold_range(Pages::new(page, page + 1));
        if !self.may_show_probes() {
            return false;
        }
        self.check_probes_later();
        let _section = self.memory.enter();
        // SAFETY: inside the section.
        let walked = unsafe { walk::<M::Format, M>(self.machine(), self.root, Page(page)) };
        let Walk::Leaf { entry, .. } = walked else {
            return matches!(walked, Walk::Busy);
        };
        let value = self.settled(entry);
        value != 0
            && !Self::FORMAT.is_guard(value)
            && self
                .counted(value)
                .is_some_and(|descriptor| !descriptor.flags().has(Flags::FILE))
    }

    /// The address of a page, if it is mapped as is meant.
    fn address_of(&self, page: u64, is_meant: &dyn Fn(&Attributes) -> bool) -> Option<u64> {
        if page >= self.layout.end / PAGE_SIZE {
            return None;
        }
        let address = Page(page).address();
        let attributes = self.lookup(address)?;
        is_meant(&attributes).then_some(address)
    }
}
