//! A mapping: the attributes of all pages with slots that point to it.
//!
//! A mapping is immutable but for a second cache line:
//!
//! * `pages` counts the pages that point here. Only writers touch it, under an edit lock; at 0 the mapping is
//!   retired.
//! * The *VMA lock* belongs to the policy `vma-lock` alone (`vma_lock.rs`).
//! * `store` is its place in the list of its memory object, under that list's lock.
//! * `link` belongs to reclamation.

use core::ptr::NonNull;

use faultless_paging::Protection;
use faultless_sync::atomic::{AtomicU32, Local, Ordering};
use faultless_sync::{Mutant, mutant};

use crate::base::list::Hook;
use crate::base::userfault::Handler;
use crate::tree::vma_lock::VmaLock;

/// Attributes beside the protection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Flags {
    /// Grows towards lower addresses when touched there (`MAP_GROWSDOWN`).
    pub grows_down: bool,
    /// Not counted against overcommit (`MAP_NORESERVE`).
    pub no_reserve: bool,
    /// How it will be read (`MADV_RANDOM`, `MADV_SEQUENTIAL`).
    pub reading: Reading,
    /// Not inherited by a child (`MADV_DONTFORK`).
    pub dont_fork: bool,
    /// Empty in a child (`MADV_WIPEONFORK`).
    pub wipe_on_fork: bool,
    /// Not part of a core dump (`MADV_DONTDUMP`).
    pub dont_dump: bool,
    /// Stores are visible in all mappings of the same memory object (`MAP_SHARED`).
    pub shared: bool,
    /// Can never become writable: shared, and the file was not opened for writing.
    pub never_written: bool,
    /// Requested with `MAP_SYNC`. It has no effect: no memory object is persistent memory.
    pub sync: bool,
    /// Its pages may be freed at any time, and then read as zero (`MAP_DROPPABLE`).
    pub droppable: bool,
    /// Whether huge pages are wanted (`MADV_HUGEPAGE`; not: `MADV_NOHUGEPAGE`, `MAP_STACK`).
    pub huge: Huge,
    /// Its pages are a device's ([`crate::Device`]): they are never counted, moved, copied or freed (Linux:
    /// `VM_PFNMAP`, `VM_IO`, `VM_DONTEXPAND`).
    pub device: bool,
    /// Equal pages may be merged (`MADV_MERGEABLE`).
    pub mergeable: bool,
    /// The mapping cannot be changed (`mseal`).
    pub sealed: bool,
    /// Whether its pages stay in memory (`mlock`).
    pub locked: Locked,
}

/// The program's advice about huge pages in a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Huge {
    /// No advice.
    #[default]
    Unsaid,
    /// Huge pages are wanted.
    Wanted,
    /// Huge pages are not wanted.
    Unwanted,
    /// Its pages are of the pool of huge pages (`MAP_HUGETLB`).
    Pooled,
}

/// Whether a mapping's pages stay in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Locked {
    /// They need not.
    #[default]
    No,
    /// They do, and are populated from the start.
    Yes,
    /// They do from the first access on (`MLOCK_ONFAULT`).
    OnFault,
}

/// The program's advice about how it will read a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reading {
    /// No advice.
    #[default]
    Normal,
    /// At random.
    Random,
    /// In order.
    Sequential,
}

impl Flags {
    /// Whether reclaim leaves its pages alone.
    pub(crate) fn stays(&self) -> bool {
        self.locked != Locked::No || self.huge == Huge::Pooled
    }

    /// No flags.
    pub const NONE: Flags = Flags {
        grows_down: false,
        no_reserve: false,
        reading: Reading::Normal,
        dont_fork: false,
        wipe_on_fork: false,
        dont_dump: false,
        shared: false,
        never_written: false,
        sync: false,
        droppable: false,
        huge: Huge::Unsaid,
        device: false,
        mergeable: false,
        sealed: false,
        locked: Locked::No,
    };
}

/// A memory object. A mapping leads to it without knowing its type (`crate::object`).
#[derive(Debug)]
pub struct AnyObject(());

/// A mapping's place in the list of its memory object. Read and written under the list's lock.
#[repr(C)]
pub(crate) struct ObjectLinks {
    pub(crate) hook: Hook,
    /// The address of the address space; 0 for a cursor, and for a mapping that is in no list.
    pub(crate) space: Local,
    /// The object index that page 0 of the space would have.
    pub(crate) first: Local,
}

impl ObjectLinks {
    pub(crate) const fn new() -> Self {
        Self {
            hook: Hook::new(),
            space: Local::new(0),
            first: Local::new(0),
        }
    }
}

/// A mapping's offset into a memory object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectRef {
    object: NonNull<AnyObject>,
    /// The object index that page 0 of the address space would have; wraps.
    pub(crate) first: u64,
    /// The port's name for the open file: mappings that differ in it do not merge.
    pub(crate) file: u64,
}

// SAFETY: the mapping that holds the reference holds the object.
unsafe impl Send for ObjectRef {}
// SAFETY: as above.
unsafe impl Sync for ObjectRef {}

impl ObjectRef {
    /// The port's name for the open file.
    pub fn file(&self) -> u64 {
        self.file
    }

    /// Creates a reference to the object at `object`; its page `first` would be at page 0 of the address
    /// space.
    pub(crate) fn at(object: NonNull<AnyObject>, first: u64, file: u64) -> Self {
        Self {
            object,
            first,
            file,
        }
    }

