//! `mmap`: creates mappings.
//!
//! [`crate::lock::gap`] chooses the address of a mapping that is not fixed. `MAP_FIXED` over existing mappings
//! shows the new mapping as *replacing* until the old pages are gone (rule R11): faults there wait instead of
//! failing.
//!
//! A neighbour with equal attributes lends its mapping object, which is how mappings merge.

mod request;

use core::ptr::NonNull;

use faultless_paging::{PAGE_SIZE, Pages};
use faultless_sync::{Mutant, mutant};
use faultless_trace::{Counter, Kind};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::userfault::numbers as userfault;
use crate::lock::Edit;
use crate::lock::RangeWriteGuard;
use crate::lock::change::{AfterEdit, ChangeGuard};
use crate::lock::edit::DeadMappings;
use crate::lock::gap::GapRequest;
use crate::object::{Device, MemoryObject};
use crate::ops::mmap::request::{Request, zone_of};
use crate::probe::space::install_probes;
use crate::space::AddressSpace;
use crate::tree::mapping::{Attributes, Locked, Mapping};
use crate::tree::{Neighbours, SlotState, SlotValue};

/// The `MAP_*` flags that have a meaning here.
#[allow(missing_docs)]
pub mod flags {
    pub const TYPE: u32 = 0x0f;
    pub const SHARED: u32 = 0x01;
    pub const PRIVATE: u32 = 0x02;
    pub const SHARED_VALIDATE: u32 = 0x03;
    pub const DROPPABLE: u32 = 0x08;
    pub const FIXED: u32 = 0x10;
    pub const ANONYMOUS: u32 = 0x20;
    pub const LOW_32BIT: u32 = 0x40;
    pub const ABOVE4G: u32 = 0x80;
    pub const GROWSDOWN: u32 = 0x100;
    pub const LOCKED: u32 = 0x2000;
    pub const NORESERVE: u32 = 0x4000;
    pub const POPULATE: u32 = 0x8000;
    pub const NONBLOCK: u32 = 0x1_0000;
    pub const STACK: u32 = 0x2_0000;
    pub const HUGETLB: u32 = 0x4_0000;
    pub const SYNC: u32 = 0x8_0000;
    pub const FIXED_NOREPLACE: u32 = 0x10_0000;
    /// The flags that `SHARED_VALIDATE` accepts: most of these, `DENYWRITE`, `EXECUTABLE`, and the sizes of
    /// huge pages.
    pub const LEGACY: u32 = TYPE & 0x3
        | FIXED
        | ANONYMOUS
        | LOW_32BIT
        | ABOVE4G
        | GROWSDOWN
        | 0x800
        | 0x1000
        | LOCKED
        | NORESERVE
        | POPULATE
        | NONBLOCK
        | STACK
        | HUGETLB
        | 21 << 26
        | 30 << 26;
}

/// An open file to be mapped, as a port's `mmap` passes it.
pub struct Opened<'a, M: Machine> {
    /// The memory object with the file's pages, or the reason why the file cannot be mapped at all: `EACCES` if
    /// it was not opened for reading, `ENODEV` if it has no pages.
    pub store: Result<&'a MemoryObject<M>, Errno>,
    /// The byte of the file at which the mapping begins, page-aligned.
    pub offset: u64,
    /// The port's name for the open file. Mappings that differ in it do not merge.
    pub file: u64,
    /// Whether it was opened for writing.
    pub writable: bool,
}

/// An open device to be mapped, likewise.
pub struct OpenedDevice<'a, M: Machine> {
    /// The device, or the reason why it cannot be mapped.
    pub device: Result<&'a Device<M>, Errno>,
    /// The byte of the device at which the mapping begins, page-aligned.
    pub offset: u64,
    /// The port's name for the open file.
    pub file: u64,
    /// Whether it was opened for writing.
    pub writable: bool,
}

