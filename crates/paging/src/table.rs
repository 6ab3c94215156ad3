//! A page table: a frame full of entries.
//!
//! The geometry is small in models, so that loom and shuttle can explore the
//! real code: two entries and two levels, or four and three.

use core::ptr::NonNull;

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

/// Entries of a table.
pub const ENTRIES: usize = 1 << BITS;

/// Levels of tables. Level 0 holds pages; the root is at level `LEVELS - 1`.
pub const LEVELS: usize = if cfg!(loom) {
    2
} else if cfg!(shuttle) {
    3
} else {
    4
};

/// A table.
#[repr(C)]
pub struct Table([Entry; ENTRIES]);

impl Table {
    /// The entry that decodes `page` at `level`.
    #[inline]
    pub fn entry(&self, page: u64, level: usize) -> &Entry {
        &self.0[index(page, level)]
    }

    /// All entries.
    pub fn entries(&self) -> &[Entry; ENTRIES] {
        &self.0
    }

    /// The first entry from `from` on that is not empty, if there is one before
    /// `end`. Whole lines that are empty are passed over at once.
    #[inline]
    pub fn next_used(&self, from: usize, end: usize) -> Option<usize> {
        const LINE: usize = if cfg!(shuttle) { 4 } else { 8 };
        let mut at = from;
        while at < end {
            if at.is_multiple_of(LINE) && at + LINE <= end {
                let line = self.0[at..at + LINE].iter();
                if line.fold(0, |all, entry| all | entry.load()) == 0 {
                    at += LINE;
                    continue;
                }
            }
            if self.0[at].load() != 0 {
                return Some(at);
            }
            at += 1;
        }
        None
    }

    /// Makes a zeroed frame a table. Nothing to do on the CPU's own atomics,
    /// whose zero is an empty entry; models need their atomics constructed.
    ///
    /// # Safety
    /// The caller alone uses the frame, and it is zeroed.
    pub unsafe fn prepare<P: PhysicalMemory + ?Sized>(memory: &P, frame: Frame) {
        if cfg!(any(loom, shuttle)) {
            let table: NonNull<Entry> = memory.pointer(frame).cast();
            for i in 0..ENTRIES {
                // SAFETY: the frame is the caller's and holds ENTRIES entries.
                unsafe { table.add(i).write(Entry::new()) };
            }
        }
    }

    /// The table in a frame.
    ///
    /// # Safety
    /// The frame is a table, and stays one for `'a`: the caller is in a read
    /// section it entered before it found the frame, or keeps the table from
    /// being freed in another way.
    #[inline]
    pub unsafe fn at<'a, P: PhysicalMemory + ?Sized>(memory: &P, frame: Frame) -> &'a Table {
        // SAFETY: by the caller's promise; entries are atomics, so shared access is all there is.
        unsafe { memory.pointer(frame).cast::<Table>().as_ref() }
    }
}

/// Which entry of a table at `level` decodes `page`.
#[inline]
pub fn index(page: u64, level: usize) -> usize {
    (page >> (BITS as usize * level)) as usize % ENTRIES
}

/// How many pages one entry at `level` spans.
#[inline]
pub const fn span(level: usize) -> u64 {
    1 << (BITS as usize * level)
}