    /// Returns the object, without its type, which `crate::object` knows.
    #[inline]
    pub(crate) fn pointer(&self) -> NonNull<AnyObject> {
        self.object
    }

    /// Returns the object index that `page` shows.
    #[inline]
    pub(crate) fn index(&self, page: u64) -> u64 {
        page.wrapping_add(self.first)
    }

    /// Returns the reference for pages that move from `from` to `page`.
    pub(crate) fn moved(self, from: u64, page: u64) -> Self {
        Self {
            first: self.first.wrapping_add(from).wrapping_sub(page),
            ..self
        }
    }

    /// Whether it is this offset in this object, which may be gone.
    pub(crate) fn leads_to<T>(&self, object: *const T, first: u64) -> bool {
        self.object.as_ptr().cast_const().cast() == object && self.first == first
    }

    /// Whether it is this offset in this object.
    pub(crate) fn is(&self, object: NonNull<AnyObject>, first: u64) -> bool {
        self.object == object && self.first == first
    }
}

/// The time at which a mapping was made: the number of times that its space's soft-dirty bits were cleared
/// before (`crate::space::soft_dirty`). Programs cannot query it. All values compare equal, so that
/// neighbours that differ in nothing else are one mapping, as on Linux.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoftDirtyEpoch(pub(crate) u64);

impl PartialEq for SoftDirtyEpoch {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for SoftDirtyEpoch {}

/// The attributes of a page's mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Which accesses are allowed.
    pub protection: Protection,
    /// All other flags.
    pub flags: Flags,
    /// The source of its pages, unless it is anonymous and private.
    pub backed: Option<ObjectRef>,
    /// When it was made.
    pub birth: SoftDirtyEpoch,
    /// The userfaultfd with which it is registered, if it is.
    pub handler: Handler,
}

impl Attributes {
    /// Whether stores go to the memory object, if writing is or can be allowed.
    pub(crate) fn writes_store(&self) -> bool {
        self.flags.shared && !self.flags.never_written
    }

    /// Returns the attributes for pages that move from `from` to `page`.
    pub(crate) fn moved(self, from: u64, page: u64) -> Self {
        Self {
            backed: self.backed.map(|backed| backed.moved(from, page)),
            ..self
        }
    }
}

/// A mapping.
#[repr(C, align(128))]
pub struct Mapping {
    attributes: Attributes,
    writers: WriterLine,
}

/// The fields that are written after a mapping was made.
#[repr(C, align(64))]
struct WriterLine {
    pages: Local,
    /// Reclamation's link.
    link: Local,
    /// The faults that hold the mapping, and the write hold that has locked it.
    vma_lock: VmaLock,
    /// Its place in the list of its memory object.
    store: ObjectLinks,
}
const _: () = assert!(cfg!(any(loom, shuttle)) || size_of::<Mapping>() == 128);

impl Mapping {
    /// The offset of reclamation's link.
    pub(crate) const LINK: usize =
        core::mem::offset_of!(Mapping, writers) + core::mem::offset_of!(WriterLine, link);

    /// Creates a mapping to which no page points yet.
    pub fn new(attributes: Attributes) -> Self {
        Self {
            attributes,
            writers: WriterLine {
                pages: Local::new(0),
                link: Local::new(0),
                vma_lock: VmaLock::new(),
                store: ObjectLinks::new(),
            },
        }
    }

    /// Returns its attributes.
    #[inline]
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Returns the allowed accesses.
    #[inline]
    pub fn protection(&self) -> Protection {
        self.attributes.protection
    }

    /// Whether it grows towards lower addresses.
    pub fn grows_down(&self) -> bool {
        self.attributes.flags.grows_down
    }

    /// Returns the number of pages that point here.
    pub fn pages(&self) -> u64 {
        self.writers.pages.get()
    }

    /// Adds pages. `beside_others` says that the mapping may also have pages under another edit lock
    /// ([`crate::lock::shard`]).
    pub(crate) fn add_pages(&self, more: u64, beside_others: bool) {
        match beside_others && !mutant(Mutant::PagesCountedPlainly) {
            true => {
                self.writers.pages.fetch_add(more);
            }
            false => self.count_pages(more),
        }
    }

    /// Subtracts pages likewise. Returns whether none is left, which is true for one caller only.
    pub(crate) fn remove_pages(&self, fewer: u64, beside_others: bool) -> bool {
        if beside_others && !mutant(Mutant::PagesCountedPlainly) {
            return self.writers.pages.fetch_add(fewer.wrapping_neg()) == fewer;
        }
        self.count_pages(fewer.wrapping_neg());
        self.pages() == 0
    }

    /// Adds to the number of pages, where no other CPU does.
    fn count_pages(&self, more: u64) {
        let before = self.writers.pages.get();
        if mutant(Mutant::PagesCountedPlainly) {
            // Models switch threads here.
            AtomicU32::new(0).load(Ordering::Relaxed);
        }
        self.writers.pages.set(before.wrapping_add(more));
    }

    pub(crate) fn link(&self) -> &Local {
        &self.writers.link
    }

    pub(crate) fn links(&self) -> &ObjectLinks {
        &self.writers.store
    }

    /// Returns its lock.
    #[inline]
    pub(crate) fn vma_lock(&self) -> &VmaLock {
        &self.writers.vma_lock
    }
}
