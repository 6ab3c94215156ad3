//! One CPU's part of a compressed device: the compressor's buffers, and counts.
//!
//! The buffers are too large for a kernel's stack. Only their own CPU asks for them, so their lock is free unless
//! a thread has moved to another CPU since it asked for the CPU's number.
//!
//! *Writes*: these lines, by their own CPU.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

use faultless_paging::PAGE_SIZE;
use faultless_sync::atomic::Local;
use faultless_sync::{SpinGuard, SpinLock, Wait};
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};

use super::entry::Stored;
use super::shape::LARGEST;
use crate::device::Page;

/// What the compressor needs for its output.
const OUTPUT: usize = get_maximum_output_size(PAGE_SIZE as usize);

/// One CPU's scratch memory and counts: about 21 KiB. The compressor touches 13 KiB of it.
///
/// Every CPU has one of its own, contiguous, and so not from a frame source, which has single frames.
/// [`Scratch::default`] may need as much stack; [`Scratch::place`] needs none.
#[repr(align(128))]
pub struct Scratch {
    lock: SpinLock<()>,
    buffers: UnsafeCell<Buffers>,
    counts: [Local; Count::COUNT],
}

// SAFETY: the buffers are used under the lock.
unsafe impl Sync for Scratch {}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            lock: SpinLock::new(()),
            buffers: UnsafeCell::new(Buffers::NEW),
            counts: Default::default(),
        }
    }
}

impl Scratch {
    /// Makes a scratch memory in its final place.
    pub fn place(place: &mut MaybeUninit<Self>) -> &mut Self {
        static NEW: Buffers = Buffers::NEW;
        let at = place.as_mut_ptr();
        // SAFETY: the place is the caller's, and all fields are written. Buffers are plain bytes, of which a copy
        // is as good.
        unsafe {
            (&raw mut (*at).lock).write(SpinLock::new(()));
            (&raw mut (*at).counts).write(Default::default());
            UnsafeCell::raw_get(&raw const (*at).buffers)
                .copy_from_nonoverlapping(&raw const NEW, 1);
            place.assume_init_mut()
        }
    }

    /// Locks the buffers.
    pub(super) fn buffers<W: Wait>(&self, machine: &W) -> BuffersGuard<'_> {
        let lock = self.lock.lock(machine);
        BuffersGuard {
            // SAFETY: the lock is held as long as the reference, and this is the only one.
            buffers: unsafe { &mut *self.buffers.get() },
            _lock: lock,
        }
    }

    /// Adds to a count. Sums over all CPUs are meant: one CPU's part wraps.
    pub(super) fn add(&self, count: Count, more: usize) {
        self.counts[count as usize].add(more as u64);
    }

    pub(super) fn subtract(&self, count: Count, less: usize) {
        self.counts[count as usize].add((less as u64).wrapping_neg());
    }

    /// Counts what a slot holds now.
    pub(super) fn count(&self, stored: &Stored) {
        if let Some((pages, bytes)) = counts_of(stored) {
            self.add(pages, 1);
            self.add(Count::Bytes, bytes);
        }
    }

    /// Counts what a slot no longer holds.
    pub(super) fn uncount(&self, stored: &Stored) {
        if let Some((pages, bytes)) = counts_of(stored) {
            self.subtract(pages, 1);
            self.subtract(Count::Bytes, bytes);
        }
    }
}

fn counts_of(stored: &Stored) -> Option<(Count, usize)> {
    match stored {
        Stored::Empty => None,
        Stored::Word(_) => Some((Count::Words, 0)),
        Stored::Object { length, .. } => Some((Count::Objects, *length)),
        Stored::Plain { .. } => Some((Count::Plain, PAGE_SIZE as usize)),
    }
}

/// What is counted.
#[derive(Clone, Copy)]
pub(super) enum Count {
    Words,
    Objects,
    Plain,
    Bytes,
    Frames,
}

impl Count {
    const COUNT: usize = 5;
}

/// What a compressed device holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Pages that repeat one word, and take no memory.
    pub words: u64,
    /// Compressed pages.
    pub compressed: u64,
    /// Pages that take a frame each.
    pub plain: u64,
    /// Bytes stored, without what classes and groups leave unused.
    pub bytes: u64,
    /// Frames with stored bytes. The slots' entries are not counted.
    pub frames: u64,
}

impl Usage {
    pub(super) fn sum(cpus: &[Scratch]) -> Self {
        let sum = |count: Count| {
            let parts = cpus.iter().map(|cpu| cpu.counts[count as usize].get());
            let sum = parts.fold(0, u64::wrapping_add);
            // The parts are read one after the other, and may not fit together.
            u64::try_from(sum.cast_signed()).unwrap_or(0)
        };
        Self {
            words: sum(Count::Words),
            compressed: sum(Count::Objects),
            plain: sum(Count::Plain),
            bytes: sum(Count::Bytes),
            frames: sum(Count::Frames),
        }
    }

    /// Returns the number of pages.
    pub fn pages(&self) -> u64 {
        self.words + self.compressed + self.plain
    }
}

/// The right to use a CPU's buffers.
pub(super) struct BuffersGuard<'a> {
    buffers: &'a mut Buffers,
    _lock: SpinGuard<'a, ()>,
}

impl BuffersGuard<'_> {
    pub(super) fn get(&mut self) -> &mut Buffers {
        self.buffers
    }
}

/// The buffers.
pub(super) struct Buffers {
    table: CompressTable,
    bytes: [u8; OUTPUT],
}

impl Buffers {
    const NEW: Self = Self {
        table: CompressTable::small(),
        bytes: [0; OUTPUT],
    };

    /// Compresses a page. `None` if it does not shrink enough.
    pub(super) fn compress(&mut self, page: &Page) -> Option<&[u8]> {
        let length = compress_into_with_table(page, &mut self.bytes, &mut self.table).ok()?;
        self.bytes.get(..length).filter(|_| length <= LARGEST)
    }

    /// Returns two parts of an object as one.
    pub(super) fn join(&mut self, first: &[u8], second: &[u8]) -> &[u8] {
        let length = first.len() + second.len();
        let (to_first, to_second) = self.bytes[..length].split_at_mut(first.len());
        to_first.copy_from_slice(first);
        to_second.copy_from_slice(second);
        &self.bytes[..length]
    }
}
