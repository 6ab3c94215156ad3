//! The request of an `mmap`, and the attributes of a mapping that follow from it.
//!
//! Huge pages cannot be requested by name, and no file is persistent memory. `MAP_HUGETLB` and `MAP_SYNC`
//! therefore fail as on a Linux that is built without hugetlbfs and has no such device.

use faultless_paging::{PAGE_SIZE, Pages};

use crate::base::errno::Errno;
use crate::base::huge::HugeMode;
use crate::base::machine::Machine;
use crate::base::notes::Note;
use crate::base::userfault::Handler;
use crate::lock::Edit;
use crate::lock::gap::{HUGE, Zone};
use crate::object::{MemoryObject, ObjectHuge};
use crate::ops::mmap::{Opened, flags};
use crate::ops::{PROT_WRITE, protection};
use crate::space::AddressSpace;
use crate::tree::mapping::{Attributes, Flags, Huge, Locked, ObjectRef};

/// The largest size of a file.
const LARGEST: u64 = i64::MAX as u64;

/// Returns the flags of a mapping that follow from `mmap`'s, with the requested lock.
fn born(map_flags: u32, locked: Locked) -> Flags {
    let has = |flag| map_flags & flag != 0;
    // A droppable mapping is not kept in memory, and neither a child nor a core dump gets it.
    let droppable = map_flags & flags::TYPE == flags::DROPPABLE;
    Flags {
        grows_down: has(flags::GROWSDOWN),
        no_reserve: has(flags::NORESERVE) || droppable,
        shared: has(flags::SHARED),
        sync: has(flags::SYNC),
        huge: match has(flags::STACK) {
            true => Huge::Unwanted,
            false => Huge::Unsaid,
        },
        droppable,
        wipe_on_fork: droppable,
        dont_dump: droppable,
        locked: match droppable {
            true => Locked::No,
            false => locked,
        },
        ..Flags::NONE
    }
}

/// The request, in whole pages.
pub(crate) struct Request<'a, M: Machine> {
    pub(crate) length: u64,
    pub(crate) prot: u32,
    pub(crate) map_flags: u32,
    pub(crate) opened: Option<&'a Opened<'a, M>>,
}