impl<M: Machine> AddressSpace<M> {
    /// Maps `length` bytes of anonymous memory at `address`, near it, or anywhere. Returns the address.
    ///
    /// # Errors
    /// As Linux's `mmap`: `EINVAL`, `ENOMEM`, `EEXIST`, `EPERM` below [`crate::Layout::lowest`] and over a
    /// sealed mapping; `EAGAIN` and `EPERM` if the pages may not be locked.
    pub fn mmap(&self, address: u64, length: u64, prot: u32, flags: u32) -> Result<u64, Errno> {
        self.mmap_recorded(address, length, prot, flags, None)
    }

    /// Maps `length` bytes of a memory object likewise. `MAP_ANONYMOUS` is ignored.
    ///
    /// # Errors
    /// The same; `EACCES` for shared writing of a file that was not opened for writing, `EOVERFLOW` behind the
    /// largest file, `EOPNOTSUPP` for flags that `MAP_SHARED_VALIDATE` does not accept.
    pub fn mmap_object(
        &self,
        address: u64,
        length: u64,
        prot: u32,
        flags: u32,
        opened: &Opened<'_, M>,
    ) -> Result<u64, Errno> {
        self.mmap_recorded(address, length, prot, flags, Some(opened))
    }

    /// Maps `length` bytes of a device likewise. Its pages come by faults only, and cannot be copied, locked,
    /// pinned or freed.
    ///
    /// # Errors
    /// The same; `EINVAL` for a mapping that is not shared, and behind the device's end.
    pub fn mmap_device(
        &self,
        address: u64,
        length: u64,
        prot: u32,
        flags: u32,
        opened: &OpenedDevice<'_, M>,
    ) -> Result<u64, Errno> {
        let opened = Opened {
            store: opened.device.map(Device::store),
            offset: opened.offset,
            file: opened.file,
            writable: opened.writable,
        };
        self.mmap_recorded(address, length, prot, flags, Some(&opened))
    }

    fn mmap_recorded(
        &self,
        address: u64,
        length: u64,
        prot: u32,
        flags: u32,
        opened: Option<&Opened<'_, M>>,
    ) -> Result<u64, Errno> {
        let start = self.trace_start();
        let result = self.map(address, length, prot, flags, opened);
        let at = *result.as_ref().unwrap_or(&address);
        self.trace_result(Kind::Mmap, start, (at, length), result)
    }

    pub(crate) fn map(
        &self,
        address: u64,
        length: u64,
        prot: u32,
        map_flags: u32,
        opened: Option<&Opened<'_, M>>,
    ) -> Result<u64, Errno> {
        let has = |flag| map_flags & flag != 0;
        if has(flags::HUGETLB) && opened.is_none() {
            return self.map_pool(address, length, prot, map_flags);
        }
        if length == 0 {
            return Err(Errno::EINVAL);
        }
        let is_pooled =
            opened.is_some_and(|opened| opened.store.is_ok_and(MemoryObject::is_pooled));
        if has(flags::HUGETLB) && !is_pooled {
            return Err(Errno::EINVAL);
        }
        let (address, length) = match opened.filter(|_| is_pooled) {
            Some(opened) => self.prepare_pooled(address, length, (prot, map_flags), opened)?,
            None => (address, length),
        };
        let length = match length.checked_next_multiple_of(PAGE_SIZE) {
            Some(length) if length <= self.layout().end => length,
            _ => return Err(Errno::ENOMEM),
        };
        let request = Request {
            length,
            prot,
            map_flags,
            opened,
        };
        if self.maps.looks_full() {
            return Err(Errno::ENOMEM);
        }
        if has(flags::LOCKED) {
            self.maps.note_locked();
        }
        let (pages, locked) = if has(flags::FIXED | flags::FIXED_NOREPLACE) {
            self.check_fixed(address, length)?;
            let pages = Pages::of_bytes(address..address + length);
            self.check_pool(pages)?;
            let reserved = self.reservations(pages);
            let change = self.begin_change(pages, userfault::EVENT_UNMAP);
            let locked = self.map_at(pages, &request)?;
            if let Some(reserved) = reserved {
                reserved.end();
            }
            self.report_unmap(change, pages, true);
            (pages, locked)
        } else {
            let wish = GapRequest {
                hint: address,
                count: length / PAGE_SIZE,
                zone: zone_of(map_flags),
                huge_offset: self.huge_offset(&request),
                is_pooled,
            };
            self.maps.in_room(&wish, |edit, pages| {
                let locked = self.map_vacant(edit, pages, &request)?;
                Ok((pages, locked))
            })?
        };
        self.memory().count(Counter::Mmap);
        if opened.is_some() && !has(flags::SHARED) {
            install_probes(self, pages);
        }
        let populate = map_flags & (flags::POPULATE | flags::NONBLOCK) == flags::POPULATE;
        if populate || locked != Locked::No {
            self.populate_ignoring(pages);
        }
        Ok(pages.start * PAGE_SIZE)
    }

