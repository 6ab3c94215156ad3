//! Arenas: parts of an address space whose writers share nothing with others.
//!
//! All writers of a space write its list of ranges, its edit lock, its notes about holes and its
//! account. Where they get into each other's way, they get *arenas*, with a list, an edit lock, notes and an
//! account of its own each, and with a node of the tree that stays ([`crate::tree::pinned`]). CPUs get a gibibyte
//! each, empty at first, and memory that may lie anywhere is then mapped in the CPU's own. Who works at
//! places that he names gets one around these, 16 MiB or a gibibyte, whatever is mapped there. A
//! program of which one thread maps has none, and gets Linux's addresses
//! (`docs/decisions/0012-arenas.md`).
//!
//! What a writer takes depends on its range alone ([`LockDomain`]): inside an arena, not at its first or
//! last page, that arena's; away from all arenas the space's own, as if there were none; else those
//! of everything. So neighbours, with which a mapping may merge, always belong to the same part or
//! to who has all of them. Lists are taken in order, the space's own first, then the arenas'; edit
//! locks likewise, after all lists.
//!
//! Whether there are arenas changes only with every range and under all edit locks. So who has
//! a range, or edits, asks again ([`Mappings::part_of`]), and then knows.
//!
//! An arena is opened beside those who zap: not where they do, so that what is being taken away stays
//! in the list in which it was.
//!
//! * `choice`: which part a range belongs to. `crowd`: who gets into whose way. `open`, `around`: a new arena,
//!   of a CPU, or around what is there. `elsewhere`: what is had in the lists of arenas beside the space's own.
//!
//! Written lines: those of the arena, by who works in it. The table of arenas is written when one
//! is opened, and read by every writer.
//!
//! *Models*: shuttle `lock/shards.rs`, loom `tree/writers.rs`.

pub(crate) mod around;
pub(crate) mod choose;
pub(crate) mod contention;
pub(crate) mod create;
pub(crate) mod guards;

use faultless_paging::{Frame, PAGE_SIZE, Pages};
use faultless_sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use faultless_sync::{PLACES, Padded, RangeLock, SpinGuard, SpinGuards, SpinLock};

use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::lock::DomainLocks;
use crate::lock::Edit;
use crate::lock::departing::UnmapGuard;
use crate::table::free::FreeTables;
use crate::tree::account::Account;
use crate::tree::{GapIndex, Subtree, WRITERS};
use crate::tune::GUARD_GAP;
use crate::tune::SHARDS_AROUND;
use crate::tune::SHARDS_OF_CPUS;

pub(crate) use contention::Contention;
pub(crate) use create::give_back;
pub(crate) use guards::{ShardGuards, ZapShardGuards};

/// Pages of the largest mapping that is put into an arena unless it has to be there.
pub(crate) const LARGEST: u64 = create::SPAN / 4;

/// The most arenas of a space.
pub(crate) const SHARDS: usize = SHARDS_OF_CPUS + SHARDS_AROUND;

/// Writers that may zap at once, in all lists.
const WRITERS_AT_ONCE: usize = (1 + SHARDS) * PLACES;
const _: () = assert!(WRITERS_AT_ONCE <= WRITERS);

/// Which lists and locks an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockDomain {
    /// The space's own: its range is in no arena.
    Central,
    /// Those of the arena with this number, in which its range is.
    Shard(usize),
    /// All edit locks, and the lists that its range meets.
    All,
}

impl LockDomain {
    /// Which empty tables go with what is unmapped in it: in a shard memory comes and goes in the same
    /// places.
    pub(crate) fn free_tables(self) -> FreeTables {
        match self {
            LockDomain::Shard(_) => FreeTables::Whole,
            LockDomain::Central | LockDomain::All => FreeTables::All,
        }
    }

    /// The number of the writer who has a place in the first list of the part.
    pub(crate) fn writer(self, place: usize) -> usize {
        match self {
            LockDomain::Shard(number) => (1 + number) * PLACES + place,
            LockDomain::Central | LockDomain::All => place,
        }
    }
}

/// An arena. In a frame of its own.
pub(crate) struct Shard {
    pub(crate) ranges: Padded<RangeLock>,
    pub(crate) edit: Padded<SpinLock<GapIndex>>,
    pub(crate) account: Padded<Account>,
    /// Its node.
    pub(crate) stem: Subtree,
    frame: Frame,
}
const _: () = assert!(size_of::<Shard>() <= PAGE_SIZE as usize);

