//! Work on the page tables of one address space, range by range.
//!
//! * Each file is one operation on the entries of a range: zap pages, free empty tables, discard, move,
//!   freeze for fork. None changes a mapping. An operation that depends on what is mapped takes the
//!   [`Tree`](crate::tree::Tree).
//! * An entry is changed under its claim, or in a range that admits no new claims.
//! * No lock of the space is needed, and only [`moves`] takes one, a spin lock. [`taken`] runs under the
//!   caller's edit lock.
//!
//! *Writes*: entries, frames' descriptors, and lines of this CPU.

pub(crate) mod age;
pub(crate) mod collapse;
pub(crate) mod discard;
pub(crate) mod free;
pub(crate) mod freeze;
pub(crate) mod guests;
pub(crate) mod huge;
pub(crate) mod huge_share;
pub(crate) mod move_ptes;
pub(crate) mod moves;
pub(crate) mod pages;
pub(crate) mod retry;
pub(crate) mod rss;
mod swap;
pub(crate) mod taken;
pub(crate) mod txn;
pub(crate) mod vacated;
pub(crate) mod zap;

use faultless_paging::{EntryFormat, Format, Frame, SpaceId};
use faultless_sync::atomic::AtomicU64;
use faultless_sync::{CpuSet, Padded};

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::table::guests::Guests;
use crate::table::moves::Moves;
use crate::table::rss::RssCounters;

/// The page tables of an address space, and the CPUs that may have loaded them.
pub(crate) struct Tables<M: Machine> {
    pub(crate) memory: &'static Memory<M>,
    pub(crate) root: Frame,
    /// The space's number, never reused.
    pub(crate) id: u64,
    /// Seldom written.
    pub(crate) guests: Guests,
    /// Written by a CPU that takes up or leaves the space.
    pub(crate) cpus: Padded<CpuSet>,
    pub(crate) forks: Padded<ForkState>,
    /// Counts of pages in memory: each CPU writes a line of its own.
    pub(crate) rss: RssCounters,
}

/// What runs beside a fork.
pub(crate) struct ForkState {
    /// The page, plus 1, that a fault asks a fork to copy next ([`freeze`]).
    pub(crate) priority: AtomicU64,
    /// Moves of pages ([`moves`]).
    pub(crate) moves: Moves,
}

impl<M: Machine> Tables<M> {
    pub(crate) const FORMAT: Format = M::Format::FORMAT;

    /// Creates empty tables under the caller's root.
    pub(crate) fn new(memory: &'static Memory<M>, root: Frame, rss: RssCounters) -> Self {
        Self {
            memory,
            root,
            id: memory.new_id(),
            guests: Guests::new(),
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

    /// Returns the name of the space for the machine's TLBs, with the root table.
    pub(crate) fn space_id(&self) -> SpaceId {
        SpaceId {
            root: self.root,
            id: self.id,
        }
    }
}
