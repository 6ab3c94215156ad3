//! Faults on pages that a store has: files and shared memory.
//!
//! The page is looked up, or added, with nothing held (step 5). After the claim the
//! mapping is counted, before publication (rule R7), and then the page's slot is looked at
//! once more (step 7). A truncation clears the slot before it looks at the entries and
//! then at the counts (rule R6): an entry that nothing leads to any more, because its
//! mapping goes meanwhile, it does not find, but it sees it counted. A write to private
//! memory gets a copy at once, made under the claim; the page is counted while it is
//! copied.
//!
//! A read of a page that is there also maps what is there around it, as Linux's
//! fault-around does: up to 16 pages, each claimed and validated like the first.
//!
//! Written lines: the entry, the frame's descriptor, which all have in common who map
//! the page; its slot, if the page was not there.
//!
//! *Models*: loom `rmap/truncate.rs`.

use faultless_frames::FrameSource;
use faultless_paging::{Access, ENTRIES, Page, Walk};
use faultless_sync::reclaim::Section;
use faultless_sync::{Mutant, fence_after_rmw, mutant};
use faultless_trace::{Counter, How};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::fault::state::FaultState;
use crate::fault::trace::TraceSink;
use crate::fault::{Outcome, PteRef};
use crate::object::{Lookup, ObjectInner, PageRef};
use crate::space::AddressSpace;
use crate::table::retry::{Blocker, Retry};
use crate::table::rss::RssKind;
use crate::tree::mapping::ObjectRef;
use crate::tune::FAULT_AROUND;

/// What a page of a store is mapped for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// Nothing yet: it lies around one that is used.
    None,
    /// A load or an instruction fetch.
    Read,
    /// A store.
    Write,
}

impl<M: Machine> AddressSpace<M> {
    /// An access to an empty entry of a mapping with a store.
    pub(crate) fn map_file_page<N: TraceSink>(
        &self,
        at: &PteRef<'_>,
        page: Page,
        access: Access,
        prepared: &mut FaultState<M, N>,
        section: &Section<'_>,
    ) -> Result<Outcome, Retry> {
        let Some(attributes) = at.vma.attributes() else {
            return Err(Retry::MappingChanged);
        };
        let Some(backed) = &attributes.backed else {
            return Err(Retry::MappingChanged);
        };
        let (cache, index) = (backed.object(), backed.index(page.0));
        if cache.is_device() {
            return self.map_device_page(at, access, attributes, (cache, index), prepared);
        }
        let mut was_there = true;
        let found = loop {
            match cache.find(index) {
                Lookup::Page(found) => break found,
                Lookup::Beyond => return Ok(Outcome::Bus),
                Lookup::Missing if cache.is_zeroes(index) => {
                    // Its slot first: who holds the last frame cannot make what leads to that.
                    self.memory()
                        .make_slot(cache, index)
                        .map_err(|_| Retry::Wait(Blocker::Memory))?;
                    let frame = prepared.page()?;
                    match self.memory().add_page(cache, index, frame) {
                        Ok(true) => prepared.page_used(),
                        Ok(false) => prepared.page_shown(),
                        Err(Errno::ENOMEM) => return Err(Retry::Wait(Blocker::Memory)),
                        Err(_) => return Ok(Outcome::Bus),
                    }
                    was_there = false;
                }
                Lookup::Missing | Lookup::Filling | Lookup::Moving => {
                    return Err(prepared.needs_page(backed, index));
                }
            }
        };
        let is_write = access == Access::Write;
        if is_write && !attributes.flags.shared {
            self.copy_file_page(at, page, cache, found, prepared)?;
        } else {
            // Where a store has to be noticed, a read does not let it through.
            let shared = attributes.flags.shared;
            let stores = shared && (is_write || self.is_new(attributes));
            let used_for = if is_write { Use::Write } else { Use::Read };
            self.show_file_page::<N>(at, cache, found, stores, used_for)?;
            prepared.trail.ends(match prepared.has_waited {
                true => How::Major,
                false => How::File,
            });
            if was_there && !is_write {
                self.fault_around::<N>(at, page, backed, stores, section);
            }
        }
        prepared.count_wait();
        Ok(Outcome::Resolved)
    }

