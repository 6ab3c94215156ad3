//! `mmap`.
//!
//! Where a mapping goes that is not fixed is chosen in [`crate::lock::gap`]. `MAP_FIXED` over existing
//! mappings shows the new mapping as *replacing* until the old pages are gone (rule R11): faults
//! there wait, and do not die.
//!
//! A neighbour with equal attributes lends its mapping, which is how mappings
//! merge.

mod request;

use core::ptr::NonNull;

use faultless_paging::{PAGE_SIZE, Pages};
use faultless_sync::{Mutant, mutant};
use faultless_trace::{Counter, Kind};

use crate::base::errno::Errno;
use crate::base::machine::Machine;
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

/// `MAP_*` flags that are looked at.
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
    /// What `SHARED_VALIDATE` knows: most of these, and `DENYWRITE`, `EXECUTABLE`, and the sizes
    /// of huge pages.
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

/// A store to be mapped, as a port's `mmap` of a file has it.
pub struct Opened<'a, M: Machine> {
    /// The file's pages, or why what is open cannot be mapped at all: `EACCES` if it was
    /// not opened for reading, `ENODEV` if it has no pages.
    pub store: Result<&'a MemoryObject<M>, Errno>,
    /// The byte of the file that the mapping begins with: a whole page.
    pub offset: u64,
    /// The port's name for what was opened: mappings that differ in it do not merge.
    pub file: u64,
    /// Whether it was opened for writing.
    pub writable: bool,
}

/// A device to be mapped, likewise.
pub struct OpenedDevice<'a, M: Machine> {
    /// The device, or why what is open cannot be mapped.
    pub device: Result<&'a Device<M>, Errno>,
    /// The byte of the device that the mapping begins with: a whole page.
    pub offset: u64,
    /// The port's name for what was opened.
    pub file: u64,
    /// Whether it was opened for writing.
    pub writable: bool,
}

impl<M: Machine> AddressSpace<M> {
    /// Maps `length` bytes of anonymous memory at `address`, or near it, or anywhere. The
    /// address.
    ///
    /// # Errors
    /// As Linux's `mmap`: `EINVAL`, `ENOMEM`, `EEXIST`, `EPERM` below
    /// [`crate::Layout::lowest`] and over a sealed mapping; `EAGAIN` and `EPERM` for what may
    /// not be locked.
    pub fn mmap(&self, address: u64, length: u64, prot: u32, flags: u32) -> Result<u64, Errno> {
        self.mmap_recorded(address, length, prot, flags, None)
    }

    /// Maps `length` bytes of a store likewise; of `flags` those that say whether it is
    /// anonymous have no meaning.
    ///
    /// # Errors
    /// The same; `EACCES` for shared writing of what was not opened for it,
    /// `EOVERFLOW` behind the largest file, `EOPNOTSUPP` for flags that
    /// `MAP_SHARED_VALIDATE` does not know.
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

    /// Maps `length` bytes of a device likewise. No access to it is more than that: its pages come by
    /// faults, and are nobody's to copy, lock, pin or give back.
    ///
    /// # Errors
    /// The same; `EINVAL` where it is not to be shared, and behind the device's end.
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

    fn map(
        &self,
        address: u64,
        length: u64,
        prot: u32,
        map_flags: u32,
        opened: Option<&Opened<'_, M>>,
    ) -> Result<u64, Errno> {
        let has = |flag| map_flags & flag != 0;
        if has(flags::HUGETLB) || length == 0 {
            return Err(Errno::EINVAL);
        }
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
            (pages, self.map_at(pages, &request)?)
        } else {
            let wish = GapRequest {
                hint: address,
                count: length / PAGE_SIZE,
                zone: zone_of(map_flags),
                is_private: opened.is_none() && !has(flags::SHARED),
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

    /// Maps what is asked for in `pages`, whatever is mapped there.
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

    /// The same without waiting for the range, if nothing has it, and what is mapped there is quickly replaced.
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

    /// The same under an edit, which has found `pages` vacant or not: what is counted stays within its limit.
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

    /// Maps what is asked for where nothing is mapped, under the edit under which that was seen.
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

    /// Lets `pages` show what is asked for, marked as *replacing*, in place of what is mapped there; what has
    /// lost its last page by that.
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

    /// Maps `pages`, in place of what is mapped there, under the edit under which that was seen. Readers are locked
    /// out.
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
        Ok(self
            .maps
            .replace_range(edit, &near, pages, near.runs(pages), marked))
    }

    /// Maps `pages`, which are free, under the edit under which that was seen.
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
                // Nodes and splits that were made for the ends go.
                edit.fill(pages, SlotValue::EMPTY);
            }
        })?;
        self.maps.set_free_range(edit, &near, pages, word, beside);
        Ok(())
    }

    /// A live mapping with these attributes for `pages`, where there may be pages: a neighbour's, or a new one.
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

    /// Lets a walk of the store's mappings that has passed a mapping come to it once more: what it leads to from
    /// now on may have pages already.
    pub(crate) fn link_word_again(&self, word: SlotValue) {
        // SAFETY: the caller keeps it from being retired.
        if let Some(mapping) = unsafe { word.mapping() } {
            self.memory().link_again(mapping);
        }
    }

    /// The same for pages with these neighbours, under the edit under which they were seen.
    fn word_between(&self, beside: Neighbours, attributes: Attributes) -> Result<SlotValue, Errno> {
        let beside = [beside.before, beside.behind];
        // What is replacing there ends where this begins: by the words alone can it be told.
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
