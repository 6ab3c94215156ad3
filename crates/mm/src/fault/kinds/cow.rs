//! Copy-on-write: writes to pages that are present and read-only, because of `mprotect` or because `fork`
//! shared them.
//!
//! A device's page becomes writable in place. So does an object's page in a shared mapping; in a private
//! mapping it is copied.
//!
//! Whether an anonymous page is shared is known, not guessed: its descriptor has the mark *exclusive*, or a
//! count of the entries that map it. A decision before the claim only chooses what to prepare. It is made
//! again after the claim (rule R3). Once a claim is valid, no fork of this space copies the table without
//! waiting for the claim. So "this mapping is the only one" stays true, and the page may be written in place.
//!
//! *Writes*: the entry, the old frame's descriptor, and for a copy the new frame and its descriptor.
//!
//! *Models*: loom `fault/sharing.rs`, shuttle `fault/copies.rs`.

use faultless_frames::{Descriptor, Flags, FrameSource};
use faultless_paging::Page;
use faultless_sync::atomic::{Ordering, fence};
use faultless_sync::{Mutant, mutant};
use faultless_trace::{Counter, How};

use crate::base::machine::Machine;
use crate::fault::PteRef;
use crate::fault::state::FaultState;
use crate::fault::trace::TraceSink;
use crate::space::AddressSpace;
use crate::table::retry::Retry;
use crate::table::rss::RssKind;

impl<M: Machine> AddressSpace<M> {
    /// Resolves a write to a page that is present and read-only, in a mapping that allows it.
    pub(crate) fn write_page<N: TraceSink>(
        &self,
        at: &PteRef<'_>,
        page: Page,
        prepared: &mut FaultState<M, N>,
    ) -> Result<(), Retry> {
        if Self::FORMAT.is_device(at.value) {
            self.raise_page(at, || true)?;
            prepared.trail.ends(How::Reuse);
            return Ok(());
        }
        let frame = Self::FORMAT.frame(at.value);
        let descriptor = self.machine().frames().descriptor(frame);
        if descriptor.flags().has(Flags::FILE) && at.vma.is_shared() {
            self.raise_page(at, || {
                descriptor.mark_dirty();
                true
            })?;
            prepared.trail.ends(How::Reuse);
            Ok(())
        } else if descriptor.is_sole() {
            self.reuse_page(at, page, descriptor)?;
            prepared.trail.ends(How::Reuse);
            Ok(())
        } else {
            self.copy_page(at, page, descriptor, prepared)
        }
    }

    /// Makes a page writable that only this space maps.
    fn reuse_page(
        &self,
        at: &PteRef<'_>,
        page: Page,
        descriptor: &Descriptor,
    ) -> Result<(), Retry> {
        self.raise_page(at, || {
            // If not alone, the page was forked since the look: the next try copies.
            mutant(Mutant::SharingNotChecked) || self.is_alone(descriptor, page)
        })?;
        self.memory().count(Counter::Reuses);
        Ok(())
    }

    /// Makes a present page writable if it still `may` be. This needs no copy and no flush: a stale
    /// translation on another CPU faults.
    fn raise_page(&self, at: &PteRef<'_>, may: impl FnOnce() -> bool) -> Result<(), Retry> {
        let protection = at.vma.protection();
        self.tables().transact_present(at, || {
            if !may() {
                return Err(Retry::MappingChanged);
            }
            let format = Self::FORMAT;
            Ok(move |v| format.with_protection(format.written(v), protection, true))
        })
    }

    /// Gives this space a copy of a page that other entries map, too; writable if the mapping allows.
    pub(crate) fn copy_page<N: TraceSink>(
        &self,
        at: &PteRef<'_>,
        page: Page,
        descriptor: &Descriptor,
        prepared: &mut FaultState<M, N>,
    ) -> Result<(), Retry> {
        let format = Self::FORMAT;
        let protection = at.vma.protection();
        let source = self.machine().frames();
        let (old, new) = (format.frame(at.value), prepared.page_to_fill()?);
        source.descriptor(new).set_anonymous(self.number(), page.0);
        let mut copied = false;
        self.tables().transact(at, || {
            if self.is_alone(descriptor, page) {
                // The other mappings have gone meanwhile. The claim holds what hardware has set.
                let written = format.written(at.value);
                return Ok(format.with_protection(written, protection, true));
            }
            prepared.page_used();
            // Flush what CPUs have cached of the old page before the new one can be written, and copy only
            // then (rule R3).
            self.tables().flush_page(page, at.value);
            self.machine().copy(old, new);
            copied = true;
            let leaf = format.leaf_of(new, protection.write, protection, true);
            Ok(self.allowed::<N>(leaf, at))
        })?;
        if !copied {
            self.memory().count(Counter::Reuses);
            prepared.trail.ends(How::Reuse);
            return Ok(());
        }
        self.memory().count(Counter::Copies);
        prepared.trail.ends(How::Copy);
        let rss = &self.tables().rss;
        rss.copied(self.machine().cpu(), RssKind::of(descriptor));
        // Copied and flushed: the last mapping that is left may be written from here on.
        if descriptor.unmap() {
            source.free(self.machine().cpu(), old);
        }
        Ok(())
    }

    /// Whether only this space maps the page; if so, marks it exclusive. Called after the claim and its
    /// validation.
    pub(crate) fn is_alone(&self, descriptor: &Descriptor, page: Page) -> bool {
        // A fork that had copied the table before the validation cleared the mark before it thawed the table.
        // Pairs with the release of that store.
        fence(Ordering::Acquire);
        descriptor.take_over(self.number(), page.0)
    }
}
