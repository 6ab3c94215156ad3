//! `mmap`.
//!
//! A hint is taken if the pages are free; else the highest hole below
//! `mmap_base` that is large enough. `MAP_FIXED` over existing mappings shows
//! the new mapping as changing until the old pages are gone (rule R11): faults
//! there wait, and do not die.
//!
//! A neighbour with equal attributes lends its mapping, which is how mappings
//! merge.

use core::ptr::NonNull;

use faultless_paging::{PAGE_SIZE, Pages};
use faultless_sync::{Flaw, flawed};
use faultless_trace::{Counter, Kind};

use super::{PROT_WRITE, protection};
use crate::errno::Errno;
use crate::machine::Machine;
use crate::mapping::{Attributes, Backed, Flags, Locked, Mapping};
use crate::range::RangeLock;
use crate::space::AddressSpace;
use crate::store::Store;
use crate::tree::{Content, Edit, Neighbours, Word};

/// `MAP_*` flags that are looked at.
#[allow(missing_docs)]
pub mod flags {
    pub const TYPE: u32 = 0x0f;
    pub const SHARED: u32 = 0x01;
    pub const PRIVATE: u32 = 0x02;
    pub const SHARED_VALIDATE: u32 = 0x03;
    pub const FIXED: u32 = 0x10;
    pub const ANONYMOUS: u32 = 0x20;
    pub const GROWSDOWN: u32 = 0x100;
    pub const LOCKED: u32 = 0x2000;
    pub const NORESERVE: u32 = 0x4000;
    pub const POPULATE: u32 = 0x8000;
    pub const NONBLOCK: u32 = 0x1_0000;
    pub const HUGETLB: u32 = 0x4_0000;
    pub const FIXED_NOREPLACE: u32 = 0x10_0000;
    /// What `SHARED_VALIDATE` knows: these, and `32BIT`, `ABOVE4G`, `DENYWRITE`,
    /// `EXECUTABLE`, `STACK`, and the sizes of huge pages.
    pub const LEGACY: u32 = TYPE & 0x3
        | FIXED
        | ANONYMOUS
        | 0x40
        | 0x80
        | GROWSDOWN
        | 0x800
        | 0x1000
        | LOCKED
        | NORESERVE
        | POPULATE
        | NONBLOCK
        | 0x2_0000
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

/// The largest size of a file.
const LARGEST: u64 = i64::MAX as u64;

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
        if length == 0 {
            return Err(Errno::EINVAL);
        }
        let length = match length.checked_next_multiple_of(PAGE_SIZE) {
            Some(length) if length <= self.layout.end => length,
            _ => return Err(Errno::ENOMEM),
        };
        let fixed = map_flags & (flags::FIXED | flags::FIXED_NOREPLACE) != 0;
        let locked;
        let start = {
            let lock = self.lock_range(Pages::of_bytes(0..self.layout.end));
            if self.has_too_many_mappings() {
                return Err(Errno::ENOMEM);
            }
            if fixed {
                self.check_fixed(address, length)?;
            }
            // One edit from the look to the mapping: stacks grow without the range lock.
            let mut edit = lock.edit();
            let pages = match fixed {
                true => Pages::of_bytes(address..address + length),
                false => self.find_room(&mut edit, address, length / PAGE_SIZE)?,
            };
            // What was found has room.
            let is_vacant = !fixed || self.tree.is_vacant(pages);
            if map_flags & flags::FIXED_NOREPLACE != 0 && !is_vacant {
                return Err(Errno::EEXIST);
            }
            locked = self.locked_at_birth(map_flags & flags::LOCKED != 0);
            self.check_lock(&edit, locked, pages.len(), map_flags)?;
            let store = self.check_kind(length, prot, map_flags, opened)?;
            // Memory that is shared and has no file gets a store of its own, which the
            // mapping holds.
            let is_shared = map_flags & flags::TYPE != flags::PRIVATE;
            let own = match opened {
                None if is_shared => Some(Store::new(self.memory, length, None, 0)?),
                _ => None,
            };
            let (index, file) = opened.map_or((0, 0), |o| (o.offset / PAGE_SIZE, o.file));
            let backed = store
                .or(own.as_ref())
                .map(|store| Backed::new(store, pages.start, index, file));
            let attributes = Attributes {
                protection: protection(prot),
                flags: Flags {
                    grows_down: map_flags & flags::GROWSDOWN != 0,
                    no_reserve: map_flags & flags::NORESERVE != 0,
                    shared: is_shared,
                    never_written: is_shared && opened.is_some_and(|opened| !opened.writable),
                    locked,
                    ..Flags::NONE
                },
                backed,
                birth: self.birth(),
            };
            if is_vacant {
                self.check_new(&edit, pages, &attributes)?;
                self.map_free(&mut edit, pages, attributes)?;
            } else {
                drop(edit);
                self.map_over(&lock, pages, attributes)?;
            }
            pages.start * PAGE_SIZE
        };
        self.memory.count(Counter::Mmap);

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
        if opened.is_none() && has(flags::HUGETLB) {
            return Err(Errno::ENOMEM);
        }
        // What is private is looked at where it is counted.
        let makes_store = kind != flags::PRIVATE && opened.is_none();
        let reserve = makes_store && !has(flags::NORESERVE);
        if reserve && length / PAGE_SIZE > self.layout.commit_pages {
            return Err(Errno::ENOMEM);
        }
        Ok(store)
    }

    /// Where so many pages have room, at the hint if possible.
    pub(crate) fn find_room(
        &self,
        edit: &mut Edit<'_, M>,
        hint: u64,
        count: u64,
    ) -> Result<Pages, Errno> {
        let layout = &self.layout;
        let (low, end) = (layout.lowest.div_ceil(PAGE_SIZE), layout.end / PAGE_SIZE);
        let base = layout.mmap_base.min(layout.end) / PAGE_SIZE;
        if count > end - low {
            return Err(Errno::ENOMEM);
        }
        // Linux rounds a hint down to a page, and too low a hint up to the lowest address.
        let hint = match hint / PAGE_SIZE {
            0 => None,
            page => Some(page.max(low)),
        };
        let at_hint = hint
            .map(|start| Pages::new(start, start.saturating_add(count)))
            .filter(|pages| pages.end <= end && edit.is_free(*pages));
        if let Some(pages) = at_hint {
            return Ok(pages);
        }
        let mut aligned = || match hint {
            None => highest_aligned(edit, count, low, base),
            Some(_) => None,
        };
        let start = aligned()
            .or_else(|| edit.highest_hole(count, low, base))
            .or_else(|| edit.highest_hole(count, low, end))
            .ok_or(Errno::ENOMEM)?;
        Ok(Pages::new(start, start + count))
    }

    /// Maps `pages`, in place of what is mapped there.
    pub(crate) fn map_over(
        &self,
        lock: &RangeLock<'_, M>,
        pages: Pages,
        attributes: Attributes,
    ) -> Result<(), Errno> {
        self.check_seals(pages)?;
        lock.lock_out_readers(pages);
        let mut edit = lock.edit();
        self.check_replacing(&edit, pages, &attributes)?;
        edit.cut(pages)?;
        let word = self.word_for(&edit, pages, attributes)?;
        let marked = match flawed(Flaw::ReplacedWithoutMark) {
            false => word.changing(),
            true => word,
        };
        self.assign(&mut edit, pages, marked);
        drop(edit);
        lock.settle();
        self.zap(pages, false);
        lock.edit().fill(pages, word);
        Ok(())
    }

    /// Maps `pages`, which are free, under the edit under which that was seen.
    pub(crate) fn map_free(
        &self,
        edit: &mut Edit<'_, M>,
        pages: Pages,
        attributes: Attributes,
    ) -> Result<(), Errno> {
        edit.cut(pages)?;
        let beside = self.tree.beside(pages);
        let word = self.word_between(beside, attributes)?;
        self.assign_free(edit, pages, word, beside);
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
        let lent = [beside.before, beside.behind].into_iter().find(|word| {
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

/// Pages of a huge page.
const HUGE: u64 = 512;

/// Linux since 6.7 places a mapping of whole huge pages on a huge page's
/// boundary: in the highest hole that has room for one huge page more.
fn highest_aligned<M: Machine>(
    edit: &mut Edit<'_, M>,
    count: u64,
    low: u64,
    high: u64,
) -> Option<u64> {
    if !count.is_multiple_of(HUGE) {
        return None;
    }
    let start = edit.highest_hole(count.checked_add(HUGE)?, low, high)?;
    Some((start + 1).next_multiple_of(HUGE))
}
