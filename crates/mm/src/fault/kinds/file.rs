//! Faults on pages of a memory object: files and shared memory.
//!
//! * The page is looked up, or added, with nothing held (step 5). After the claim the mapping is counted,
//!   before publication (rule R7). Then the page's slot is read once more (step 7).
//! * A truncation clears the slot before it looks at the entries and then at the counts (rule R6). It cannot
//!   find an entry that nothing leads to, because its mapping is being unmapped. But it sees that entry
//!   counted.
//! * A write to private memory makes the copy under the first claim. The page is counted while it is copied.
//! * A read of a page that is present also maps present pages around it, like Linux's fault-around: up to 16
//!   pages, each claimed and validated like the first.
//!
//! *Writes*: the entry; the frame's descriptor, which all mappings of the page share; the page's slot, if the
//! page was missing.
//!
//! *Models*: loom `rmap/truncate.rs`.

use faultless_frames::{Descriptor, FrameSource};
use faultless_paging::{Access, ENTRIES, Page, Walk};
use faultless_sync::reclaim::Section;
use faultless_sync::{Mutant, fence_after_rmw, mutant};
use faultless_trace::{Counter, How};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::userfault::numbers as userfault;
use crate::fault::kinds::userfault::flags_of;
use crate::fault::state::FaultState;
use crate::fault::trace::TraceSink;
use crate::fault::{Outcome, PteRef};
use crate::object::{Lookup, ObjectInner, PageRef};
use crate::space::AddressSpace;
use crate::table::retry::{Blocker, Retry};
use crate::table::rss::RssKind;
use crate::tree::mapping::{Attributes, ObjectRef};
use crate::tune::FAULT_AROUND;

/// The access for which a page of an object is mapped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Use {
    /// None yet: it lies around a page that is accessed.
    None,
    /// A load or an instruction fetch.
    Read,
    /// A store.
    Write,
}

