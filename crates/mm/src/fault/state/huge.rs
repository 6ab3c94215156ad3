//! What a fault prepares for a huge page: its frames, a table for its split, and the right to a block of the pool.
//!
//! Like a single frame, it is kept from one try to the next, and freed if it was not needed. A claim of a span is given up
//! before the fault waits.

use faultless_frames::FrameSource;
use faultless_paging::Frame;

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::fault::state::FaultState;
use crate::object::MemoryObject;
use crate::object::pool::{NotClaimed, SpanClaim};
use crate::table::huge::frames_of;
use crate::table::retry::{Blocker, Retry};
use crate::tree::mapping::ObjectRef;
use crate::tune::POOL_LOOKS;

/// What a try holds for huge pages.
pub(super) struct HeldHuge<M: Machine> {
    /// The first frame of one, zeroed.
    first: Option<Frame>,
    /// A table for a split.
    table: Option<Frame>,
    /// How often the pool was found empty.
    looks: u32,
    /// The right to use a block of the pool, for a span.
    pub(super) claim: Option<SpanClaim<M>>,
}

impl<M: Machine> Default for HeldHuge<M> {
    fn default() -> Self {
        Self {
            first: None,
            table: None,
            looks: 0,
            claim: None,
        }
    }
}

impl<M: Machine, N> FaultState<M, N> {
    /// Returns the first frame of a zeroed huge page and a table for its split, still held here until
    /// [`FaultState::huge_page_used`]. `None`: there is no memory for them, and none is looked for.
    #[cold]
    pub(crate) fn huge_page(&mut self) -> Option<(Frame, Frame)> {
        let table = self.deposit()?;
        Some((self.huge_frames()?, table))
    }

    /// The same without a table.
    #[cold]
    pub(crate) fn huge_frames(&mut self) -> Option<Frame> {
        self.zeroed_huge(false, |memory| memory.allocate_huge().ok())
    }

    /// Returns the first frame of the zeroed huge page that is held, if it `is_pooled` or not, or that of a new one.
    fn zeroed_huge(
        &mut self,
        is_pooled: bool,
        allocate: impl FnOnce(&Memory<M>) -> Option<Frame>,
    ) -> Option<Frame> {
        let source = self.memory.machine().frames();
        let held = self.huge.get_or_insert_default();
        if let Some(first) = held.first {
            if source.is_pooled(first) == is_pooled {
                return held.first;
            }
            // The try before met another mapping.
            held.first = None;
            self.memory.free_huge(first);
        }
        let first = allocate(self.memory)?;
        for frame in frames_of(first) {
            self.memory.machine().zero(frame);
            self.memory.machine().poll();
        }
        held.first = Some(first);
        held.first
    }

    /// The same of the pool of huge pages, for the span of an object from the page `base` on, which is claimed for that. `None`:
    /// the pool has none left.
    ///
    /// # Errors
    /// [`Retry`]: another CPU has claimed the span; or the pool has none at the moment.
    #[cold]
    pub(crate) fn pooled_frames(
        &mut self,
        backed: &ObjectRef,
        base: u64,
        owner: u64,
    ) -> Result<Option<Frame>, Retry> {
        let held = self.huge.get_or_insert_default();
        let is_claimed = |claim: &SpanClaim<M>| claim.is_of(backed.object(), base);
        if !held.claim.as_ref().is_some_and(is_claimed) {
            held.claim = None;
            let object = MemoryObject::of(self.memory, backed.pointer());
            match object.claim_span(base, owner) {
                Ok(claim) => held.claim = Some(claim),
                Err(NotClaimed::Busy) => return Err(self.needs_page(backed, base)),
                Err(NotClaimed::NoMemory) => return Err(Retry::Wait(Blocker::Memory)),
            }
        }
        let is_reserved = held.claim.as_ref().is_some_and(SpanClaim::is_reserved);
        let first = self.zeroed_huge(true, |memory| memory.take_pooled(is_reserved));
        if first.is_none() {
            self.huge.get_or_insert_default().claim = None;
            self.finds_no_pool()?;
        }
        Ok(first)
    }

    /// The same without a span, for a copy of a page that the object has.
    #[cold]
    pub(crate) fn pooled_copy(&mut self) -> Result<Option<Frame>, Retry> {
        let first = self.zeroed_huge(true, |memory| memory.take_pooled(false));
        if first.is_none() {
            self.finds_no_pool()?;
        }
        Ok(first)
    }

    /// Records that the block was used.
    pub(crate) fn claim_used(&mut self) {
        if let Some(claim) = self.huge.get_or_insert_default().claim.take() {
            claim.use_up();
        }
    }

    /// Records that the object has the block.
    pub(crate) fn claim_filled(&mut self) {
        if let Some(claim) = self.huge.get_or_insert_default().claim.take() {
            claim.end();
        }
    }

    /// Records that the pool was found empty. What is discarded is in no entry for a moment, and not in the pool yet: so it is
    /// looked at again before the access is refused.
    ///
    /// # Errors
    /// [`Retry`], until it was looked at often enough.
    fn finds_no_pool(&mut self) -> Result<(), Retry> {
        let held = self.huge.get_or_insert_default();
        held.looks += 1;
        match held.looks < POOL_LOOKS {
            true => Err(Retry::PageChanged),
            false => Ok(()),
        }
    }

    /// The same without the huge page.
    #[cold]
    pub(crate) fn deposit(&mut self) -> Option<Frame> {
        let held = self.huge.get_or_insert_default();
        if held.table.is_none() {
            held.table = self.memory.allocate_deposit().ok();
        }
        held.table
    }

    /// Records that the huge page and its table now belong to an entry.
    pub(crate) fn huge_page_used(&mut self) {
        let held = self.huge.get_or_insert_default();
        (held.first, held.table) = (None, None);
    }

    /// Records that the huge page now belongs to an object.
    pub(crate) fn huge_frames_used(&mut self) {
        self.huge.get_or_insert_default().first = None;
    }

    /// Records that the table is now deposited.
    pub(crate) fn deposit_used(&mut self) {
        self.huge.get_or_insert_default().table = None;
    }

    /// Frees the huge page that is held, and its table.
    #[cold]
    pub(crate) fn free_huge(&mut self) {
        let held = self.huge.take().unwrap_or_default();
        if let Some(first) = held.first {
            self.memory.free_huge(first);
        }
        if let Some(table) = held.table {
            let machine = self.memory.machine();
            machine.frames().free(machine.cpu(), table);
        }
    }
}
