//! Mappings of the pool of huge pages (Linux: hugetlb): how they are made, and what operations may not do to them.
//!
//! * Each has an object ([`crate::object`], `pool`), like a file. The object of a private one has reservations alone.
//! * They begin and end at boundaries of huge pages, and no operation cuts one elsewhere: `EINVAL`, as on Linux. The check comes
//!   before the operation. A mapping that is made meanwhile may be cut all the same: then its huge pages are split like others.
//!
//! *Writes*: what `mmap` does; the object's slots; the pool's lock.

use core::ops::Range;

use faultless_paging::{PAGE_SIZE, Page, Pages};
use faultless_sync::atomic::Ordering;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::lock::gap::HUGE;
use crate::object::MemoryObject;
use crate::ops::mmap::{Opened, flags};
use crate::space::AddressSpace;
use crate::tree::mapping::{Attributes, Huge};

/// Where `mmap`'s flags have the logarithm of a huge page's size (Linux: `MAP_HUGE_SHIFT`).
const SIZE_SHIFT: u32 = 26;
const SIZE_MASK: u32 = 63;

/// Mappings of which one operation ends the reservations as soon as they are unmapped.
const NOTED: usize = 4;

/// The reservations of mappings that are about to be unmapped.
pub(crate) struct Reservations<M: Machine>([Option<(MemoryObject<M>, Range<u64>)>; NOTED]);

