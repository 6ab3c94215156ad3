//! A mapping: what is true of all pages whose slots point to it.
//!
//! Immutable but for two things on a second cache line. `pages` counts the
//! pages that point here; writers alone touch it, under an edit lock, and the
//! mapping is retired when it falls to 0. The *VMA lock* belongs to the policy
//! `vma-lock` alone (`vma_lock.rs`).

use core::ptr::NonNull;

use faultless_paging::Protection;
use faultless_sync::atomic::{AtomicU32, Local, Ordering};
use faultless_sync::{Mutant, mutant};

use crate::base::list::Hook;
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
    /// A child does not get it (`MADV_DONTFORK`).
    pub dont_fork: bool,
    /// A child finds it empty (`MADV_WIPEONFORK`).
    pub wipe_on_fork: bool,
    /// Not part of a core dump (`MADV_DONTDUMP`).
    pub dont_dump: bool,
    /// What is written is seen by all who map the same store (`MAP_SHARED`).
    pub shared: bool,
    /// May never allow writing: shared, and the file was not opened for it.
    pub never_written: bool,
    /// It was asked for with `MAP_SYNC`. Nothing comes of it: no store is memory that keeps what
    /// is written to it.
    pub sync: bool,
    /// Its pages may be taken away at any time, and are zero then (`MAP_DROPPABLE`).
    pub droppable: bool,
    /// Whether huge pages are wanted (`MADV_HUGEPAGE`; not: `MADV_NOHUGEPAGE`, `MAP_STACK`).
    pub huge: Huge,
    /// Its pages are a device's ([`crate::Device`]): nobody counts them, and nobody moves, copies or
    /// gives them back (Linux: `VM_PFNMAP`, `VM_IO`, `VM_DONTEXPAND`).
    pub device: bool,
    /// Equal pages may become one (`MADV_MERGEABLE`).
    pub mergeable: bool,
    /// What it is stays as it is (`mseal`).
    pub sealed: bool,
    /// Whether its pages stay in memory (`mlock`).
    pub locked: Locked,
}

/// What a program says about huge pages in a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Huge {
    /// It has not said anything.
    #[default]
    Unsaid,
    /// It wants them.
    Wanted,
    /// It wants none.
    Unwanted,
}

/// Whether a mapping's pages stay in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Locked {
    /// They need not.
    #[default]
    No,
    /// They do, and are there from the start.
    Yes,
    /// They do once they were touched (`MLOCK_ONFAULT`).
    OnFault,
}

/// How a program says that it will read a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reading {
    /// It has not said.
    #[default]
    Normal,
    /// At random.
    Random,
    /// In order.
    Sequential,
}

impl Flags {
    /// None of them.
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

/// A memory object, to which a mapping leads without knowing what it is (`crate::object`).
#[derive(Debug)]
pub struct AnyObject(());

/// A mapping's place in the list of its object. Read and written under the list's lock.
#[repr(C)]
pub(crate) struct ObjectLinks {
    pub(crate) hook: Hook,
    /// The address space's address; 0 of a cursor, and of a mapping that is in no list.
    pub(crate) space: Local,
    /// The index that page 0 of the space would have.
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

/// A mapping's place in a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectRef {
    object: NonNull<AnyObject>,
    /// The index that page 0 of the address space would have; wraps.
    pub(crate) first: u64,
    /// The port's name for what was opened: mappings that differ in it do not merge.
    pub(crate) file: u64,
}

// SAFETY: whoever has one from a mapping holds the store by that.
unsafe impl Send for ObjectRef {}
// SAFETY: as above.
unsafe impl Sync for ObjectRef {}

impl ObjectRef {
    /// The object at `object`, whose page `first` would be at page 0 of the address space.
    pub(crate) fn at(object: NonNull<AnyObject>, first: u64, file: u64) -> Self {
        Self {
            object,
            first,
            file,
        }
    }

    /// The object, whose type the room above knows (`crate::object`).
    #[inline]
    pub(crate) fn pointer(&self) -> NonNull<AnyObject> {
        self.object
    }