impl Shard {
    /// The right to change it; with the space's own edit lock, which was taken before, if what changes
    /// is counted there.
    fn edit<'a, M: Machine>(
        &'a self,
        memory: &'a Memory<M>,
        number: usize,
        counts: Option<SpinGuard<'a, GapIndex>>,
    ) -> Edit<'a, M> {
        let own = self.edit.lock(memory.machine());
        let locks = DomainLocks::new(LockDomain::Shard(number), own, UnmapGuard::new(memory));
        self.stem.edit(memory, locks.with_counts(counts))
    }

    /// Where room is chosen: so that nobody's guard gap, and no neighbour of another part, matters.
    pub(crate) fn room(pages: Pages) -> Pages {
        Pages::new(pages.start + 1, pages.end - GUARD_GAP - 1)
    }
}

/// A place in the table.
pub(crate) struct Slot {
    /// The first page, and the page after the last.
    base: AtomicU64,
    end: AtomicU64,
    arena: AtomicPtr<Shard>,
}

/// A space's arenas. In a frame of its own, which lives as long as the space.
pub(crate) struct Shards {
    /// How many there are, and why all is counted in the space's own account all the same. Written
    /// under all edit locks; the number also with every range.
    state: AtomicU64,
    slots: [Slot; SHARDS],
    /// The numbers of those that are CPUs'.
    of_cpus: [AtomicU32; SHARDS_OF_CPUS],
    frame: Frame,
}

/// Of a state: how many there are.
const COUNT: u64 = 0xff;
/// Of a state: how many of these are CPUs'.
const COUNT_OF_CPUS: u64 = COUNT << COUNT.count_ones();
/// Of a state: there is a limit that is not only of mappings.
const STRICT: u64 = 1 << 32;
/// Of a state: there are almost as many mappings as there may be.
const NEAR: u64 = 1 << 33;

/// All arenas' edit locks.
pub(crate) struct Locks<'a>(SpinGuards<'a, Slot, GapIndex>);

impl Locks<'_> {
    /// The notes of each.
    pub(crate) fn for_each_holes(&mut self, mut change: impl FnMut(&mut GapIndex)) {
        (0..self.0.of().len()).for_each(|number| change(self.0.get_mut(number)));
    }
}

impl Shards {
    /// Acquire: pairs with the release in [`Shards::set`].
    fn state(&self) -> u64 {
        self.state.load(Ordering::Acquire)
    }

    /// How many there are.
    fn count(&self) -> usize {
        (self.state() & COUNT) as usize
    }

    /// How many of these are CPUs'.
    fn count_of_cpus(&self) -> usize {
        ((self.state() & COUNT_OF_CPUS) >> COUNT.count_ones()) as usize
    }

    /// Whether all is counted in the space's own account.
    fn is_strict(&self) -> bool {
        self.state() & (STRICT | NEAR) != 0
    }

    /// Whether there is one that has something of `pages`.
    fn meet(&self, pages: Pages) -> bool {
        let mut arenas = self.slots[..self.count()].iter().map(Slot::pages);
        arenas.any(|arena| pages.start < arena.end && arena.start < pages.end)
    }

    fn set(&self, state: u64) {
        if state != self.state() {
            self.state.store(state, Ordering::Release);
        }
    }

    /// The arenas there are.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Shard> {
        self.slots[..self.count()].iter().map(Slot::arena)
    }

    /// The arena with this number, which there is.
    pub(crate) fn get(&self, number: usize) -> &Shard {
        self.slots[number].arena()
    }

    /// Takes the edit locks of all there are.
    fn lock_edits<M: Machine>(&self, machine: &M) -> Locks<'_> {
        let slots = &self.slots[..self.count()];
        Locks(SpinGuards::lock(
            slots,
            |slot| &slot.arena().edit.0,
            machine,
        ))
    }
}

impl Slot {
    /// The arena here; there is one.
    fn arena(&self) -> &Shard {
        // SAFETY: written before the count that the caller has read, and there until the space ends.
        unsafe { &*self.arena.load(Ordering::Relaxed) }
    }

    fn pages(&self) -> Pages {
        let [base, end] = [&self.base, &self.end].map(|page| page.load(Ordering::Relaxed));
        Pages::new(base, end)
    }
}
