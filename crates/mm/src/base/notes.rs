//! What is true of few address spaces, in one word, so that the others need not look further.
//!
//! *Writes*: the word, the first time that something is noted.

use faultless_sync::Padded;
use faultless_sync::atomic::{AtomicU32, Ordering};

/// Something that is true of few address spaces, noted so that the others need not look.
#[derive(Clone, Copy)]
pub(crate) struct Note(u32);

impl Note {
    /// It may have pages that were let go of.
    pub(crate) const LET_GO: Note = Note(1);
    /// It has sealed mappings.
    pub(crate) const SEALED: Note = Note(2);
    /// It has, or had, mappings of stores.
    pub(crate) const STORES: Note = Note(4);
    /// It may have guards in mappings of stores.
    pub(crate) const GUARDED_STORES: Note = Note(8);
    /// It has, or had, mappings whose pages may be taken away.
    pub(crate) const DROPPABLE: Note = Note(1 << 9);
    /// Writers outside of arenas often get into each other's way at the same places.
    pub(crate) const CROWDED: Note = Note(1 << 14);
    /// Why nothing is unmapped at once: seals, and arenas that are to be made first.
    pub(crate) const NOT_AT_ONCE: Note = Note(Self::SEALED.0 | Self::CROWDED.0);
    /// Under `classic` the mmap lock is held for writing until pages are gone.
    pub(crate) const HELD_ZAPS: Note = Note(1 << 10);
    /// There are as many arenas as there could be made.
    pub(crate) const SPREAD: Note = Note(1 << 13);
    /// It has, or had, or will have mappings that are locked.
    pub(crate) const LOCKED: Note = Note(1 << 12);
    /// It may have pages, shared since a fork, elsewhere than where they were then.
    pub(crate) const MOVED: Note = Note(1 << 8);
}

/// What has been noted of an address space.
pub(crate) struct Notes(Padded<AtomicU32>);

impl Notes {
    /// Nothing.
    pub(crate) fn new() -> Self {
        Self(Padded(AtomicU32::new(0)))
    }

    /// Notes something.
    pub(crate) fn set(&self, note: Note) {
        if !self.has(note) {
            self.0.fetch_or(note.0, Ordering::Relaxed);
        }
    }

    /// Whether any of it was noted.
    #[inline]
    pub(crate) fn has(&self, note: Note) -> bool {
        self.0.load(Ordering::Relaxed) & note.0 != 0
    }

    /// Whether something was noted; it no longer is.
    pub(crate) fn take(&self, note: Note) -> bool {
        self.has(note) && self.0.fetch_and(!note.0, Ordering::Relaxed) & note.0 != 0
    }

    /// Notes what was noted of another space, whose copy this one is.
    pub(crate) fn copy_from(&self, other: &Self) {
        // The copy has no shards, and nothing locked.
        let not = Note::SPREAD.0 | Note::LOCKED.0 | Note::CROWDED.0;
        let notes = other.0.load(Ordering::Relaxed) & !not;
        self.0.store(notes, Ordering::Relaxed);
    }
}
