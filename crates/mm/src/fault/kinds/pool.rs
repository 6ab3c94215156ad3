//! Faults on private mappings of the pool of huge pages (Linux: hugetlb). Those on shared ones are as on other objects
//! ([`crate::fault::kinds::huge_object`]).
//!
//! * A fault maps a huge page of the pool, or is SIGBUS. A space with a reservation always gets one.
//! * What is mapped is an anonymous huge page like others: a fork shares it, and a write after that copies one small page, which is
//!   not of the pool. Linux copies the whole, and kills the child if the pool has none left.
//! * Where a table with pages is in the way, private pages are small ones, and no reservation is used.
//!
//! *Writes*: the entry; the frames and their descriptors; the object's slot, and the pool's lock.

use faultless_frames::FrameSource;
use faultless_paging::{Access, ENTRIES, Page};

use crate::base::machine::Machine;
use crate::fault::state::FaultState;
use crate::fault::trace::TraceSink;
use crate::fault::{Outcome, PteRef};
use crate::object::{Lookup, ObjectInner};
use crate::space::AddressSpace;
use crate::table::huge::{frames_of, huge_span};
use crate::table::huge_share::begin_huge;
use crate::table::retry::{Blocker, Retry};
use crate::table::rss::{RssDelta, RssKind};
use faultless_trace::How;

impl<M: Machine> AddressSpace<M> {
    /// Maps a huge page of the pool for a private mapping: zeroes, or a copy of what the object has at the pages from `base` on.
    pub(crate) fn map_pooled<N: TraceSink>(
        &self,
        at: &PteRef<'_>,
        page: Page,
        access: Access,
        (object, base): (&ObjectInner, u64),
        prepared: &mut FaultState<M, N>,
    ) -> Result<Option<Outcome>, Retry> {
        let Some(attributes) = at.vma.attributes() else {
            return Err(Retry::MappingChanged);
        };
        let from = match object.find(base) {
            Lookup::Page(found) => Some(found.frame),
            Lookup::Missing => None,
            Lookup::Beyond => return Ok(Some(Outcome::Bus)),
            _ => {
                let backed = attributes.backed.as_ref().ok_or(Retry::MappingChanged)?;
                return Err(prepared.needs_page(backed, base));
            }
        };
        let head = |frame| self.machine().frames().descriptor(frame);
        if from.is_some_and(|from| !head(from).is_object_whole()) {
            // Small pages are copied.
            return Ok(None);
        }
        // Where the object has the page, only the entry's claim keeps others away.
        let first = match (from, &attributes.backed) {
            (None, Some(backed)) => prepared.pooled_frames(backed, base, self.number())?,
            _ => prepared.pooled_copy()?,
        };
        let Some(first) = first else {
            return Ok(Some(Outcome::Bus));
        };
        let Some(table) = prepared.deposit() else {
            return Err(Retry::Wait(Blocker::Memory));
        };
        let (machine, span) = (self.machine(), huge_span(page.0));
        begin_huge(
            machine.frames(),
            (first, table),
            (self.number(), span.start),
        );
        let is_write = access == Access::Write;
        let protection = at.vma.protection();
        let is_mapped = self.tables().transact_over(at, span, || {
            self.validate_span(at, page)?;
            if let Some(from) = from {
                self.count_whole(object, from, base)?;
                let pairs = frames_of(from).zip(frames_of(first));
                pairs.for_each(|(from, to)| {
                    machine.copy(from, to);
                    machine.poll();
                });
                self.uncount_whole(from, ENTRIES);
            }
            prepared.huge_page_used();
            let write = protection.write && (is_write || self.is_new(attributes));
            let leaf = Self::FORMAT.leaf_of(first, write, protection, is_write);
            Ok(self.tables().with_tlb_owner(Self::FORMAT.huge(leaf)))
        })?;
        if !is_mapped {
            return Ok(None);
        }
        let mut came = RssDelta::default();
        came.add_many(RssKind::Anonymous, ENTRIES as u64);
        self.tables().rss.came_all(machine.cpu(), &came);
        self.memory().count_huge(first, 1);
        prepared.claim_used();
        prepared.trail.ends(How::FirstTouch);
        Ok(Some(Outcome::Resolved))
    }

    /// Resolves an access to a page that a pooled object does not have, where a table is. `None`: the object has it now.
    #[cold]
    pub(crate) fn map_part_of_pool<N: TraceSink>(
        &self,
        at: &PteRef<'_>,
        page: Page,
        (object, index): (&ObjectInner, u64),
        access: Access,
        prepared: &mut FaultState<M, N>,
    ) -> Result<Option<Outcome>, Retry> {
        let Some(attributes) = at.vma.attributes() else {
            return Err(Retry::MappingChanged);
        };
        if attributes.flags.shared {
            let base = index - index % ENTRIES as u64;
            let added = self.huge_of_object(attributes, object, base, prepared)?;
            return Ok(added.is_none().then_some(Outcome::Bus));
        }
        match access {
            Access::Write => {
                self.map_fresh_page(at, page, prepared)?;
                prepared.trail.ends(How::FirstTouch);
            }
            _ => {
                self.map_zero_page::<N>(at)?;
                prepared.trail.ends(How::ZeroPage);
            }
        }
        Ok(Some(Outcome::Resolved))
    }
}