impl<M: Machine> Request<'_, M> {
    fn has(&self, flag: u32) -> bool {
        self.map_flags & flag != 0
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Returns where in a huge page a mapping is to begin that the request places anywhere, as on Linux: private anonymous memory
    /// of whole huge pages at a boundary, and memory objects that get huge pages with theirs at boundaries.
    pub(crate) fn huge_offset(&self, request: &Request<'_, M>) -> Option<u64> {
        let pages = request.length / PAGE_SIZE;
        let offset = match request.opened {
            None if !request.has(flags::SHARED) => {
                return pages.is_multiple_of(HUGE).then_some(0);
            }
            None => 0,
            Some(opened) => {
                let wish = opened.store.ok()?.cache().writers.huge.wish();
                if wish == ObjectHuge::Pooled {
                    return Some(0);
                }
                (wish != ObjectHuge::Never).then_some(opened.offset / PAGE_SIZE)?
            }
        };
        let has_any = self.memory().shared_huge_mode() != HugeMode::Never;
        (has_any && pages >= HUGE).then_some(offset % HUGE)
    }

    /// Returns the attributes of a mapping of `pages`, if it is allowed, and whether its pages are to be
    /// populated. `own` receives the object of new shared memory, and keeps it while the caller uses the
    /// attributes.
    ///
    /// # Errors
    /// As Linux's, in the same order.
    pub(crate) fn attributes_of(
        &self,
        edit: &Edit<'_, M>,
        pages: Pages,
        is_vacant: bool,
        request: &Request<'_, M>,
        own: &mut Option<MemoryObject<M>>,
    ) -> Result<(Attributes, Locked), Errno> {
        let &Request {
            length,
            prot,
            map_flags,
            opened,
        } = request;
        if self.maps.has_too_many_mappings(edit) {
            return Err(Errno::ENOMEM);
        }
        if request.has(flags::FIXED_NOREPLACE) && !is_vacant {
            return Err(Errno::EEXIST);
        }
        let locked = self.locked_at_birth(request.has(flags::LOCKED));
        self.check_lock(edit, locked, pages.len(), map_flags)?;
        let store = self.check_kind(length, prot, map_flags, opened)?;
        let is_shared = request.has(flags::SHARED);
        // Shared memory without a file gets an object of its own, which the mapping holds.
        if opened.is_none() && is_shared {
            *own = Some(MemoryObject::new(self.memory(), length, None, 0)?);
        }
        let (index, file) = opened.map_or((0, 0), |o| (o.offset / PAGE_SIZE, o.file));
        let backed = store
            .or(own.as_ref())
            .map(|store| ObjectRef::new(store, pages.start, index, file));
        let device = store.is_some_and(|store| store.cache().is_device());
        let is_pooled = store.is_some_and(MemoryObject::is_pooled);
        let locked = match device || is_pooled {
            true => Locked::No,
            false => locked,
        };
        let mut born = born(map_flags, locked);
        if is_pooled {
            // Its memory is taken already, or none of it is promised.
            (born.huge, born.no_reserve) = (Huge::Pooled, true);
        }
        let attributes = Attributes {
            protection: protection(prot),
            flags: Flags {
                never_written: is_shared && opened.is_some_and(|opened| !opened.writable),
                device,
                dont_dump: born.dont_dump || device,
                ..born
            },
            backed,
            birth: self.birth(),
            handler: Handler::NONE,
        };
        if attributes.flags.droppable {
            self.maps.note(Note::DROPPABLE);
        }
        Ok((attributes, locked))
    }

    /// Checks whether so many pages may be mapped, if they are to be locked.
    fn check_lock(
        &self,
        edit: &Edit<'_, M>,
        locked: Locked,
        pages: u64,
        map_flags: u32,
    ) -> Result<(), Errno> {
        if locked == Locked::No {
            return Ok(());
        }
        let room = self.maps.room(edit);
        if map_flags & flags::LOCKED != 0 && !room.may_lock() {
            return Err(Errno::EPERM);
        }
        match room.may_lock_pages(pages) {
            true => Ok(()),
            false => Err(Errno::EAGAIN),
        }
    }

    /// Makes the checks that Linux makes once it has an address. Returns the object of the open file.
    pub(crate) fn check_kind<'o>(
        &self,
        length: u64,
        prot: u32,
        map_flags: u32,
        opened: Option<&Opened<'o, M>>,
    ) -> Result<Option<&'o MemoryObject<M>>, Errno> {
        if opened.is_some_and(|opened| opened.offset > LARGEST.saturating_sub(length)) {
            return Err(Errno::EOVERFLOW);
        }
        let has = |flag| map_flags & flag != 0;
        let kind = map_flags & flags::TYPE;
        match (kind, opened) {
            (flags::PRIVATE, _) => {}
            (flags::DROPPABLE, None) if !has(flags::LOCKED | flags::GROWSDOWN) => {}
            (flags::SHARED, None) if !has(flags::GROWSDOWN) => {}
            (flags::SHARED | flags::SHARED_VALIDATE, Some(opened)) => {
                if kind == flags::SHARED_VALIDATE && map_flags & !flags::LEGACY != 0 {
                    return Err(Errno::EOPNOTSUPP);
                }
                if prot & PROT_WRITE != 0 && !opened.writable {
                    return Err(Errno::EACCES);
                }
            }
            _ => return Err(Errno::EINVAL),
        }
        let store = opened.map(|opened| opened.store).transpose()?;
        if opened.is_some() && has(flags::GROWSDOWN) {
            return Err(Errno::EINVAL);
        }
        if let Some(device) = store.filter(|store| store.cache().is_device()) {
            let end = opened.map_or(0, |opened| opened.offset) / PAGE_SIZE + length / PAGE_SIZE;
            if kind == flags::PRIVATE || !device.cache().spans(end) {
                return Err(Errno::EINVAL);
            }
        }
        // Private memory is checked where it is accounted.
        let makes_store = has(flags::SHARED) && opened.is_none();
        let reserve = makes_store && !has(flags::NORESERVE);
        if reserve && !self.maps.fits(length / PAGE_SIZE) {
            return Err(Errno::ENOMEM);
        }
        Ok(store)
    }
}

/// Returns the zone in which `mmap`'s flags allow a mapping.
pub(super) fn zone_of(map_flags: u32) -> Zone {
    if map_flags & flags::LOW_32BIT != 0 {
        Zone::Low
    } else if map_flags & flags::ABOVE4G != 0 {
        Zone::High
    } else {
        Zone::All
    }
}