    /// Makes the requested mapping in `pages`, over whatever is mapped there.
    #[inline]
    fn map_at(&self, pages: Pages, request: &Request<'_, M>) -> Result<Locked, Errno> {
        if let Some(result) = self.map_briefly(pages, request) {
            return result;
        }
        let lock = self.maps.lock_range_to_fill(pages);
        lock.lock_out_readers(pages);
        let mut after = AfterEdit::nothing(&self.maps);
        let result = {
            let mut edit = lock.edit();
            let is_vacant = self.tree().is_vacant(pages);
            self.map_by((&mut edit, lock), (pages, is_vacant), request, &mut after)
        };
        after.finish();
        result
    }

    /// The same without waiting for the range. Returns `None` if another operation holds some of it, or if what
    /// is mapped there cannot be replaced quickly.
    #[inline(always)]
    fn map_briefly(&self, pages: Pages, request: &Request<'_, M>) -> Option<Result<Locked, Errno>> {
        let brief = self.maps.may_map_briefly(pages)?;
        let mut after = AfterEdit::nothing(&self.maps);
        let result = {
            let mut edit = brief.edit();
            let range = brief.enter(&edit, pages)?;
            let is_vacant = self.tree().is_vacant(pages);
            if !is_vacant && !self.maps.is_quickly_replaced(&edit, pages) {
                return None;
            }
            self.map_by((&mut edit, range), (pages, is_vacant), request, &mut after)
        };
        after.finish();
        Some(result)
    }

    /// The same under the edit that has found whether `pages` are vacant, so that limits still hold.
    #[inline(always)]
    fn map_by<'a, G: ChangeGuard<'a, M>>(
        &'a self,
        (edit, guard): (&mut Edit<'a, M>, G),
        (pages, is_vacant): (Pages, bool),
        request: &Request<'_, M>,
        after: &mut AfterEdit<'a, M>,
    ) -> Result<Locked, Errno> {
        if is_vacant {
            return self.map_vacant(edit, pages, request);
        }
        let (dead, locked) = self.show_over(edit, pages, request)?;
        after.dead = dead;
        self.maps.detach_replaced(edit, guard, pages, after);
        Ok(locked)
    }

    /// Makes the requested mapping in `pages`, under the edit that has found nothing mapped there.
    #[inline]
    fn map_vacant(
        &self,
        edit: &mut Edit<'_, M>,
        pages: Pages,
        request: &Request<'_, M>,
    ) -> Result<Locked, Errno> {
        let mut own = None;
        let (attributes, locked) = self.attributes_of(edit, pages, true, request, &mut own)?;
        self.maps.check_new(edit, pages, &attributes)?;
        self.map_free(edit, pages, attributes)?;
        Ok(locked)
    }

    /// Shows the requested mapping in `pages`, marked as *replacing*, over what is mapped there. Returns the
    /// mappings that have lost their last page by that.
    fn show_over(
        &self,
        edit: &mut Edit<'_, M>,
        pages: Pages,
        request: &Request<'_, M>,
    ) -> Result<(DeadMappings, Locked), Errno> {
        let mut own = None;
        let (attributes, locked) = self.attributes_of(edit, pages, false, request, &mut own)?;
        let orphans = self.assign_over(edit, pages, attributes)?;
        Ok((orphans, locked))
    }

    fn check_fixed(&self, address: u64, length: u64) -> Result<(), Errno> {
        if address > self.layout().end - length {
            Err(Errno::ENOMEM)
        } else if !address.is_multiple_of(PAGE_SIZE) {
            Err(Errno::EINVAL)
        } else if address < self.layout().lowest {
            Err(Errno::EPERM)
        } else {
            Ok(())
        }
    }

    /// Maps `pages` over what is mapped there, under the edit that has looked. Readers are locked out.
    pub(crate) fn map_over<'a>(
        &'a self,
        lock: RangeWriteGuard<'a, M>,
        mut edit: Edit<'a, M>,
        pages: Pages,
        attributes: Attributes,
    ) -> Result<(), Errno> {
        let mut after = AfterEdit::nothing(&self.maps);
        after.dead = self.assign_over(&mut edit, pages, attributes)?;
        self.maps
            .detach_replaced(&mut edit, lock, pages, &mut after);
        drop(edit);
        after.finish();
        Ok(())
    }

