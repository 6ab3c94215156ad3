//! Objects whose pages are of the machine's pool of huge pages (Linux: hugetlb), and their reservations.
//!
//! * A reservation is a mark in the first slot of a span ([`PageSlot::Reserved`]). So what adds the page ends the reservation by the
//!   same compare-and-swap, and a truncation gives it up as it gives up a page.
//! * A private mapping of pool memory has an object of its own, which has no pages: only reservations, for the space that made the
//!   mapping. A child gets blocks that are left over.
//!
//! *Writes*: the slots; the pool's lock.

use faultless_frames::{FrameSource, HugePool, PoolSizes};
use faultless_paging::{ENTRIES, Frame, PAGE_SIZE};
use faultless_sync::Backoff;
use faultless_sync::atomic::Ordering;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::object::huge::ObjectHuge;
use crate::object::radix::{PageSlot, Slot};
use crate::object::{MemoryObject, ObjectInner};
use crate::table::huge::frames_of;

/// How often a reservation waits for readers of what was unmapped.
const LOOKS: u32 = 32;
/// Pages of a huge page.
const PAGES: u64 = ENTRIES as u64;

impl ObjectInner {
    /// Whether its pages are of the pool.
    #[inline]
    pub(crate) fn is_pooled(&self) -> bool {
        self.writers.huge.wish() == ObjectHuge::Pooled
    }

    /// Returns what the first slot of a span holds that has no page: nothing, or a reservation that the space `owner` may use.
    pub(crate) fn reservation(&self, base: u64, owner: u64) -> PageSlot {
        let of = self.writers.huge.owner.load(Ordering::Relaxed);
        match self.pages.find(base).map(Slot::load) {
            Some(PageSlot::Reserved) if of == 0 || of == owner => PageSlot::Reserved,
            _ => PageSlot::Empty,
        }
    }
}

impl<M: Machine> MemoryObject<M> {
    /// Makes an object of `size` bytes, in whole huge pages, for one private mapping in the space `owner`, or with 0 for shared ones.
    pub(crate) fn pooled(memory: &'static Memory<M>, size: u64, owner: u64) -> Result<Self, Errno> {
        let object = Self::new(memory, size, None, 0)?;
        object.set_huge_pages(ObjectHuge::Pooled);
        let state = &object.cache().writers.huge;
        state.owner.store(owner, Ordering::Relaxed);
        Ok(object)
    }

    /// Whether its pages are of the pool of huge pages.
    pub fn is_pooled(&self) -> bool {
        self.cache().is_pooled()
    }

    /// Reserves blocks for the pages of a range, in whole huge pages, that the object does not have.
    ///
    /// # Errors
    /// `ENOMEM`: there are not as many. None is reserved then.
    pub(crate) fn reserve(&self, pages: core::ops::Range<u64>) -> Result<(), Errno> {
        let slots = || pages.clone().step_by(PAGES as usize);
        let Some(pool) = self.memory.pool() else {
            return Err(Errno::ENOMEM);
        };
        // Before there is memory for slots: each span has a block, or needs one.
        if (pages.end - pages.start) / PAGES > pool.sizes(self.memory.machine()).total {
            return Err(Errno::ENOMEM);
        }
        let mut missing = 0;
        for base in slots() {
            let slot = self.cache().pages.slot(base, self.memory)?;
            missing += u64::from(slot.load() == PageSlot::Empty);
        }
        let machine = self.memory.machine();
        let (mut looks, mut backoff) = (0, Backoff::new());
        while !pool.reserve(machine, missing) {
            if looks == LOOKS {
                return Err(Errno::ENOMEM);
            }
            // Objects that were unmapped just now may still wait for readers.
            self.memory.expedite();
            backoff.rest(machine);
            looks += 1;
        }
        for base in slots() {
            let slot = self.cache().pages.find(base);
            let marks = |slot: &Slot| slot.replace(PageSlot::Empty, PageSlot::Reserved).is_ok();
            if missing > 0 && slot.is_some_and(marks) {
                missing -= 1;
            }
        }
        // Faults have added some meanwhile.
        self.memory.end_reservations(missing);
        Ok(())
    }

    /// Ends the reservations of a range.
    pub(crate) fn end_reservations(&self, pages: core::ops::Range<u64>) {
        for base in pages.step_by(PAGES as usize) {
            let slot = self.cache().pages.find(base);
            let ends = |slot: &Slot| slot.replace(PageSlot::Reserved, PageSlot::Empty).is_ok();
            self.memory
                .end_reservations(u64::from(slot.is_some_and(ends)));
        }
    }

    /// Adds the huge page around the page `index`, which the object does not have.
    ///
    /// # Errors
    /// `ENOMEM`: the pool has none left.
    pub(crate) fn add_pooled(&self, index: u64) -> Result<(), Errno> {
        let base = index / PAGES * PAGES;
        let claim = match self.clone().claim_span(base, 0) {
            Ok(claim) => claim,
            Err(NotClaimed::NoMemory) => return Err(Errno::ENOMEM),
            Err(NotClaimed::Busy) => {
                // The caller looks again.
                return self.fill(base).map(drop);
            }
        };
        let first = self.memory.take_pooled(claim.is_reserved());
        let first = first.ok_or(Errno::ENOMEM)?;
        for frame in frames_of(first) {
            self.memory.machine().zero(frame);
            self.memory.machine().poll();
        }
        // The caller extends the object to the page, and a page of the pool ends where the object may.
        self.extend((base + PAGES) * PAGE_SIZE);
        let is_whole = self
            .memory
            .add_huge_page(self.cache(), base, (first, TAKEN))?;
        claim.end();
        match is_whole {
            true => Ok(()),
            // Beside a truncation, or a hole that was left.
            false => Err(Errno::ENOMEM),
        }
    }
}

