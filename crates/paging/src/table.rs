//! A page table: a frame full of entries.
//!
//! The geometry is small in models, so that loom and shuttle can explore the
//! real code: two entries and two levels, or four and three.

use core::ptr::NonNull;

use faultless_sync::atomic::{Ordering, fence};

use crate::address::Frame;
use crate::entry::Entry;
use crate::memory::PhysicalMemory;

/// Page-number bits that one table decodes.
pub const BITS: u32 = if cfg!(loom) {
    1
} else if cfg!(shuttle) {
    2
} else {
    9
};

/// The number of entries of a table.
pub const ENTRIES: usize = 1 << BITS;

/// Levels of tables. Level 0 holds pages; the root is at level `LEVELS - 1`.
pub const LEVELS: usize = if cfg!(loom) {
    2
} else if cfg!(shuttle) {
    3
} else {
    4
};

/// A page table.
#[repr(C)]
pub struct Table([Entry; ENTRIES]);

impl Table {
    /// Returns the entry that decodes `page` at `level`.
    #[inline]
    pub fn entry(&self, page: u64, level: usize) -> &Entry {
        &self.0[index(page, level)]
    }

    /// Returns all entries.
    pub fn entries(&self) -> &[Entry; ENTRIES] {
        &self.0
    }

    /// Returns the index of the first non-empty entry in `from..end`. Skips empty cache lines as a whole.
    ///
    /// Acquire, as by [`Entry::load`] of each entry: whatever emptied one has happened before. Where lines were skipped, by
    /// one fence.
    #[inline]
    pub fn next_used(&self, from: usize, end: usize) -> Option<usize> {
        const LINE: usize = if cfg!(shuttle) { 4 } else { 8 };
        let mut at = from;
        let mut has_skipped = false;
        let found = loop {
            if at >= end {
                break None;
            }
            if at.is_multiple_of(LINE) && at + LINE <= end {
                let line = self.0[at..at + LINE].iter();
                if line.fold(0, |all, entry| all | entry.load_relaxed()) == 0 {
                    has_skipped = true;
                    at += LINE;
                    continue;
                }
            }
            if self.0[at].load() != 0 {
                break Some(at);
            }
            at += 1;
        };
        if has_skipped {
            fence(Ordering::Acquire);
        }
        found
    }

    /// Makes a zeroed frame a table. With the CPU's own atomics there is nothing to do, because zero is an
    /// empty entry; models need their atomics constructed.
    ///
    /// # Safety
    /// Only the caller uses the frame, and it is zeroed.
    pub unsafe fn prepare<P: PhysicalMemory + ?Sized>(memory: &P, frame: Frame) {
        if cfg!(any(loom, shuttle)) {
            let table: NonNull<Entry> = memory.pointer(frame).cast();
            for i in 0..ENTRIES {
                // SAFETY: the frame is the caller's and holds ENTRIES entries.
                unsafe { table.add(i).write(Entry::new()) };
            }
        }
    }

    /// Returns the table in a frame.
    ///
    /// # Safety
    /// The frame is a table, and stays one for `'a`: the caller is in a read section that it entered before
    /// it found the frame, or keeps the table from being freed in another way.
    #[inline]
    pub unsafe fn at<'a, P: PhysicalMemory + ?Sized>(memory: &P, frame: Frame) -> &'a Table {
        // SAFETY: by the caller's promise; entries are atomics, so shared access is all there is.
        unsafe { memory.pointer(frame).cast::<Table>().as_ref() }
    }
}

/// Returns the index of the entry that decodes `page` in a table at `level`.
#[inline]
pub fn index(page: u64, level: usize) -> usize {
    (page >> (BITS as usize * level)) as usize % ENTRIES
}

/// Returns the number of pages that one entry at `level` spans.
#[inline]
pub const fn span(level: usize) -> u64 {
    1 << (BITS as usize * level)
}