    /// Which page of the store a page shows.
    #[inline]
    pub(crate) fn index(&self, page: u64) -> u64 {
        page.wrapping_add(self.first)
    }

    /// The same store from `page` on what it was from `from` on.
    pub(crate) fn moved(self, from: u64, page: u64) -> Self {
        Self {
            first: self.first.wrapping_add(from).wrapping_sub(page),
            ..self
        }
    }

    /// The same of an object that may be gone.
    pub(crate) fn leads_to<T>(&self, object: *const T, first: u64) -> bool {
        self.object.as_ptr().cast_const().cast() == object && self.first == first
    }

    /// Whether it is this place in this store.
    pub(crate) fn is(&self, object: NonNull<AnyObject>, first: u64) -> bool {
        self.object == object && self.first == first
    }
}

/// When a mapping was made: after how many clearings of its space's soft-dirty bits
/// (`crate::space::soft_dirty`). Nothing that a program can ask of the mapping itself depends on it:
/// neighbours that differ in nothing else are one mapping, as on Linux.
#[derive(Clone, Copy, Debug, Default)]
pub struct SoftDirtyEpoch(pub(crate) u64);

impl PartialEq for SoftDirtyEpoch {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for SoftDirtyEpoch {}

/// What is true of a page's mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Which accesses are allowed.
    pub protection: Protection,
    /// The rest.
    pub flags: Flags,
    /// Where its pages come from, unless it is anonymous and private.
    pub backed: Option<ObjectRef>,
    /// When it was made.
    pub birth: SoftDirtyEpoch,
}

impl Attributes {
    /// Whether what is written goes to the store, if writing is or can be allowed.
    pub(crate) fn writes_store(&self) -> bool {
        self.flags.shared && !self.flags.never_written
    }

    /// The same, of pages that are moved from `from` to `page`.
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

/// What is written after a mapping was made.
#[repr(C, align(64))]
struct WriterLine {
    pages: Local,
    /// The link of reclamation.
    link: Local,
    /// Who holds the mapping, or has locked it.
    vma_lock: VmaLock,
    /// Its place in the list of its store.
    store: ObjectLinks,
}
const _: () = assert!(cfg!(any(loom, shuttle)) || size_of::<Mapping>() == 128);

impl Mapping {
    /// Where the link of reclamation lies.
    pub(crate) const LINK: usize =
        core::mem::offset_of!(Mapping, writers) + core::mem::offset_of!(WriterLine, link);

    /// A mapping to which no page points yet.
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

    /// Its attributes.
    #[inline]
    pub fn attributes(&self) -> &Attributes {
        &self.attributes
    }

    /// Which accesses are allowed.
    #[inline]
    pub fn protection(&self) -> Protection {
        self.attributes.protection
    }

    /// Whether it grows towards lower addresses.
    pub fn grows_down(&self) -> bool {
        self.attributes.flags.grows_down
    }

    /// Pages that point here.
    pub fn pages(&self) -> u64 {
        self.writers.pages.get()
    }

    /// Adds pages; `beside_others`: where the mapping may have pages under another edit lock, too
    /// ([`crate::lock::shard`]).
    pub(crate) fn add_pages(&self, more: u64, beside_others: bool) {
        match beside_others && !mutant(Mutant::PagesCountedPlainly) {
            true => {
                self.writers.pages.fetch_add(more);
            }
            false => self.count_pages(more),
        }
    }

    /// Takes pages away likewise; whether none is left, which one caller alone is told.
    pub(crate) fn remove_pages(&self, fewer: u64, beside_others: bool) -> bool {
        if beside_others && !mutant(Mutant::PagesCountedPlainly) {
            return self.writers.pages.fetch_add(fewer.wrapping_neg()) == fewer;
        }
        self.count_pages(fewer.wrapping_neg());
        self.pages() == 0
    }

    /// Adds to the number of pages, where nobody else does.
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

    /// Its lock.
    #[inline]
    pub(crate) fn vma_lock(&self) -> &VmaLock {
        &self.writers.vma_lock
    }
}