/// The mark of a span's first slot while one fault or call takes a block for it. Others wait, as for a page that is being filled.
pub(crate) const TAKEN: PageSlot = PageSlot::Filling(Frame(0));

/// The right to use a block of the pool for a span of an object. Dropped unused, it leaves the span as it was.
pub(crate) struct SpanClaim<M: Machine> {
    object: MemoryObject<M>,
    base: u64,
    /// What the first slot held. `None`: it holds the reservation of another space, and stays as it is.
    before: Option<PageSlot>,
}

/// Why a span was not claimed.
pub(crate) enum NotClaimed {
    /// It has pages now, or another CPU has claimed it.
    Busy,
    /// There is no memory for a slot.
    NoMemory,
}

impl<M: Machine> SpanClaim<M> {
    /// Whether it is a claim of this span.
    pub(crate) fn is_of(&self, object: &ObjectInner, base: u64) -> bool {
        self.object.id() == object.id && self.base == base
    }

    /// Whether there is a reservation for it.
    pub(crate) fn is_reserved(&self) -> bool {
        self.before == Some(PageSlot::Reserved)
    }

    /// Ends it: an entry of a private mapping uses the block. Ends the reservation.
    pub(crate) fn use_up(self) {
        if self.before.is_some() {
            self.show(PageSlot::Empty);
        }
        self.end();
    }

    /// The same where the object has the block, or a truncation has removed the mark.
    pub(crate) fn end(mut self) {
        if self.is_reserved() {
            self.object.memory.end_reservations(1);
        }
        self.before = None;
    }

    /// Replaces the mark, if it is still there: the object may have been truncated, or have the pages. Returns whether it was.
    fn show(&self, content: PageSlot) -> bool {
        let (cache, machine) = (self.object.cache(), self.object.memory.machine());
        let slot = cache.pages.find(self.base);
        let is_shown = slot.is_some_and(|slot| slot.replace(TAKEN, content).is_ok());
        // Release: a woken thread sees the slot.
        cache.writers.filled.fetch_add(1, Ordering::Release);
        machine.wake(&cache.writers.filled, u32::MAX);
        is_shown
    }
}

impl<M: Machine> Drop for SpanClaim<M> {
    fn drop(&mut self) {
        let is_reserved = self.is_reserved();
        if let Some(before) = self.before.take()
            && !self.show(before)
            && is_reserved
        {
            self.object.memory.end_reservations(1);
        }
    }
}

impl<M: Machine> MemoryObject<M> {
    /// Claims the span from the page `base` on, which has no page, for the space `owner`.
    pub(crate) fn claim_span(self, base: u64, owner: u64) -> Result<SpanClaim<M>, NotClaimed> {
        let slot = self.cache().pages.slot(base, self.memory);
        let slot = slot.map_err(|_| NotClaimed::NoMemory)?;
        let before = match (slot.load(), self.cache().reservation(base, owner)) {
            (PageSlot::Empty, _) => Some(PageSlot::Empty),
            (PageSlot::Reserved, PageSlot::Reserved) => Some(PageSlot::Reserved),
            (PageSlot::Reserved, _) => None,
            _ => return Err(NotClaimed::Busy),
        };
        if before.is_some_and(|before| slot.replace(before, TAKEN).is_err()) {
            return Err(NotClaimed::Busy);
        }
        Ok(SpanClaim {
            object: self,
            base,
            before,
        })
    }
}

impl<M: Machine> Memory<M> {
    fn pool(&self) -> Option<&HugePool> {
        self.machine().frames().huge_pool()
    }

    /// Returns how many huge pages the pool has, after those of objects were freed that wait for readers alone.
    pub fn pool_sizes(&self) -> PoolSizes {
        if self.huge.has_pool() {
            self.expedite();
        }
        let pool = self.pool().map(|pool| pool.sizes(self.machine()));
        pool.unwrap_or_default()
    }

    /// Adds huge pages to the pool or removes free ones, until there are `total`, or as near as memory allows (Linux:
    /// `nr_hugepages`). Returns how many there are.
    pub fn resize_pool(&self, total: u64) -> u64 {
        let (machine, cpu) = (self.machine(), self.machine().cpu());
        let pool = self.pool();
        let resize = |pool: &HugePool| pool.resize(machine.frames(), machine, cpu, total);
        pool.map_or(0, resize)
    }

    /// Takes the frames of a huge page of the pool, for a reservation or without one. They are freed like any frames.
    pub(crate) fn take_pooled(&self, is_reserved: bool) -> Option<Frame> {
        let pool = self.pool()?;
        pool.take(self.machine().frames(), self.machine(), is_reserved)
    }

    /// Ends reservations.
    pub(crate) fn end_reservations(&self, count: u64) {
        if let Some(pool) = self.pool().filter(|_| count > 0) {
            let (machine, cpu) = (self.machine(), self.machine().cpu());
            pool.end_reservations(machine, count);
            pool.drop_surplus(machine.frames(), machine, cpu);
        }
    }

    /// Returns the size of a huge page in bytes.
    pub const fn huge_page_size() -> u64 {
        PAGES * PAGE_SIZE
    }
}
