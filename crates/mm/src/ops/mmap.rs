//! `mmap`.
//!
//! Where a mapping goes that is not fixed is chosen in [`super::room`]. `MAP_FIXED` over existing
//! mappings shows the new mapping as *replacing* until the old pages are gone (rule R11): faults
//! there wait, and do not die.
//!
//! There are no huge pages that can be asked for by name, and no file is memory that keeps what is
//! written to it: the errors of `MAP_HUGETLB` and `MAP_SYNC` are those of a Linux that is built
//! without hugetlbfs and has no such device.
//!
//! A neighbour with equal attributes lends its mapping, which is how mappings
//! merge.

use core::ptr::NonNull;

use faultless_paging::{PAGE_SIZE, Pages};
use faultless_sync::{Flaw, flawed};
use faultless_trace::{Counter, Kind};

use super::room::{Wish, Zone};
use super::{PROT_WRITE, protection};
use crate::errno::Errno;
use crate::machine::Machine;
use crate::mapping::{Attributes, Backed, Flags, Huge, Locked, Mapping};
use crate::range::RangeLock;
use crate::space::{AddressSpace, Note};
use crate::store::{Device, Store};
use crate::tree::{Content, Edit, Neighbours, Word};

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
    pub store: Result<&'a Store<M>, Errno>,
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

/// The largest size of a file.
const LARGEST: u64 = i64::MAX as u64;

