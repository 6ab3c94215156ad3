//! What backs the pages of a regular file, for the memory core: the archive's bytes, the number of pages, and
//! its limit.
//!
//! The tag of a file's memory object refers to its [`Source`], until the object is freed. A mapping keeps
//! both alive after the last name and the last descriptor of the file are gone. So a call that begins at a
//! mapping finds here what it needs: the lock on the size (`turn`), the seals, and the name.
//!
//! Files of the tree may take half of memory, which is the default of Linux's tmpfs. Beyond that, a write
//! fails with `ENOSPC` and a touch of a hole is SIGBUS, and programs still find frames. Files made by
//! `memfd_create` are not limited. Pages that replace the archive's are not counted.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use faultless_mm::Pager;
use faultless_paging::{Frame, PhysicalMemory};

use super::content::PAGE;
use super::directory::copy_name;
use super::node::Node;
use super::origin::Origin;
use super::turn::Turn;
use crate::errno::{ENOSPC, EPERM, Errno};
use crate::memory::machine::{self, Kernel};
use crate::shared::Shared;
use crate::sync::SpinLock;

/// Seals: what must not be done to a file any more (`F_SEAL_*`).
pub mod seal {
    pub const SEAL: u32 = 1;
    pub const SHRINK: u32 = 2;
    pub const GROW: u32 = 4;
    pub const WRITE: u32 = 8;
    pub const FUTURE_WRITE: u32 = 16;
    pub const EXECUTE: u32 = 32;
    pub const ALL: u32 = 63;
    /// Seals against writes and new writable mappings.
    pub const NO_WRITES: u32 = WRITE | FUTURE_WRITE;
}

/// The kind of a file.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A file of the tree, which cannot be sealed.
    Tree,
    /// Memory with a descriptor.
    Memory,
}

/// Pages of the tree's files, and of memory with descriptors.
static USED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
/// Sources that exist.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// The most pages that the tree's files may have together.
pub fn limit() -> u64 {
    machine::sizes().0 / PAGE / 2
}

/// Pages of all files of a kind.
pub fn used(kind: Kind) -> u64 {
    USED[kind as usize].load(Ordering::Relaxed)
}

/// Files that exist, including those that only a mapping reaches.
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// What backs a file's pages.
pub struct Source {
    /// The inode's number.
    pub number: u64,
    kind: Kind,
    archive: &'static [u8],
    /// Length of the archive's bytes that no truncation has cut off.
    bound: AtomicU64,
    pages: AtomicU64,
    /// Held by a call that writes, changes the size or punches holes.
    pub turn: Turn,
    /// Changed under the `turn`.
    seals: AtomicU32,
    /// Where the mapped file was found.
    origin: SpinLock<Option<Shared<Origin>>>,
    /// The moment at which the verifier last saw it.
    seen: AtomicU64,
}

impl Source {
    pub fn new(number: u64, kind: Kind, archive: &'static [u8]) -> Self {
        COUNT.fetch_add(1, Ordering::Relaxed);
        Self {
            number,
            kind,
            archive,
            bound: AtomicU64::new(archive.len() as u64),
            pages: AtomicU64::new(0),
            turn: Turn::new(),
            seals: AtomicU32::new(seal::SEAL),
            origin: SpinLock::new(None),
            seen: AtomicU64::new(0),
        }
    }

