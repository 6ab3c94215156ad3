//! How many pages an address space has in memory, by kind, and how many page tables.
//!
//! Each CPU counts in a line of its own what it brings into a space and what it takes away. A CPU may take away what
//! another one has brought: a line means nothing by itself, and its words wrap. Their sum is what there is.
//!
//! Invariants:
//!
//! * The sum is exact while no operation is at work on the space (the verifier walks the tables and compares). An
//!   entry is counted after it is published, and counted away after it is taken: in between the sum is off by what
//!   is under way.
//! * The shared zero page and pages of devices are not counted, nor is the root table.
//! * The *peak* is the most pages that there were at once. It is noted before pages are counted away, but for the
//!   last [`counters::SLACK`] of each CPU, and whenever it is read.
//!
//! The lines lie behind the space's body in its frame, if there is room for all CPUs, else in frames of their own.
//!
//! *Writes:* this CPU's line of the space; [`RssCounters::forget_peak`] every CPU's.

mod counters;

pub(crate) use counters::RssCounters;

use faultless_frames::{Descriptor, Flags};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum RssKind {
    /// Pages of anonymous memory.
    Anonymous,
    /// Pages of files.
    File,
    /// Pages of memory that is shared and has no file.
    SharedMemory,
    /// Pages that were written out: nothing does so yet.
    #[expect(dead_code, reason = "the slot of a later kind")]
    Swap,
    /// Page tables.
    Table,
}

/// Kinds of [`RssKind`].
const KINDS: usize = RssKind::Table as usize + 1;

impl RssKind {
    /// Those that are pages in memory.
    const RESIDENT: [RssKind; 3] = [Self::Anonymous, Self::File, Self::SharedMemory];

    /// What a mapped page is, which has this descriptor.
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

/// A number of each kind: what one batch brings or takes away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RssDelta([u64; KINDS]);

impl RssDelta {
    /// One more, if it is counted.
    #[inline]
    pub(crate) fn add(&mut self, kind: Option<RssKind>) {
        if let Some(kind) = kind {
            self.0[kind as usize] += 1;
        }
    }

    /// One more page of anonymous memory.
    #[inline]
    pub(crate) fn add_anonymous(&mut self) {
        self.0[RssKind::Anonymous as usize] += 1;
    }

    /// How many of a kind.
    pub(crate) fn get(&self, kind: RssKind) -> u64 {
        self.0[kind as usize]
    }

    /// All pages in memory.
    #[inline]
    pub(crate) fn resident(&self) -> u64 {
        let each = RssKind::RESIDENT.map(|kind| self.get(kind));
        each.into_iter().fold(0, u64::wrapping_add)
    }
}
