//! Faults on huge pages of memory objects: shared memory.
//!
//! * Where an entry above the lowest level is empty, one mapping covers the whole span, and the object has a huge page there
//!   ([`crate::object::huge`]) or gets one, the fault maps it by one entry: the protocol of a small page of an object, one level up.
//!   It counts the entry at each of the frames after the claim, and then looks at the slots and the mark of the whole (rule R6).
//! * The table for a split is deposited with the frames after they were counted: so none of them is freed while it has one. As
//!   many tables are deposited as entries map the huge page.
//! * A store that the entry does not let through raises it as a whole in a shared mapping. In a private one it splits it: the
//!   copy is a small page.
//!
//! *Writes*: the entry; the frames' descriptors, which all mappings of the huge page share.
//!
//! *Models*: loom `object/huge.rs`.

use faultless_frames::FrameSource;
use faultless_paging::{Access, ENTRIES, Frame, Page};
use faultless_sync::{Mutant, fence_after_rmw, mutant};
use faultless_trace::{Counter, How};

use crate::base::huge::HugeMode;
use crate::base::machine::Machine;
use crate::fault::state::FaultState;
use crate::fault::trace::TraceSink;
use crate::fault::{Outcome, PteRef};
use crate::object::pool::TAKEN;
use crate::object::radix::PageSlot;
use crate::object::{Lookup, ObjectHuge, ObjectInner};
use crate::space::AddressSpace;
use crate::table::huge::{frames_of, huge_span};
use crate::table::huge_share::deposit;
use crate::table::retry::Retry;
use crate::table::rss::{RssDelta, RssKind};
use crate::tree::mapping::{Attributes, Huge};

impl<M: Machine> AddressSpace<M> {
    /// Resolves an access where no table is, in a mapping with an object, by a huge page. `None`: it gets a small one.
    #[cold]
    #[inline(never)]
    pub(crate) fn map_huge_of_object<N: TraceSink>(
        &self,
        at: &PteRef<'_>,
        page: Page,
        access: Access,
        prepared: &mut FaultState<M, N>,
    ) -> Result<Option<Outcome>, Retry> {
        let Some(attributes) = at.vma.attributes() else {
            return Err(Retry::MappingChanged);
        };
        let Some(backed) = &attributes.backed else {
            return Ok(None);
        };
        let (object, is_write) = (backed.object(), access == Access::Write);
        let (span, shared) = (huge_span(page.0), attributes.flags.shared);
        let base = backed.index(span.start);
        if object.is_device()
            || !attributes.handler.is_none()
            || !base.is_multiple_of(ENTRIES as u64)
            || (self.huge_is_off() && !object.is_pooled())
            || attributes.flags.huge == Huge::Unwanted
            || !at.vma.covers(&self.maps, span)
        {
            return Ok(None);
        }
        if !shared && object.is_pooled() {
            let has_page = matches!(object.find(base), Lookup::Page(_));
            if is_write || !has_page {
                return self.map_pooled(at, page, access, (object, base), prepared);
            }
        }
        if is_write && !shared {
            return Ok(None);
        }
        let Some(first) = self.huge_of_object(attributes, object, base, prepared)? else {
            // A page of the pool is added as a whole, or not at all.
            let is_missing = object.is_pooled() && matches!(object.find(base), Lookup::Missing);
            return Ok((is_missing || !object.has(base)).then_some(Outcome::Bus));
        };
        let Some(table) = prepared.deposit() else {
            return Ok(None);
        };
        // Where stores have to be noticed, a read does not let them through.
        let protection = at.vma.protection();
        let stores = shared && protection.write && (is_write || self.is_new(attributes));
        let format = Self::FORMAT;
        let source = self.machine().frames();
        let mut kind = RssKind::SharedMemory;
        let mut has_room = true;
        let is_mapped = self.tables().transact_over(at, span, || {
            self.validate_span(at, page)?;
            self.count_whole(object, first, base)?;
            if !deposit(source, first, table) {
                // As many spaces map it as there are places for tables.
                self.uncount_whole(first, ENTRIES);
                has_room = false;
                return Err(Retry::PageChanged);
            }
            prepared.deposit_used();
            let parts = source.descriptors_of_huge(first);
            if let Some(head) = parts.first() {
                kind = RssKind::of(head);
                head.add_object_map(1);
            }
            if stores {
                self.tables().mark_huge_dirty(first);
            }
            let leaf = format.leaf_of(first, stores, protection, is_write);
            Ok(self.tables().with_tlb_owner(format.huge(leaf)))
        });
        if !has_room || !is_mapped? {
            return Ok(None);
        }
        let mut came = RssDelta::default();
        came.add_many(kind, ENTRIES as u64);
        self.tables().rss.came_all(self.machine().cpu(), &came);
        self.memory().count_object_huge_maps(first, 1);
        self.memory().count(Counter::ThpFileMapped);
        prepared.trail.ends(match prepared.has_waited {
            true => How::Major,
            false => How::File,
        });
        prepared.count_wait();
        Ok(Some(Outcome::Resolved))
    }