impl<M: Machine> AddressSpace<M> {
    /// Resolves an access to an entry without a page, empty or a marker, of a mapping with an object or a
    /// userfaultfd.
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
            return self.map_registered_page(at, page, access, attributes.handler, prepared);
        };
        let (cache, index) = (backed.object(), backed.index(page.0));
        if cache.is_device() {
            return self.map_device_page(at, access, attributes, (cache, index), prepared);
        }
        let mut was_there = true;
        let handler = attributes.handler;
        let found = loop {
            match cache.find(index) {
                Lookup::Page(_) if was_there && handler.waits(userfault::MINOR) => {
                    let flags = flags_of(access) | userfault::FLAG_MINOR;
                    return Err(prepared.needs_handler(handler, flags));
                }
                Lookup::Page(found) => break found,
                Lookup::Beyond => return Ok(Outcome::Bus),
                Lookup::Missing if handler.waits(userfault::MISSING) && cache.is_zeroes(index) => {
                    return Err(prepared.needs_handler(handler, flags_of(access)));
                }
                Lookup::Missing if cache.is_pooled() => {
                    match self.map_part_of_pool(at, page, (cache, index), access, prepared)? {
                        Some(outcome) => return Ok(outcome),
                        None => continue,
                    }
                }
                Lookup::Missing if cache.is_zeroes(index) => {
                    // Make the slot first: a fault that has taken the last frame could not allocate the nodes
                    // above the slot.
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
                Lookup::Missing | Lookup::Filling | Lookup::Moving | Lookup::Swapped => {
                    return Err(prepared.needs_page(backed, index));
                }
            }
        };
        // In place of a marker the page is shown read-only, and the next try reports the store.
        let is_marked = at.value != 0 && handler.reports_writes();
        let is_write = access == Access::Write && !is_marked;
        if is_write && !attributes.flags.shared {
            self.copy_file_page(at, page, cache, found, prepared)?;
        } else {
            // Where stores have to be noticed, a read does not let them through.
            let shared = attributes.flags.shared;
            let stores = shared && (is_write || self.is_new(attributes));
            let used_for = if is_write { Use::Write } else { Use::Read };
            self.show_file_page::<N>(at, cache, found, stores, used_for)?;
            prepared.trail.ends(match prepared.has_waited {
                true => How::Major,
                false => How::File,
            });
            let is_plain = !handler.has(userfault::WRITE_PROTECT | userfault::MINOR);
            if was_there && !is_write && is_plain {
                self.fault_around::<N>(at, page, backed, stores, section);
            }
        }
        prepared.count_wait();
        match is_marked && access == Access::Write {
            true => Err(Retry::EntryClaimed),
            false => Ok(Outcome::Resolved),
        }
    }

    /// Maps a page of an object, which it has, for the handler of a userfaultfd. Stores are reported if `protected`.
    #[cold]
    #[inline(never)]
    pub(crate) fn show_for_handler(
        &self,
        at: &PteRef<'_>,
        attributes: &Attributes,
        found: PageRef<'_>,
        protected: bool,
    ) -> Result<(), Retry> {
        let Some(backed) = &attributes.backed else {
            return Err(Retry::MappingChanged);
        };
        let protection = at.vma.protection();
        let mut kind = RssKind::File;
        self.tables().transact(at, || {
            let descriptor = self.count_page(backed.object(), &found)?;
            // As in `show_file_page`.
            kind = RssKind::of(descriptor);
            let write = attributes.flags.shared && protection.write;
            if write && !protected {
                descriptor.mark_dirty();
            }
            let leaf = Self::FORMAT.leaf_of(found.frame, write, protection, true);
            let leaf = match protected {
                true => Self::FORMAT.reported(leaf),
                false => leaf,
            };
            Ok(self.tables().with_tlb_owner(leaf))
        })?;
        self.tables().rss.came(self.machine().cpu(), kind);
        Ok(())
    }

    /// Maps a page of an object itself; with `stores`, writable if the mapping allows that.
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
            let descriptor = self.count_page(cache, &found)?;
            // After publication the page may go, and its frame may be reused.
            kind = RssKind::of(descriptor);
            let write = stores && protection.write;
            if write {
                descriptor.mark_dirty();
            }
            let is_write = used_for == Use::Write;
            let leaf = Self::FORMAT.leaf_of(found.frame, write, protection, is_write);
            let leaf = match at.value {
                0 => leaf,
                _ => self.marked(leaf, at),
            };
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

    /// Maps a private copy of a page for a write. The page itself is never mapped.
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
            self.count_page(cache, &found)?;
            prepared.page_used();
            self.machine().copy(found.frame, new);
            let leaf = Self::FORMAT.leaf_of(new, true, protection, true);
            Ok(self.allowed::<N>(leaf, at))
        })?;
        let cpu = self.machine().cpu();
        self.tables().rss.came(cpu, RssKind::Anonymous);
        self.uncount_page(&found);
        self.memory().count(Counter::Copies);
        prepared.trail.ends(How::Copy);
        Ok(())
    }

    /// Maps pages that the object has around a page that was just mapped. A page that is not ready is left to
    /// a fault of its own.
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
        // Down to the start of the window, or of the mapping.
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
            let walked = self.tables().look(Page(neighbour), section);
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
                // Withdrawn: another CPU is at work on that entry.
                let _ = self.show_file_page::<N>(&at, backed.object(), found, stores, Use::None);
            }
        }
    }

    /// Completes step 7: counts the frame as mapped, and checks that it still is the page for which it was
    /// found. Returns its descriptor.
    #[inline]
    fn count_page(&self, cache: &ObjectInner, found: &PageRef<'_>) -> Result<&Descriptor, Retry> {
        let descriptor = self.machine().frames().descriptor(found.frame);
        if mutant(Mutant::CountedTooLate) && !found.is_valid(cache) {
            return Err(Retry::PageChanged);
        }
        if !descriptor.map() {
            return Err(Retry::PageChanged);
        }
        // Partner: the fence between removing a page from its slot and reading its counts.
        if !mutant(Mutant::ClaimWithoutFence) {
            fence_after_rmw();
        }
        let is_valid = found.is_valid(cache)
            || mutant(Mutant::IdentityNotValidated)
            || mutant(Mutant::CountedTooLate);
        if is_valid {
            return Ok(descriptor);
        }
        self.uncount_page(found);
        Err(Retry::PageChanged)
    }

    /// Drops the count again. The object may have released the page meanwhile.
    fn uncount_page(&self, page: &PageRef<'_>) {
        let source = self.machine().frames();
        if source.descriptor(page.frame).unmap() {
            source.free(self.machine().cpu(), page.frame);
        }
    }
}
