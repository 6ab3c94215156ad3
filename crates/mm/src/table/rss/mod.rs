//! The number of pages that an address space has in memory, by kind, and of its page tables.
//!
//! Each CPU counts in a line of its own the pages that it adds to a space or removes from it. A CPU may
//! remove a page that another CPU has added. A line therefore means nothing by itself, and its counts wrap;
//! their sum is the total.
//!
//! Invariants:
//!
//! * The sum is exact while no operation is in progress on the space (the verifier walks the tables and
//!   compares). An entry is counted after it is published, and counted away after it is taken out. In
//!   between, the sum is off by the operations in progress.
//! * The shared zero page and pages of devices are not counted, nor is the root table.
//! * The *peak* is the most pages that there were at one time. It is recorded before pages are counted away,
//!   but for the last [`counters::SLACK`] of each CPU, and whenever it is read.
//!
//! The lines lie behind the space's body in its frame, if there is room for all CPUs, else in frames of their
//! own.
//!
//! *Writes*: this CPU's line of the space; [`RssCounters::forget_peak`] writes the line of every CPU.

mod counters;

pub(crate) use counters::RssCounters;

use faultless_frames::{Descriptor, Flags};

/// The kinds of pages that are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum RssKind {
    /// Pages of anonymous memory.
    Anonymous,
    /// Pages of files.
    File,
    /// Pages of shared memory without a file.
    SharedMemory,
    /// Entries of pages that were swapped out.
    Swap,
    /// Page tables.
    Table,
}

/// The number of kinds of [`RssKind`].
const KINDS: usize = RssKind::Table as usize + 1;

impl RssKind {
    /// The kinds that are pages in memory.
    const RESIDENT: [RssKind; 3] = [Self::Anonymous, Self::File, Self::SharedMemory];

    /// Returns the kind of the mapped page with this descriptor.
    #[inline]
    pub(crate) fn of(page: &Descriptor) -> Self {
        let flags = page.flags();
        if !flags.has(Flags::FILE) {
            Self::Anonymous
        } else if flags.has(Flags::SHARED_MEMORY) {
            Self::SharedMemory
        } else {
            Self::File
        }
    }
}

/// A number for each kind: the pages that one batch adds or removes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RssDelta([u64; KINDS]);

impl RssDelta {
    /// Adds one, if the kind is counted.
    #[inline]
    pub(crate) fn add(&mut self, kind: Option<RssKind>) {
        if let Some(kind) = kind {
            self.0[kind as usize] += 1;
        }
    }

    /// Adds several of a kind.
    pub(crate) fn add_many(&mut self, kind: RssKind, count: u64) {
        self.0[kind as usize] += count;
    }

    /// Adds all of another batch.
    pub(crate) fn join(&mut self, other: &RssDelta) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count += more;
        }
    }

    /// Adds one page of anonymous memory.
    #[inline]
    pub(crate) fn add_anonymous(&mut self) {
        self.0[RssKind::Anonymous as usize] += 1;
    }

    /// Returns the number of a kind.
    pub(crate) fn get(&self, kind: RssKind) -> u64 {
        self.0[kind as usize]
    }

    /// Returns the number of all pages in memory.
    #[inline]
    pub(crate) fn resident(&self) -> u64 {
        let each = RssKind::RESIDENT.map(|kind| self.get(kind));
        each.into_iter().fold(0, u64::wrapping_add)
    }
}
