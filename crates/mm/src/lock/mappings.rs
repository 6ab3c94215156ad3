//! The mappings of one address space, with the locks under which they change.
//!
//! | field | written by | when |
//! | --- | --- | --- |
//! | `tree` | writers, under its edit lock | a mapping changes |
//! | `tables` | faults and writers, by the entry protocol | always |
//! | `ranges` | writers, except those in shards; faults that fell back | see [`crate::lock`] |
//! | `shards`, and its table | a writer that creates shards; one that changes strictness | at most 13 times; seldom |
//! | `lock` | under `classic` all; under `vma-lock` writers, and faults that fell back | see [`crate::lock`] |
//! | `busy`: `write_hold` | writers under `classic` and `vma-lock` | a write hold ends |
//! | `busy`: `crowd` | other writers that contend outside shards | each time, until a shard is created |
//! | `notes` | operations that set or clear a flag | it changes |
//! | `probed` | writers, where mappings have probes | each time |
//! | `account` | writers, except those in shards, and growing stacks; under the edit lock | a mapping changes |
//! | `limits`, `brk` | the caller of `set_limits`, a writer that holds the heap's end | |
//!
//! Of all these, a speculative fault writes one entry of `tables` only.

use core::ptr::null_mut;

use faultless_paging::{Frame, Pages};
use faultless_sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use faultless_sync::{Padded, RangeLock, RwLock};

use crate::base::layout::Layout;
use crate::base::machine::Machine;
use crate::base::memory::Memory;
use crate::base::notes::{Note, Notes};
use crate::base::policy::Policy;
use crate::lock::give_chunks;
use crate::lock::limits::{LimitWords, Limits};
use crate::lock::shard::{self, Contention, Shards};
use crate::table::Tables;
use crate::table::rss::RssCounters;
use crate::tree::Tree;
use crate::tree::account::Account;

/// The mappings of an address space.
pub(crate) struct Mappings<M: Machine> {
    pub(crate) memory: &'static Memory<M>,
    pub(crate) tables: Tables<M>,
    pub(crate) tree: Tree,
    // Fields that writers write are on cache lines of their own: faults read the rest.
    pub(crate) ranges: Padded<RangeLock>,
    /// The mmap lock.
    pub(crate) lock: Padded<RwLock>,
    pub(crate) busy: Padded<WriterState>,
    pub(crate) layout: Layout,
    policy: AtomicU32,
    /// The table of shards ([`crate::lock::shard`]); null until it is created.
    pub(crate) shards: AtomicPtr<Shards>,
    /// Whether the space may show breakpoints of probes ([`crate::lock::probed`]).
    pub(crate) probed: AtomicU32,
    /// Start and end of the heap, and the bytes outside it that count with it. Written by a writer that holds
    /// the heap's end, or everything.
    pub(crate) brk: Padded<[AtomicU64; 3]>,
    pub(crate) account: Padded<Account>,
    /// Seldom written.
    pub(crate) limits: LimitWords,
    pub(crate) notes: Notes,
}

/// State that writers update. On one cache line, because no policy writes both fields.
pub(crate) struct WriterState {
    /// The number of the present write hold ([`crate::tree::vma_lock`]).
    pub(crate) write_hold: AtomicU32,
    /// Contention seen by writers that do not serialise.
    pub(crate) crowd: Contention,
}

impl<M: Machine> Mappings<M> {
    /// Creates empty mappings, over an empty tree, an empty root, and counters at zero. About 3 KiB, so
    /// inlined: it is written in place.
    #[inline(always)]
    pub(crate) fn new(
        memory: &'static Memory<M>,
        (tree, root, rss): (Tree, Frame, RssCounters),
        policy: Policy,
        layout: Layout,
    ) -> Self {
        Self {
            memory,
            tables: Tables::new(memory, root, rss),
            tree,
            ranges: Padded(RangeLock::new()),
            lock: Padded(RwLock::new()),
            busy: Padded(WriterState {
                write_hold: AtomicU32::new(1),
                crowd: Contention::default(),
            }),
            layout,
            policy: AtomicU32::new(policy as u32),
            shards: AtomicPtr::new(null_mut()),
            probed: AtomicU32::new(0),
            brk: Padded(core::array::from_fn(|_| AtomicU64::new(0))),
            account: Padded(Account::default()),
            limits: LimitWords::new(&Limits {
                stack: layout.stack_limit,
                ..Limits::NONE
            }),
            notes: Notes::new(),
        }
    }

    /// Frees the memory of the locks and the tree: the last use. No page table is left, and no lock is held.
    pub(crate) fn destroy(&self) {
        let memory = self.memory;
        give_chunks(memory, &self.ranges);
        shard::give_back(memory, self.shards.load(Ordering::Relaxed));
        self.tree.destroy(memory);
    }

    #[inline]
    pub(crate) fn machine(&self) -> &'static M {
        self.memory.machine()
    }

    /// Returns the policy of faults.
    #[inline]
    pub(crate) fn policy(&self) -> Policy {
        match self.policy.load(Ordering::Relaxed) {
            0 => Policy::Classic,
            1 => Policy::VmaLock,
            #[cfg(feature = "speculative")]
            _ => Policy::Speculative,
            #[cfg(not(feature = "speculative"))]
            _ => Policy::VmaLock,
        }
    }

    pub(crate) fn set_policy(&self, policy: Policy) {
        self.policy.store(policy as u32, Ordering::Relaxed);
    }

    pub(crate) fn note(&self, note: Note) {
        self.notes.set(note);
    }

    #[inline]
    pub(crate) fn has_note(&self, note: Note) -> bool {
        self.notes.has(note)
    }

    pub(crate) fn take_note(&self, note: Note) -> bool {
        self.notes.take(note)
    }

    pub(crate) fn all_pages(&self) -> Pages {
        Pages::of_bytes(0..self.layout.end)
    }

    /// Returns the start and the end of the heap, in bytes.
    pub(crate) fn heap(&self) -> (u64, u64) {
        let [start, end] = [0, 1].map(|at| self.brk[at].load(Ordering::Relaxed));
        (start, end)
    }
}
