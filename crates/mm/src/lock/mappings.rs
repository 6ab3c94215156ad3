//! The mappings of one address space with the locks under which they change.
//!
//! | field | who writes it | when |
//! | --- | --- | --- |
//! | `tree` | writers, under its edit lock | a mapping changes |
//! | `tables` | faults and writers, by the entry protocol | always |
//! | `ranges` | writers, but for those in shards; faults that fell back | see [`crate::lock`] |
//! | `shards`, and the table | a writer that creates shards | at most 13 times |
//! | `lock` | writers and faults under `classic`; writers under `vma-lock`, and faults that fell back | see [`crate::lock`] |
//! | `busy` | writers under `vma-lock`; else writers that met others outside of shards | a write hold ends; each time, until there is a shard |
//! | `notes` | `madvise`, `mseal`, a fault that finds no frame | the first time |
//! | `probed` | writers, where mappings have probes | each time |
//! | `account` | writers, but for those in shards, and stacks that grow, under the edit lock | a mapping changes |
//! | `limits`, `brk` | the caller of `set_limits`, a writer that has the heap | |
//!
//! A speculative fault writes none of them but the one entry.

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
    // What writers write is on lines of its own: faults read the rest.
    pub(crate) ranges: Padded<RangeLock>,
    /// The mmap lock.
    pub(crate) lock: Padded<RwLock>,
    pub(crate) busy: Padded<WriterState>,
    pub(crate) layout: Layout,
    policy: AtomicU32,
    /// Lock domains of their own for parts of the space ([`crate::lock::shard`]); null until there are any.
    pub(crate) arenas: AtomicPtr<Shards>,
    /// Whether it may show breakpoints of probes ([`crate::lock::probed`]).
    pub(crate) probed: AtomicU32,
    /// Start and end of the heap, and bytes beside it that count as its. Written by a writer that has the
    /// heap, or everything.
    pub(crate) brk: Padded<[AtomicU64; 3]>,
    pub(crate) account: Padded<Account>,
    /// Seldom written.
    pub(crate) limits: LimitWords,
    pub(crate) notes: Notes,
}

/// On one line, as no policy writes both.
pub(crate) struct WriterState {
    /// See [`crate::tree::mapping::Mapping`]: the number of the present write hold.
    pub(crate) write_hold: AtomicU32,
    /// Contention seen by writers that do not serialise.
    pub(crate) crowd: Contention,
}

impl<M: Machine> Mappings<M> {
    /// No mappings, over an empty tree, an empty root, and counts of nothing. Some 3 KiB, so that it is written
    /// where it stays.
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
            arenas: AtomicPtr::new(null_mut()),
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

    /// Gives back what locks and the tree are made of: the last use. Nothing is mapped or locked any more.
    pub(crate) fn destroy(&self) {
        let memory = self.memory;
        give_chunks(memory, &self.ranges);
        shard::give_back(memory, self.arenas.load(Ordering::Relaxed));
        self.tree.destroy(memory);
    }

    #[inline]
    pub(crate) fn machine(&self) -> &'static M {
        self.memory.machine()
    }

    /// The policy of faults.
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

    /// Start and end of the heap, in bytes.
    pub(crate) fn heap(&self) -> (u64, u64) {
        let [start, end] = [0, 1].map(|at| self.brk[at].load(Ordering::Relaxed));
        (start, end)
    }
}