    fn assign_over(
        &self,
        edit: &mut Edit<'_, M>,
        pages: Pages,
        attributes: Attributes,
    ) -> Result<DeadMappings, Errno> {
        self.check_seals(pages)?;
        self.maps.check_replacing(edit, pages, &attributes)?;
        edit.cut(pages)?;
        let word = self.word_for(edit, pages, attributes)?;
        let marked = match mutant(Mutant::ReplacedWithoutMark) {
            false => word.replacing(),
            true => word,
        };
        let near = edit.around(pages);
        let (beside, runs) = (near.beside_below(pages), near.runs(pages));
        Ok(self
            .maps
            .replace_range(edit, &near, pages, beside, runs, marked))
    }

    /// Maps `pages`, under the edit that has found them free.
    pub(crate) fn map_free(
        &self,
        edit: &mut Edit<'_, M>,
        pages: Pages,
        attributes: Attributes,
    ) -> Result<(), Errno> {
        let near = edit.around(pages);
        edit.cut_below(&near, pages)?;
        let beside = near.beside_below(pages);
        let word = self.word_between(beside, attributes).inspect_err(|_| {
            if self.tree().is_vacant(pages) {
                // Frees the nodes and splits that were made for the ends.
                edit.fill(pages, SlotValue::EMPTY);
            }
        })?;
        self.maps.set_free_range(edit, &near, pages, word, beside);
        Ok(())
    }

    /// Returns a live mapping with these attributes for `pages`, a neighbour's or a new one. The entries there
    /// may already have pages.
    pub(crate) fn word_for(
        &self,
        _edit: &Edit<'_, M>,
        pages: Pages,
        attributes: Attributes,
    ) -> Result<SlotValue, Errno> {
        let word = self.word_between(self.tree().beside(pages), attributes)?;
        self.link_word_again(word);
        Ok(word)
    }

    /// Moves a mapping to the end of its object's list, so that a walk that has passed it visits it again.
    /// Where it is mapped from now on may already have pages.
    pub(crate) fn link_word_again(&self, word: SlotValue) {
        // SAFETY: the caller keeps it from being retired.
        if let Some(mapping) = unsafe { word.mapping() } {
            self.memory().link_again(mapping);
        }
    }

    /// Returns a live mapping for pages with these neighbours, under the edit that has seen them.
    fn word_between(&self, beside: Neighbours, attributes: Attributes) -> Result<SlotValue, Errno> {
        let beside = [beside.before, beside.behind];
        // Only slot values show where a neighbour that is replacing ends; a lent mapping could make them equal.
        let may_lend = !beside.iter().any(|word| word.is_replacing());
        let lent = beside.into_iter().filter(|_| may_lend).find(|word| {
            // SAFETY: the caller is editing, so nothing is retired.
            match unsafe { word.content() } {
                SlotState::Live(neighbour) => self.are_one(neighbour.attributes(), &attributes),
                _ => false,
            }
        });
        if let Some(word) = lent {
            return Ok(word);
        }
        let mapping: NonNull<Mapping> = self.allocate_mapping(attributes)?;
        // SAFETY: just made; the caller puts it into the tree.
        Ok(SlotValue::live(unsafe { mapping.as_ref() }))
    }
}