    /// Maps a page of a store as it is; `stores`: so that it can be written, if the mapping
    /// allows that.
    fn show_file_page<N: TraceSink>(
        &self,
        at: &PteRef<'_>,
        cache: &ObjectInner,
        found: PageRef<'_>,
        stores: bool,
        used_for: Use,
    ) -> Result<(), Retry> {
        let protection = at.vma.protection();
        let mut kind = RssKind::File;
        self.tables().transact(at, || {
            self.count_page(cache, found)?;
            // Once it is published the page may go, and its frame may become something else.
            kind = RssKind::of(self.machine().frames().descriptor(found.frame));
            let write = stores && protection.write;
            let is_write = used_for == Use::Write;
            let leaf = Self::FORMAT.leaf_of(found.frame, write, protection, is_write);
            let leaf = self.allowed::<N>(leaf, at);
            Ok(match used_for {
                Use::None if self.machine().marks_loads() => Self::FORMAT.unloaded(leaf),
                Use::None => Self::FORMAT.unused(leaf),
                _ => leaf,
            })
        })?;
        self.tables().rss.came(self.machine().cpu(), kind);
        Ok(())
    }

    /// A write to private memory: a copy, and nobody sees the page itself.
    fn copy_file_page<N: TraceSink>(
        &self,
        at: &PteRef<'_>,
        page: Page,
        cache: &ObjectInner,
        found: PageRef<'_>,
        prepared: &mut FaultState<M, N>,
    ) -> Result<(), Retry> {
        let protection = at.vma.protection();
        let new = prepared.page_to_fill()?;
        let descriptor = self.machine().frames().descriptor(new);
        descriptor.set_anonymous(self.number(), page.0);
        self.tables().transact(at, || {
            self.count_page(cache, found)?;
            prepared.page_used();
            self.machine().copy(found.frame, new);
            let leaf = Self::FORMAT.leaf_of(new, true, protection, true);
            Ok(self.allowed::<N>(leaf, at))
        })?;
        let cpu = self.machine().cpu();
        self.tables().rss.came(cpu, RssKind::Anonymous);
        self.uncount_page(found);
        self.memory().count(Counter::Copies);
        prepared.trail.ends(How::Copy);
        Ok(())
    }

    /// Maps what the store has around a page that was just mapped. What cannot be had at
    /// once stays for a fault of its own.
    fn fault_around<N: TraceSink>(
        &self,
        at: &PteRef<'_>,
        page: Page,
        backed: &ObjectRef,
        stores: bool,
        section: &Section<'_>,
    ) {
        let table_end = (page.0 | (ENTRIES as u64 - 1)) + 1;
        let mut before = page.0;
        // As far down as the window goes, or the mapping.
        let window = page.0 & !(FAULT_AROUND - 1);
        while before > window && at.vma.beside(&self.maps, Page(before - 1)).is_some() {
            before -= 1;
        }
        for neighbour in before..table_end.min(before + FAULT_AROUND) {
            if neighbour == page.0 {
                continue;
            }
            let Some(hold) = at.vma.beside(&self.maps, Page(neighbour)) else {
                return;
            };
            let walked = self.tables().descend(Page(neighbour), section);
            let Walk::Leaf {
                entry,
                value: 0,
                link,
            } = walked
            else {
                continue;
            };
            if let Lookup::Page(found) = backed.object().find(backed.index(neighbour)) {
                let at = PteRef {
                    entry,
                    value: 0,
                    link,
                    vma: &hold,
                };
                // Withdrawn: somebody else is there.
                let _ = self.show_file_page::<N>(&at, backed.object(), found, stores, Use::None);
            }
        }
    }

    /// The rest of step 7: the frame is counted as mapped, and still is the page that it was
    /// taken for.
    #[inline]
    fn count_page(&self, cache: &ObjectInner, found: PageRef<'_>) -> Result<(), Retry> {
        if mutant(Mutant::CountedTooLate) && !found.is_valid(cache) {
            return Err(Retry::PageChanged);
        }
        if !self.machine().frames().descriptor(found.frame).map() {
            return Err(Retry::PageChanged);
        }
        // Partner: the fence between a page's leaving its slot and the look at its uses.
        if !mutant(Mutant::ClaimWithoutFence) {
            fence_after_rmw();
        }
        let is_valid = found.is_valid(cache)
            || mutant(Mutant::IdentityNotValidated)
            || mutant(Mutant::CountedTooLate);
        if is_valid {
            return Ok(());
        }
        self.uncount_page(found);
        Err(Retry::PageChanged)
    }

    /// Takes the count away again. The page may have been let go of meanwhile.
    fn uncount_page(&self, page: PageRef<'_>) {
        let source = self.machine().frames();
        if source.descriptor(page.frame).unmap() {
            source.free(self.machine().cpu(), page.frame);
        }
    }
}