/// What `mmap`'s flags say of a mapping, `locked` being asked for.
fn born(map_flags: u32, locked: Locked) -> Flags {
    let has = |flag| map_flags & flag != 0;
    // What may go at any time is neither kept in memory nor for anybody else.
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
    pub fn mmap_store(
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
            Some(length) if length <= self.layout.end => length,
            _ => return Err(Errno::ENOMEM),
        };
        let fixed = has(flags::FIXED | flags::FIXED_NOREPLACE);
        let is_shared = has(flags::SHARED);
        let wish = Wish {
            hint: address,
            count: length / PAGE_SIZE,
            zone: Zone::of(map_flags),
            is_private: opened.is_none() && !is_shared,
        };
        let mut locked;
        let start = {
            if self.looks_full() {
                return Err(Errno::ENOMEM);
            }
            if has(flags::LOCKED) {
                self.note_locked();
            }
            // One edit from the look to the mapping: what is chosen stays free, and what is counted
            // stays within its limit.
            let (lock, mut edit, pages) = if fixed {
                self.check_fixed(address, length)?;
                let pages = Pages::of_bytes(address..address + length);
                let lock = self.lock_range_to_fill(pages);
                lock.lock_out_readers(pages);
                let edit = lock.edit();
                (lock, edit, pages)
            } else {
                self.lock_room(&wish)?
            };
            if self.has_too_many_mappings(&edit) {
                return Err(Errno::ENOMEM);
            }
            // What was found has room.
            let is_vacant = !fixed || self.tree.is_vacant(pages);
            if has(flags::FIXED_NOREPLACE) && !is_vacant {
                return Err(Errno::EEXIST);
            }
            locked = self.locked_at_birth(has(flags::LOCKED));
            self.check_lock(&edit, locked, pages.len(), map_flags)?;
            let store = self.check_kind(length, prot, map_flags, opened)?;
            // Memory that is shared and has no file gets a store of its own, which the
            // mapping holds.
            let own = match opened {
                None if is_shared => Some(Store::new(self.memory, length, None, 0)?),
                _ => None,
            };
            let (index, file) = opened.map_or((0, 0), |o| (o.offset / PAGE_SIZE, o.file));
            let backed = store
                .or(own.as_ref())
                .map(|store| Backed::new(store, pages.start, index, file));
            let device = store.is_some_and(|store| store.cache().is_device());
            if device {
                locked = Locked::No;
            }
            let born = born(map_flags, locked);
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
            };
            if attributes.flags.droppable {
                self.note(Note::DROPPABLE);
            }
            if is_vacant {
                self.check_new(&edit, pages, &attributes)?;
                self.map_free(&mut edit, pages, attributes)?;
            } else {
                self.map_over(lock, edit, pages, attributes)?;
            }
            pages.start * PAGE_SIZE
        };
        self.memory.count(Counter::Mmap);
        if opened.is_some() && !is_shared {
            self.install_probes(Pages::of_bytes(start..start + length));
        }

        let populate = map_flags & (flags::POPULATE | flags::NONBLOCK) == flags::POPULATE;
        if populate || locked != Locked::No {
            self.populate_ignoring(Pages::of_bytes(start..start + length));
        }
        Ok(start)
    }

    fn check_fixed(&self, address: u64, length: u64) -> Result<(), Errno> {
        if address > self.layout.end - length {
            Err(Errno::ENOMEM)
        } else if !address.is_multiple_of(PAGE_SIZE) {
            Err(Errno::EINVAL)
        } else if address < self.layout.lowest {
            Err(Errno::EPERM)
        } else {
            Ok(())
        }
    }

    /// Whether so many pages may be mapped if they are to be locked.
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
        let room = self.room(edit);
        if map_flags & flags::LOCKED != 0 && !room.may_lock() {
            return Err(Errno::EPERM);
        }
        match room.may_lock_pages(pages) {
            true => Ok(()),
            false => Err(Errno::EAGAIN),
        }
    }

    /// What Linux looks at once it has an address. The store of what was opened.
    fn check_kind<'o>(
        &self,
        length: u64,
        prot: u32,
        map_flags: u32,
        opened: Option<&Opened<'o, M>>,
    ) -> Result<Option<&'o Store<M>>, Errno> {
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
        // What is private is looked at where it is counted.
        let makes_store = has(flags::SHARED) && opened.is_none();
        let reserve = makes_store && !has(flags::NORESERVE);
        if reserve && length / PAGE_SIZE > self.layout.commit_pages {
            return Err(Errno::ENOMEM);
        }
        Ok(store)
    }

    /// Maps `pages`, in place of what is mapped there, under the edit under which that was seen.
    /// Readers are locked out.
    pub(crate) fn map_over(
        &self,
        lock: RangeLock<'_, M>,
        mut edit: Edit<'_, M>,
        pages: Pages,
        attributes: Attributes,
    ) -> Result<(), Errno> {
        self.check_seals(pages)?;
        self.check_replacing(&edit, pages, &attributes)?;
        edit.cut(pages)?;
        let word = self.word_for(&edit, pages, attributes)?;
        let marked = match flawed(Flaw::ReplacedWithoutMark) {
            false => word.replacing(),
            true => word,
        };
        self.assign(&mut edit, pages, marked);
        lock.keep_doomed(&edit);
        drop(edit);
        lock.settle();
        let had = lock.had();
        let replacing = lock.begin_replace(pages);
        self.trace_hold(had, pages);
        replacing.finish();
        Ok(())
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
        let word = self.word_between(beside, attributes)?;
        self.assign_free(edit, &near, pages, word, beside);
        Ok(())
    }

    /// A live mapping with these attributes for `pages`: a neighbour's, or a new one.
    pub(crate) fn word_for(
        &self,
        _edit: &Edit<'_, M>,
        pages: Pages,
        attributes: Attributes,
    ) -> Result<Word, Errno> {
        self.word_between(self.tree.beside(pages), attributes)
    }

    /// The same for pages with these neighbours, under the edit under which they were seen.
    fn word_between(&self, beside: Neighbours, attributes: Attributes) -> Result<Word, Errno> {
        let beside = [beside.before, beside.behind];
        // What is replacing there ends where this begins: by the words alone can it be told.
        let may_lend = !beside.iter().any(|word| word.is_replacing());
        let lent = beside.into_iter().filter(|_| may_lend).find(|word| {
            // SAFETY: the caller is editing, so nothing is retired.
            match unsafe { word.content() } {
                Content::Live(neighbour) => self.are_one(neighbour.attributes(), &attributes),
                _ => false,
            }
        });
        if let Some(word) = lent {
            return Ok(word);
        }
        let mapping: NonNull<Mapping> = self.memory.allocate_mapping(self, attributes)?;
        // SAFETY: just made; the caller puts it into the tree.
        Ok(Word::live(unsafe { mapping.as_ref() }))
    }
}
