//! Work on the page tables of one address space, range by range.
//!
//! * Each file is one operation on the entries of a range: take pages away, free empty tables, discard,
//!   move, freeze for fork. None changes a mapping; where an operation depends on what is mapped, it takes
//!   the [`Tree`](crate::tree::Tree).
//! * An entry is changed by its claim, or in a range that admits no new claims.
//! * No lock is held, and none is taken.
//!
//! *Writes*: entries, frames' descriptors, and lines of this CPU.

pub(crate) mod discard;
pub(crate) mod free;
pub(crate) mod freeze;
pub(crate) mod move_ptes;
pub(crate) mod moves;
pub(crate) mod pages;
pub(crate) mod retry;
pub(crate) mod rss;
pub(crate) mod taken;
pub(crate) mod txn;
pub(crate) mod zap;

use faultless_paging::{EntryFormat, Format, Frame, SpaceId};
use faultless_sync::atomic::AtomicU64;
use faultless_sync::{CpuSet, Padded};

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::table::moves::Moves;
use crate::table::rss::RssCounters;

/// The page tables of an address space, and the CPUs that may have loaded them.
pub(crate) struct Tables<M: Machine> {
    pub(crate) memory: &'static Memory<M>,
    pub(crate) root: Frame,
    /// The space's number, never used twice.
    pub(crate) id: u64,
    /// Written by a CPU that takes up or leaves the space.
    pub(crate) cpus: Padded<CpuSet>,
    pub(crate) forks: Padded<ForkState>,
    /// What is in memory: each CPU writes a line of its own.
    pub(crate) rss: RssCounters,
}

/// What a fork goes on beside.
pub(crate) struct ForkState {
    /// The page, plus 1, that a fault waits for a fork to copy ([`freeze`]).
    pub(crate) priority: AtomicU64,
    /// Pages that go to another place ([`moves`]).
    pub(crate) moves: Moves,
}

impl<M: Machine> Tables<M> {
    pub(crate) const FORMAT: Format = M::Format::FORMAT;

    /// Empty tables under a root of the caller's.
    pub(crate) fn new(memory: &'static Memory<M>, root: Frame, rss: RssCounters) -> Self {
        Self {
            memory,
            root,
            id: memory.new_id(),
            cpus: Padded(CpuSet::new()),
            forks: Padded(ForkState {
                priority: AtomicU64::new(0),
                moves: Moves::new(),
            }),
            rss,
        }
    }

    #[inline]
    pub(crate) fn machine(&self) -> &'static M {
        self.memory.machine()
    }

    /// Names the space to the machine's TLBs; holds the root table.
    pub(crate) fn space_id(&self) -> SpaceId {
        SpaceId {
            root: self.root,
            id: self.id,
        }
    }
}
