//! Writes to pages that are present and read-only: by `mprotect`, or because
//! `fork` shared them.
//!
//! A page of a device becomes writable in place. A page of a store stays what it is: where the store is mapped shared it becomes
//! writable in place, elsewhere it is copied.
//!
//! Whether a page is shared is known, not guessed: its frame's descriptor has
//! the mark *exclusive*, or a count of the entries that map it. What is decided
//! from that before the claim is only what to get ready; it is decided again
//! after the claim (rule R3). From the claim on, if it is valid, no fork of
//! this space copies the table without having waited for it, so that "this mapping is
//! the only one" stays true, and the page may be written in place.
//!
//! Written lines: the entry, the old frame's descriptor, and for a copy the new
//! frame and its descriptor.
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
    /// Write to a page that is present and read-only, in a mapping that allows it.
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
            self.raise_page(at, || true)?;
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

    /// Lets a page be written that is this space's alone.
    fn reuse_page(
        &self,
        at: &PteRef<'_>,
        page: Page,
        descriptor: &Descriptor,
    ) -> Result<(), Retry> {
        self.raise_page(at, || {
            // Forked since the look, if not: the next try copies.
            mutant(Mutant::SharingNotChecked) || self.is_alone(descriptor, page)
        })?;
        self.memory().count(Counter::Reuses);
        Ok(())
    }

    /// Lets a page that is present be written, if it still `may`. No copy and no flush;
    /// another CPU's old translation faults.
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

    /// Gives this space a copy of a page that others map, too; writable if the mapping allows.
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
                // The others have gone meanwhile. The claim holds what hardware has set.
                let written = format.written(at.value);
                return Ok(format.with_protection(written, protection, true));
            }
            prepared.page_used();
            // What CPUs have cached of the old page must go before the new one
            // can be written, and only then is it copied (rule R3).
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
        // Copied and flushed: whoever is left may now write it.
        if descriptor.unmap() {
            source.free(self.machine().cpu(), old);
        }
        Ok(())
    }

    /// Whether the page is this space's alone; if so it is marked exclusive.
    /// After the claim and its validation.
    pub(crate) fn is_alone(&self, descriptor: &Descriptor, page: Page) -> bool {
        // A fork that had copied the table before the validation took the mark away before
        // it thawed the table. Pairs with the release of that store.
        fence(Ordering::Acquire);
        descriptor.take_over(self.number(), page.0)
    }
}