    /// The kind of the file.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The archive's bytes from a position on.
    pub fn archived(&self, position: u64) -> &'static [u8] {
        let bound = self.bound.load(Ordering::Acquire) as usize;
        let position = usize::try_from(position).unwrap_or(usize::MAX);
        self.archive[..bound].get(position..).unwrap_or_default()
    }

    /// How many of the archive's bytes are still the file's.
    pub fn bound(&self) -> u64 {
        self.bound.load(Ordering::Acquire)
    }

    /// Drops the archive's bytes from a position on. The caller removes the pages afterwards.
    pub fn forget(&self, position: u64) {
        self.bound.fetch_min(position, Ordering::SeqCst);
        // Partner: the fence in `fill`. Either `fill` sees the new bound, or the caller, which then removes
        // the pages, sees the page that is being filled.
        fence(Ordering::SeqCst);
    }

    /// The counter of a page. A page that replaces the archive's has none: the archive's size bounds their
    /// number, and programs can be loaded even when files have reached their limit.
    fn counter(&self, index: u64) -> Option<&'static AtomicU64> {
        let archived = (self.archive.len() as u64).div_ceil(PAGE);
        (index >= archived).then(|| &USED[self.kind as usize])
    }

    /// Pages in memory.
    pub fn pages(&self) -> u64 {
        self.pages.load(Ordering::Relaxed)
    }

    /// The seals.
    pub fn seals(&self) -> u32 {
        self.seals.load(Ordering::Acquire)
    }

    /// Sets the seals. The caller holds the `turn`, or made the file.
    pub fn set_seals(&self, seals: u32) {
        self.seals.store(seals, Ordering::Release);
    }

    /// Checks that it has none of these seals.
    ///
    /// # Errors
    /// `EPERM`.
    pub fn check(&self, seals: u32) -> Result<(), Errno> {
        match self.seals() & seals {
            0 => Ok(()),
            _ => Err(EPERM),
        }
    }

    /// The most pages it can have, whatever other files have.
    pub fn most(&self) -> u64 {
        match self.kind {
            Kind::Tree => limit(),
            Kind::Memory => 2 * limit(),
        }
    }

    /// Records where the file was found, when it is mapped. A link to an open file is no such place.
    pub fn set_origin(&self, origin: &Shared<Origin>) {
        if let Origin::Named(directory, _) = &**origin
            && !matches!(directory, Node::Memory(_))
        {
            return;
        }
        let old = {
            let mut place = self.origin.lock();
            if place.as_ref().is_some_and(|old| old.is(origin)) {
                return;
            }
            place.replace(origin.clone())
        };
        drop(old);
    }

    /// Where it was found when it was last mapped.
    pub fn origin(&self) -> Option<Shared<Origin>> {
        self.origin.lock().clone()
    }

    /// Changes the name after a rename. If memory is short, it keeps the old one.
    pub fn rename(&self, (from, old): (&Node, &[u8]), (to, new): (&Node, &[u8])) {
        let had = self.origin();
        let Some(Origin::Named(directory, name)) = had.as_deref() else {
            return;
        };
        if directory.is(from)
            && name == old
            && let Ok(name) = copy_name(new)
            && let Ok(origin) = Shared::new(Origin::Named(to.clone(), name))
        {
            self.set_origin(&origin);
        }
    }

    /// Whether the verifier sees it for the first time at this moment.
    pub fn is_new(&self, moment: u64) -> bool {
        self.seen.swap(moment, Ordering::Relaxed) != moment
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The kernel as the pager of the core's memory objects. A tag is a reference to a [`Source`], made by
/// [`tag`], or 0 for memory that is only shared.
pub struct Files;

/// Makes a tag that holds a source until its object is freed.
pub fn tag(source: &Shared<Source>) -> u64 {
    Shared::into_raw(source.clone()) as u64
}

/// Returns the source of an object that the caller holds.
///
/// # Safety
/// The tag is that of an object that lives as long as the result.
pub unsafe fn of<'a>(tag: u64) -> &'a Source {
    // SAFETY: The tag is a reference until the object is freed.
    unsafe { Shared::borrow_raw(tag as *const ()) }
}

impl Pager for Files {
    fn has(&self, tag: u64, index: u64) -> bool {
        // SAFETY: The core asks about objects that it holds.
        let source = unsafe { of(tag) };
        index.saturating_mul(PAGE) < source.bound()
    }

    fn fill(&self, tag: u64, index: u64, frame: Frame) -> Result<(), Errno> {
        // Partner: the fence in `forget`; the slot was marked before.
        fence(Ordering::SeqCst);
        // SAFETY: As above.
        let from = unsafe { of(tag) }.archived(index.saturating_mul(PAGE));
        let length = from.len().min(PAGE as usize);
        let to = Kernel.pointer(frame).as_ptr();
        // SAFETY: The frame is the caller's, and as large as a page.
        unsafe {
            to.copy_from_nonoverlapping(from.as_ptr(), length);
            to.add(length).write_bytes(0, PAGE as usize - length);
        }
        Ok(())
    }

    /// An archive is in memory.
    fn is_io(&self) -> bool {
        false
    }

    fn is_shared_memory(&self, tag: u64) -> bool {
        // SAFETY: As above.
        unsafe { of(tag) }.kind == Kind::Memory
    }

    fn charge(&self, tag: u64, index: u64) -> Result<(), Errno> {
        // SAFETY: As above.
        let source = unsafe { of(tag) };
        if let Some(used) = source.counter(index) {
            let before = used.fetch_add(1, Ordering::Relaxed);
            if source.kind == Kind::Tree && before >= limit() {
                used.fetch_sub(1, Ordering::Relaxed);
                return Err(ENOSPC);
            }
        }
        source.pages.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn uncharge(&self, tag: u64, index: u64) {
        // SAFETY: As above.
        let source = unsafe { of(tag) };
        if let Some(used) = source.counter(index) {
            used.fetch_sub(1, Ordering::Relaxed);
        }
        source.pages.fetch_sub(1, Ordering::Relaxed);
    }

    fn gone(&self, tag: u64) {
        // SAFETY: Made by `tag`, and the last use of it.
        drop(unsafe { Shared::<Source>::from_raw(tag as *const ()) });
    }
}
