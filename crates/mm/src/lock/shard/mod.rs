//! Shards: parts of an address space with locks of their own, so that their writers share no line with other
//! writers.
//!
//! All writers of a space write its range list, its edit lock, its gap index and its account. If they
//! contend, they get *shards*. A shard has a list, an edit lock, a gap index and an account of its own. Its
//! node of the tree stays ([`crate::tree::pinned`]).
//!
//! * CPUs get a gibibyte each, empty at first. Memory that may lie anywhere is then mapped in the shard of
//!   this CPU.
//! * A writer that works at named addresses gets a shard around them, 16 MiB or a gibibyte, whatever is
//!   mapped there.
//! * A program of which one thread maps has no shards, and gets Linux's addresses
//!   (`docs/decisions/0012-shards.md`).
//!
//! The locks of a writer depend on its range alone ([`LockDomain`]). Inside a shard, but not at its first or
//! last page, they are that shard's; away from all shards the space's own, as if there were none; otherwise
//! those of everything. So neighbours, with which a mapping may merge, always belong to the same lock domain,
//! or to an operation that holds all of them. Range lists are locked in order, the space's own first, then
//! those of shards; edit locks likewise, after all lists.
//!
//! The number of shards changes only with every range held, and under all edit locks. A writer that holds a
//! range, or edits, therefore asks again ([`Mappings::part_of`]); from then on the answer is stable.
//!
//! A shard is created while zaps run elsewhere, but not where one runs: what is being zapped stays in its
//! list.
//!
//! * `choose`: the lock domain of a range.
//! * `contention`: where writers contend.
//! * `create`, `around`: a new shard, of a CPU or around existing mappings.
//! * `guards`: slots in the lists of shards, held in addition to one in the space's own list.
//!
//! *Writes*: the lines of a shard, by the writers that work in it. The table of shards is written when one is
//! created, and when accounts become strict or cease to be; every writer reads it.
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

/// Pages of the largest mapping that is placed in a shard, unless its address requires that.
pub(crate) const LARGEST: u64 = create::SPAN / 4;

/// The most shards of a space.
pub(crate) const SHARDS: usize = SHARDS_OF_CPUS + SHARDS_AROUND;

/// The most writers that can zap at the same time, in all lists.
const WRITERS_AT_ONCE: usize = (1 + SHARDS) * PLACES;
const _: () = assert!(WRITERS_AT_ONCE <= WRITERS);

/// Which lists and locks an operation takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockDomain {
    /// The space's own: its range is in no shard.
    Central,
    /// Those of the shard with this number, which contains its range.
    Shard(usize),
    /// All edit locks, and the lists that its range meets.
    All,
}

impl LockDomain {
    /// Returns which empty tables are freed with what is unmapped: in a shard, memory is mapped and unmapped
    /// in the same places.
    pub(crate) fn free_tables(self) -> FreeTables {
        match self {
            LockDomain::Shard(_) => FreeTables::Whole,
            LockDomain::Central | LockDomain::All => FreeTables::All,
        }
    }

    /// Returns the number of the writer with this slot in the first list of the lock domain.
    pub(crate) fn writer(self, place: usize) -> usize {
        match self {
            LockDomain::Shard(number) => (1 + number) * PLACES + place,
            LockDomain::Central | LockDomain::All => place,
        }
    }
}

/// A shard, in a frame of its own.
pub(crate) struct Shard {
    pub(crate) ranges: Padded<RangeLock>,
    pub(crate) edit: Padded<SpinLock<GapIndex>>,
    pub(crate) account: Padded<Account>,
    /// Its part of the tree.
    pub(crate) stem: Subtree,
    frame: Frame,
}
const _: () = assert!(size_of::<Shard>() <= PAGE_SIZE as usize);

impl Shard {
    /// Begins an edit of the shard. If its changes are counted in the space's own account, `counts` is the
    /// space's edit lock, taken before.
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

    /// Returns the pages in which addresses are chosen: no guard gap, and no neighbour in another lock
    /// domain, matters there.
    pub(crate) fn room(pages: Pages) -> Pages {
        Pages::new(pages.start + 1, pages.end - GUARD_GAP - 1)
    }
}

/// An entry of the table.
pub(crate) struct Slot {
    /// The first page, and the page after the last.
    base: AtomicU64,
    end: AtomicU64,
    shard: AtomicPtr<Shard>,
}

/// The table of a space's shards, in a frame that lives as long as the space.
pub(crate) struct Shards {
    /// The number of shards, and the reasons to count everything in the space's own account. Written under
    /// all edit locks; the number also with every range held.
    state: AtomicU64,
    slots: [Slot; SHARDS],
    /// The numbers of the per-CPU shards.
    of_cpus: [AtomicU32; SHARDS_OF_CPUS],
    frame: Frame,
}

/// Of a state: the number of shards.
const COUNT: u64 = 0xff;
/// Of a state: the number of per-CPU shards.
const COUNT_OF_CPUS: u64 = COUNT << COUNT.count_ones();
/// Of a state: there is a limit other than that of mappings.
const STRICT: u64 = 1 << 32;
/// Of a state: the number of mappings is near its limit.
const NEAR: u64 = 1 << 33;

/// The edit locks of all shards.
pub(crate) struct Locks<'a>(SpinGuards<'a, Slot, GapIndex>);

impl Locks<'_> {
    /// Calls `change` with the gap index of each.
    pub(crate) fn for_each_holes(&mut self, mut change: impl FnMut(&mut GapIndex)) {
        (0..self.0.of().len()).for_each(|number| change(self.0.get_mut(number)));
    }
}

impl Shards {
    /// Acquire: pairs with the release in [`Shards::set`].
    fn state(&self) -> u64 {
        self.state.load(Ordering::Acquire)
    }

    /// Returns the number of shards.
    fn count(&self) -> usize {
        (self.state() & COUNT) as usize
    }

    /// Returns the number of per-CPU shards.
    fn count_of_cpus(&self) -> usize {
        ((self.state() & COUNT_OF_CPUS) >> COUNT.count_ones()) as usize
    }

    /// Whether everything is counted in the space's own account.
    fn is_strict(&self) -> bool {
        self.state() & (STRICT | NEAR) != 0
    }

    /// Whether a shard has some of `pages`.
    fn meet(&self, pages: Pages) -> bool {
        let mut shards = self.slots[..self.count()].iter().map(Slot::pages);
        shards.any(|shard| pages.start < shard.end && shard.start < pages.end)
    }

    fn set(&self, state: u64) {
        if state != self.state() {
            self.state.store(state, Ordering::Release);
        }
    }

    /// Returns all shards.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Shard> {
        self.slots[..self.count()].iter().map(Slot::shard)
    }

    /// Returns the shard with this number, which exists.
    pub(crate) fn get(&self, number: usize) -> &Shard {
        self.slots[number].shard()
    }

    /// Takes the edit locks of all shards.
    fn lock_edits<M: Machine>(&self, machine: &M) -> Locks<'_> {
        let slots = &self.slots[..self.count()];
        Locks(SpinGuards::lock(
            slots,
            |slot| &slot.shard().edit.0,
            machine,
        ))
    }
}

impl Slot {
    /// Returns the shard of this entry, which exists.
    fn shard(&self) -> &Shard {
        // SAFETY: written before the count that the caller has read, and valid until the space ends.
        unsafe { &*self.shard.load(Ordering::Relaxed) }
    }

    fn pages(&self) -> Pages {
        let [base, end] = [&self.base, &self.end].map(|page| page.load(Ordering::Relaxed));
        Pages::new(base, end)
    }
}