    /// Returns the first frame of the huge page that an object has, or gets now, at the pages from `base` on. `None`: it has, or
    /// gets, small ones.
    pub(crate) fn huge_of_object<N: TraceSink>(
        &self,
        attributes: &Attributes,
        object: &ObjectInner,
        base: u64,
        prepared: &mut FaultState<M, N>,
    ) -> Result<Option<Frame>, Retry> {
        match object.find(base) {
            Lookup::Page(found) => {
                let head = self.machine().frames().descriptor(found.frame);
                return Ok(head.is_object_whole().then_some(found.frame));
            }
            Lookup::Missing if object.is_zeroes(base) || object.is_pooled() => {}
            Lookup::Filling => {
                let backed = attributes.backed.as_ref().ok_or(Retry::MappingChanged)?;
                return Err(prepared.needs_page(backed, base));
            }
            _ => return Ok(None),
        }
        if !object.has_span(base) || !self.object_wants_huge(attributes, object) {
            return Ok(None);
        }
        let is_pooled = object.is_pooled();
        let (first, before) = match (is_pooled, &attributes.backed) {
            (true, Some(backed)) => (prepared.pooled_frames(backed, base, self.number())?, TAKEN),
            _ => (prepared.huge_frames(), PageSlot::Empty),
        };
        let Some(first) = first else {
            if !is_pooled {
                self.memory().count(Counter::ThpFileFallback);
            }
            return Ok(None);
        };
        prepared.huge_frames_used();
        let added = self.memory().add_huge_page(object, base, (first, before));
        if is_pooled && added.is_ok() {
            prepared.claim_filled();
        }
        match added {
            Ok(true) => {
                if !is_pooled {
                    self.memory().count(Counter::ThpFileAlloc);
                }
                Ok(Some(first))
            }
            Ok(false) => Err(Retry::PageChanged),
            // Small pages may have room.
            Err(_) => Ok(None),
        }
    }

    /// Whether an object is to have huge pages where a mapping with these attributes faults first.
    pub(crate) fn object_wants_huge(&self, attributes: &Attributes, object: &ObjectInner) -> bool {
        match (object.writers.huge.wish(), self.memory().huge.shared_mode()) {
            (ObjectHuge::Pooled, _) => true,
            (ObjectHuge::Never, _) | (_, HugeMode::Never) => false,
            (ObjectHuge::AsSet, HugeMode::Advised) => attributes.flags.huge == Huge::Wanted,
            (ObjectHuge::AsSet, HugeMode::Always) => true,
        }
    }

    /// Completes step 7: counts an entry at each frame of a huge page, and checks that all are still pages of the object, in
    /// their places. If not, none is counted.
    pub(crate) fn count_whole(
        &self,
        object: &ObjectInner,
        first: Frame,
        base: u64,
    ) -> Result<(), Retry> {
        let parts = self.machine().frames().descriptors_of_huge(first);
        let counted = parts.iter().take_while(|part| part.map()).count();
        // Partner: the fence between removing a page from its slot and reading its counts.
        fence_after_rmw();
        let first_to_last = base..base + ENTRIES as u64;
        let mut are_there = true;
        object.pages.for_each_slot(first_to_last, |index, slot| {
            are_there &= slot.holds(Frame(first.0 + (index - base)));
        });
        let is_valid = counted == ENTRIES
            && (are_there || mutant(Mutant::WholeNotAsked))
            && (parts[0].is_object_whole() || mutant(Mutant::WholeNotAsked))
            && parts[0].owner() == (object.id, base)
            && object.has_span(base);
        match is_valid {
            true => Ok(()),
            false => {
                self.uncount_whole(first, counted);
                Err(Retry::PageChanged)
            }
        }
    }

    /// Drops the counts of the first frames again. The object may have released them meanwhile.
    pub(crate) fn uncount_whole(&self, first: Frame, counted: usize) {
        let source = self.machine().frames();
        let parts = source.descriptors_of_huge(first).iter();
        for (part, frame) in parts.zip(frames_of(first)).take(counted) {
            if part.unmap() {
                source.free(self.machine().cpu(), frame);
            }
        }
    }

    /// Lets stores through to a huge page of an object, as a whole, if the mapping shares it. Returns whether it did.
    pub(crate) fn raise_huge_of_object(&self, at: &PteRef<'_>, page: Page) -> Result<bool, Retry> {
        let (format, protection) = (Self::FORMAT, at.vma.protection());
        if !at.vma.is_shared() || !at.vma.covers(&self.maps, huge_span(page.0)) {
            return Ok(false);
        }
        self.tables().transact_present(at, || {
            self.validate_span(at, page)?;
            self.tables().mark_huge_dirty(format.frame(at.value));
            Ok(move |value| {
                format.huge(format.with_protection(format.written(value), protection, true))
            })
        })?;
        Ok(true)
    }
}
