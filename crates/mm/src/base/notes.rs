//! Per-space flags: what is true of few address spaces, in one word, so that the rest skip the work for it.
//!
//! *Writes*: the word, the first time that a flag is set.

use faultless_sync::Padded;
use faultless_sync::atomic::{AtomicU32, Ordering};

/// Flags of an address space.
#[derive(Clone, Copy)]
pub(crate) struct Note(u32);

impl Note {
    /// It may have lazily freed pages.
    pub(crate) const LAZYFREE: Note = Note(1);
    /// It has sealed mappings.
    pub(crate) const SEALED: Note = Note(2);
    /// It has, or had, mappings of memory objects.
    pub(crate) const OBJECTS: Note = Note(4);
    /// It may have guards in mappings of memory objects.
    pub(crate) const GUARDED_OBJECTS: Note = Note(8);
    /// It has, or had, mappings of which the pages may be dropped (`MAP_DROPPABLE`).
    pub(crate) const DROPPABLE: Note = Note(1 << 9);
    /// Writers outside of shards often contend for the same place.
    pub(crate) const CONTENDED: Note = Note(1 << 14);
    /// Why no unmap is brief: seals, and shards that are to be made first.
    pub(crate) const NOT_AT_ONCE: Note = Note(Self::SEALED.0 | Self::CONTENDED.0);
    /// Under `classic` the mmap lock is held for writing until pages are gone.
    pub(crate) const HELD_ZAPS: Note = Note(1 << 10);
    /// No more shards can be made.
    pub(crate) const SPREAD: Note = Note(1 << 13);
    /// It has, or had, mappings that are registered with a userfaultfd.
    pub(crate) const USERFAULT: Note = Note(1 << 15);
    /// It has, had, or will have locked mappings.
    pub(crate) const LOCKED: Note = Note(1 << 12);
    /// It may have pages, shared since a fork, at other addresses than at the fork.
    pub(crate) const MOVED: Note = Note(1 << 8);
}

/// The flags that are set for an address space.
pub(crate) struct Notes(Padded<AtomicU32>);

impl Notes {
    /// No flags.
    pub(crate) fn new() -> Self {
        Self(Padded(AtomicU32::new(0)))
    }

    /// Sets a flag.
    pub(crate) fn set(&self, note: Note) {
        if !self.has(note) {
            self.0.fetch_or(note.0, Ordering::Relaxed);
        }
    }

    /// Whether any of these flags is set.
    #[inline]
    pub(crate) fn has(&self, note: Note) -> bool {
        self.0.load(Ordering::Relaxed) & note.0 != 0
    }

    /// Clears a flag. Whether it was set.
    pub(crate) fn take(&self, note: Note) -> bool {
        self.has(note) && self.0.fetch_and(!note.0, Ordering::Relaxed) & note.0 != 0
    }

    /// Copies the flags of another space, of which this one is a copy.
    pub(crate) fn copy_from(&self, other: &Self) {
        // The copy has no shards, and nothing locked.
        let not = Note::SPREAD.0 | Note::LOCKED.0 | Note::CONTENDED.0;
        let notes = other.0.load(Ordering::Relaxed) & !not;
        self.0.store(notes, Ordering::Relaxed);
    }
}