impl<M: Machine> Reservations<M> {
    /// Ends them: the mappings are gone.
    #[cold]
    pub(crate) fn end(self) {
        for (object, part) in self.0.into_iter().flatten() {
            object.end_reservations(part);
        }
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Maps anonymous memory of the pool of huge pages (`MAP_HUGETLB`).
    pub(crate) fn map_pool(
        &self,
        address: u64,
        length: u64,
        prot: u32,
        map_flags: u32,
    ) -> Result<u64, Errno> {
        let size = Memory::<M>::huge_page_size();
        let wish = map_flags >> SIZE_SHIFT & SIZE_MASK;
        if (wish != 0 && wish != size.ilog2()) || length == 0 {
            return Err(Errno::EINVAL);
        }
        let length = match length.checked_next_multiple_of(size) {
            Some(length) if length <= self.layout().end => length,
            Some(_) => return Err(Errno::ENOMEM),
            // Linux lets it wrap to 0.
            None => return Err(Errno::EINVAL),
        };
        // Only what is reserved has an owner.
        let owner = match map_flags & (flags::SHARED | flags::NORESERVE) {
            0 => self.number(),
            _ => 0,
        };
        let object = MemoryObject::pooled(self.memory(), length, owner)?;
        let opened = Opened {
            store: Ok(&object),
            offset: 0,
            file: object.id(),
            writable: true,
        };
        let map_flags = map_flags & !(flags::HUGETLB | SIZE_MASK << SIZE_SHIFT);
        self.map(address, length, prot, map_flags, Some(&opened))
    }

    /// Prepares a mapping of a pooled object: checks what Linux checks first, extends the object, and reserves its pages. Returns
    /// the address hint and the length in whole huge pages.
    pub(crate) fn prepare_pooled(
        &self,
        address: u64,
        length: u64,
        (prot, map_flags): (u32, u32),
        opened: &Opened<'_, M>,
    ) -> Result<(u64, u64), Errno> {
        let size = Memory::<M>::huge_page_size();
        let object = opened.store?;
        let length = match length.checked_next_multiple_of(size) {
            Some(length) if length <= self.layout().end => length,
            _ => return Err(Errno::ENOMEM),
        };
        let has = |flag| map_flags & flag != 0;
        let is_fixed = has(flags::FIXED | flags::FIXED_NOREPLACE);
        if (is_fixed && !address.is_multiple_of(size)) || !opened.offset.is_multiple_of(size) {
            return Err(Errno::EINVAL);
        }
        let end = opened.offset.checked_add(length).ok_or(Errno::EOVERFLOW)?;
        self.check_kind(length, prot, map_flags, Some(opened))?;
        self.memory().huge.note_pool();
        let is_owned = object.cache().writers.huge.is_owned();
        match has(flags::NORESERVE) {
            true => {}
            false if has(flags::SHARED) || is_owned => {
                object.reserve(opened.offset / PAGE_SIZE..end / PAGE_SIZE)?;
            }
            // A private mapping of an object with pages of its own takes what is left over: there has to be enough now.
            false => {
                let pool = self.memory().pool_sizes();
                if pool.free.saturating_sub(pool.reserved) < length / size {
                    return Err(Errno::ENOMEM);
                }
            }
        }
        if opened.writable {
            object.extend(end);
        }
        // As Linux, a hint too high is none.
        let hint = address.checked_next_multiple_of(size).unwrap_or(0);
        Ok((hint, length))
    }

    /// Returns the attributes of the mapping of the pool at a page, if there is one.
    #[inline]
    pub(crate) fn pooled_at(&self, page: u64) -> Option<Attributes> {
        match self.memory().huge.has_pool() {
            true => self.find_pooled(page),
            false => None,
        }
    }

    #[cold]
    fn find_pooled(&self, page: u64) -> Option<Attributes> {
        let attributes = self.lookup(Page(page).address())?;
        (attributes.flags.huge == Huge::Pooled).then_some(attributes)
    }

    /// Refuses an operation on `pages` that would cut a mapping of the pool inside a huge page.
    ///
    /// # Errors
    /// `EINVAL`.
    #[inline]
    pub(crate) fn check_pool(&self, pages: Pages) -> Result<(), Errno> {
        let cuts = |page: u64| !page.is_multiple_of(HUGE) && self.pooled_at(page).is_some();
        match self.memory().huge.has_pool() && (cuts(pages.start) || cuts(pages.end)) {
            true => Err(Errno::EINVAL),
            false => Ok(()),
        }
    }

    /// Reserves blocks again for what was discarded of private mappings, as Linux does, if there are any left.
    #[inline]
    pub(crate) fn reserve_again(&self, pages: Pages) {
        if self.memory().huge.has_pool() {
            // Without one, the next fault takes what is left over.
            let reserve = |object: &MemoryObject<M>, part| {
                let _ = object.reserve(part);
            };
            self.for_each_private(pages, reserve);
        }
    }

    /// Notes the reservations of private mappings of `pages`, which are about to be unmapped.
    #[inline]
    pub(crate) fn reservations(&self, pages: Pages) -> Option<Reservations<M>> {
        match self.memory().huge.has_pool() {
            true => Some(self.note_reservations(pages)),
            false => None,
        }
    }

    #[cold]
    #[inline(never)]
    fn note_reservations(&self, pages: Pages) -> Reservations<M> {
        let mut noted = Reservations([const { None }; NOTED]);
        let mut places = noted.0.iter_mut();
        self.for_each_private(pages, |object, part| {
            // If there are more mappings than are noted, the rest ends with its objects.
            if let Some(place) = places.next() {
                *place = Some((object.clone(), part));
            }
        });
        noted
    }

    /// Ends all reservations of a space that nothing uses any more. Its children may still map the objects.
    pub(crate) fn end_all_reservations(&self) {
        if self.memory().huge.has_pool() {
            let all = self.all_pages();
            self.for_each_private(all, |object, part| object.end_reservations(part));
        }
    }

    /// Calls `act` with the objects of private mappings of the pool in `pages` for which this space has reservations, and with
    /// their pages, in whole huge pages.
    #[cold]
    fn for_each_private(&self, pages: Pages, mut act: impl FnMut(&MemoryObject<M>, Range<u64>)) {
        let mut at = pages.start;
        while let Some((run, attributes)) = self.next_part(at, pages.end) {
            at = run.pages.end;
            let part = run.pages.and(pages);
            let pooled = attributes.filter(|of| of.flags.huge == Huge::Pooled);
            let Some(backed) = pooled.and_then(|of| of.backed) else {
                continue;
            };
            let object = MemoryObject::of(self.memory(), backed.pointer());
            let owner = object.cache().writers.huge.owner.load(Ordering::Relaxed);
            if owner == self.number() {
                act(&object, backed.index(part.start)..backed.index(part.end));
            }
        }
    }

    /// Returns the part of `pages` that a discard empties: whole huge pages, where they end in a mapping of the pool.
    ///
    /// # Errors
    /// `EINVAL`: they begin inside a huge page.
    pub(crate) fn discarded_of_pool(&self, pages: Pages) -> Result<Pages, Errno> {
        if self.pooled_at(pages.start).is_some() && !pages.start.is_multiple_of(HUGE) {
            return Err(Errno::EINVAL);
        }
        let end = match self.pooled_at(pages.end) {
            Some(_) => pages.end / HUGE * HUGE,
            None => pages.end,
        };
        Ok(Pages::new(pages.start, end.max(pages.start)))
    }
}
