//! An address space: a mapping tree, page tables, and the locks of its writers.
//!
//! | field | who writes it | when |
//! | --- | --- | --- |
//! | `tree` | writers, under its edit lock | a mapping changes |
//! | page tables under `root` | faults and writers, by the entry protocol | always |
//! | `ranges` | writers, but for those in arenas; faults that fell back | see [`crate::lock`] |
//! | `arenas`, and the table | who makes arenas | at most 13 times |
//! | `lock` | writers and faults under `classic`; writers under `vma-lock`, and faults that fell back | see [`crate::lock`] |
//! | `busy` | writers under `vma-lock`; else writers that found others in their way outside of arenas | a write hold ends; each time, until there is an arena |
//! | `notes` | `madvise`, `mseal`, a fault that finds no frame | the first time |
//! | `soft_dirty_epoch` | whoever clears soft-dirty bits | each time |
//! | `probed` | writers, where mappings have probes; who registers or ends one | each time |
//! | `forks` | moves, for each table; faults that wait for a fork; a fork | see [`crate::lock::moves`], [`crate::table::freeze`] |
//! | `cpus` | a CPU that takes up or leaves the space | a context switch |
//! | `account` | writers, but for those in arenas, and stacks that grow, under the tree's edit lock | a mapping changes |
//! | `rss` | the CPU that brings pages or takes them away, in a line of its own | a fault, a zap |
//! | `limits` | who sets them | |
//!
//! A speculative fault writes none of them but the one entry, and its CPU's line of `rss`.
//!
//! All of it is in a frame of its own ([`Body`]), so that it stays where it is while
//! its owner moves the [`AddressSpace`]: mappings of a file lead here
//! ([`crate::object`]).

pub(crate) mod account;
pub(crate) mod edit;
pub(crate) mod limits;
pub(crate) mod memory;

use core::ops::Deref;
use core::ptr::{NonNull, null_mut};

use faultless_frames::{Descriptor, Flags, FrameSource, NoMemory};
use faultless_paging::{EntryFormat, Format, Frame, Gather, PAGE_SIZE, SpaceId};
use faultless_sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Local, Ordering};
use faultless_sync::{CpuSet, Padded, RangeLock, RwLock};
use faultless_trace::Kind;

use crate::base::errno::Errno;
use crate::base::machine::Machine;
use crate::base::policy::Policy;
use crate::lock::give_chunks;
use crate::lock::moves::Moves;
use crate::lock::shard::{self, Contention, Shards};
use crate::rmap::anon::SpaceLink;
use crate::space::account::Account;
use crate::space::limits::{LimitWords, Limits};
use crate::space::memory::Memory;
use crate::table::rss::RssCounters;
use crate::tree::{PAGES, Tree};

/// Where things are in an address space, and its limits. Byte addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The lowest address that a program may map (Linux: `vm.mmap_min_addr`).
    pub lowest: u64,
    /// The address after the last that a program may map (Linux: `TASK_SIZE`).
    pub end: u64,
    /// Addresses are chosen below this one, highest first.
    pub mmap_base: u64,
    /// Bytes that a mapping which grows down may reach, until [`AddressSpace::set_limits`].
    pub stack_limit: u64,
    /// Pages that may be asked for at once without `MAP_NORESERVE`: the machine's
    /// memory, as Linux's heuristic overcommit has it.
    pub commit_pages: u64,
}

impl Layout {
    /// As Linux lays out an x86-64 process without randomisation and with an
    /// 8 MiB stack limit.
    pub const LINUX_X86_64: Layout = Layout {
        lowest: 0x1_0000,
        end: 0x7fff_ffff_f000,
        mmap_base: 0x7fff_f7ff_f000,
        stack_limit: 8 << 20,
        commit_pages: u64::MAX,
    };
}

/// Something that is true of few address spaces, noted so that the others need not look.
#[derive(Clone, Copy)]
pub(crate) struct Note(u32);

impl Note {
    /// It may have pages that were let go of.
    pub(crate) const LET_GO: Note = Note(1);
    /// It has sealed mappings.
    pub(crate) const SEALED: Note = Note(2);
    /// It has, or had, mappings of stores.
    pub(crate) const STORES: Note = Note(4);
    /// It may have guards in mappings of stores.
    pub(crate) const GUARDED_STORES: Note = Note(8);
    /// It has, or had, mappings whose pages may be taken away.
    pub(crate) const DROPPABLE: Note = Note(1 << 9);
    /// Writers outside of arenas often get into each other's way at the same places.
    pub(crate) const CROWDED: Note = Note(1 << 14);
    /// Why nothing is unmapped at once: seals, and arenas that are to be made first.
    pub(crate) const NOT_AT_ONCE: Note = Note(Self::SEALED.0 | Self::CROWDED.0);
    /// Under `classic` the mmap lock is held for writing until pages are gone.
    pub(crate) const HELD_ZAPS: Note = Note(1 << 10);
    /// There are as many arenas as there could be made.
    pub(crate) const SPREAD: Note = Note(1 << 13);
    /// It has, or had, or will have mappings that are locked.
    pub(crate) const LOCKED: Note = Note(1 << 12);
    /// It may have pages, shared since a fork, elsewhere than where they were then.
    pub(crate) const MOVED: Note = Note(1 << 8);
}

/// An address space.
pub struct AddressSpace<M: Machine> {
    pub(crate) memory: &'static Memory<M>,
    body: NonNull<Body>,
}

// SAFETY: a body is shared through atomics and locks.
unsafe impl<M: Machine> Send for AddressSpace<M> {}
// SAFETY: as above.
unsafe impl<M: Machine> Sync for AddressSpace<M> {}

/// What an address space is made of.
pub struct Body {
    pub(crate) tree: Tree,
    pub(crate) root: Frame,
    pub(crate) id: u64,
    /// The frame in which this is.
    pub(crate) frame: Frame,
    // What writers write is on lines of its own: faults read the rest.
    pub(crate) ranges: Padded<RangeLock>,
    /// The mmap lock.
    pub(crate) lock: Padded<RwLock>,
    pub(crate) busy: Padded<WriterState>,
    pub(crate) cpus: Padded<CpuSet>,
    pub(crate) layout: Layout,
    /// What it has in memory: each CPU writes a line of its own.
    pub(crate) rss: RssCounters,
    policy: AtomicU32,
    /// Parts that some writers have to themselves ([`crate::lock::shard`]); null until there are any.
    pub(crate) arenas: AtomicPtr<Shards>,
    /// How often soft-dirty bits were cleared ([`crate::table::soft_dirty`]).
    pub(crate) soft_dirty_epoch: AtomicU64,
    /// Whether it may show breakpoints of probes ([`crate::probe::space`]).
    pub(crate) probed: AtomicU32,
    pub(crate) forks: Padded<ForkState>,
    /// Walks of a store's mappings that are here ([`crate::object`]).
    pub(crate) visitors: Padded<AtomicU32>,
    /// Start and end of the heap, and bytes beside it that count as its. Written by who has the
    /// heap, or everything.
    pub(crate) brk: Padded<[AtomicU64; 3]>,
    pub(crate) account: Padded<Account>,
    /// Seldom written.
    pub(crate) limits: LimitWords,
    /// Whether what is mapped from now on is locked (a [`crate::tree::mapping::Locked`]). Written
    /// by who has every range.
    pub(crate) lock_future: Local,
    /// Its place among all spaces, and its family ([`crate::rmap::anon`]).
    pub(crate) place: Padded<SpaceLink>,
    /// What was noted: by `madvise` and `mseal`, once.
    notes: Padded<AtomicU32>,
}
const _: () = assert!(size_of::<Body>() <= PAGE_SIZE as usize);

/// What a fork goes on beside.
pub(crate) struct ForkState {
    /// The page, plus 1, that a fault waits for a fork to copy ([`crate::table::freeze`]).
    pub(crate) priority: AtomicU64,
    /// Pages that go to another place ([`crate::lock::moves`]).
    pub(crate) moves: Moves,
}

/// On one line, as no policy writes both.
pub(crate) struct WriterState {
    /// See [`crate::tree::mapping::Mapping`]: the number of the present write hold.
    pub(crate) write_hold: AtomicU32,
    /// Who got into whose way, where writers do not take turns.
    pub(crate) crowd: Contention,
}

impl<M: Machine> Deref for AddressSpace<M> {
    type Target = Body;

    #[inline]
    fn deref(&self) -> &Body {
        // SAFETY: made in `new`, and there until `take_apart`.
        unsafe { self.body.as_ref() }
    }
}

impl<M: Machine> AddressSpace<M> {
    pub(crate) const FORMAT: Format = M::Format::FORMAT;

    /// An empty address space.
    ///
    /// # Errors
    /// [`NoMemory`] when there is no frame for its root.
    pub fn new(
        memory: &'static Memory<M>,
        policy: Policy,
        layout: Layout,
    ) -> Result<Self, NoMemory> {
        let space = Self::unlisted(memory, policy, layout)?;
        space.enter_list();
        Ok(space)
    }

    /// One in which nobody looks for pages yet.
    pub(crate) fn unlisted(
        memory: &'static Memory<M>,
        policy: Policy,
        layout: Layout,
    ) -> Result<Self, NoMemory> {
        let layout = Layout {
            end: layout.end.min(PAGES * PAGE_SIZE),
            ..layout
        };
        let machine = memory.machine();
        let frame = memory.allocate_frame_to_fill()?;
        let give_back = || machine.frames().free(machine.cpu(), frame);
        let made = Tree::new(memory, layout.mmap_base.min(layout.end) / PAGE_SIZE);
        let tree = made.inspect_err(|_| give_back())?;
        let root = match memory.allocate_table() {
            Ok(root) => root,
            Err(none) => {
                tree.destroy(memory);
                give_back();
                return Err(none);
            }
        };
        let Ok(rss) = RssCounters::new(memory, frame, size_of::<Body>()) else {
            tree.destroy(memory);
            machine.frames().free(machine.cpu(), root);
            give_back();
            return Err(NoMemory);
        };
        machine.init_root(root);
        machine.frames().descriptor(frame).set_flags(Flags::SPACE);
        let body = machine.pointer(frame).cast::<Body>();
        let id = memory.new_id();
        let content = Body {
            tree,
            root,
            id,
            frame,
            ranges: Padded(RangeLock::new()),
            lock: Padded(RwLock::new()),
            busy: Padded(WriterState {
                write_hold: AtomicU32::new(1),
                crowd: Contention::default(),
            }),
            cpus: Padded(CpuSet::new()),
            layout,
            rss,
            policy: AtomicU32::new(policy as u32),
            arenas: AtomicPtr::new(null_mut()),
            soft_dirty_epoch: AtomicU64::new(0),
            probed: AtomicU32::new(0),
            forks: Padded(ForkState {
                priority: AtomicU64::new(0),
                moves: Moves::new(),
            }),
            visitors: Padded(AtomicU32::new(0)),
            brk: Padded(core::array::from_fn(|_| AtomicU64::new(0))),
            account: Padded(Account::default()),
            limits: LimitWords::new(&Limits {
                stack: layout.stack_limit,
                ..Limits::NONE
            }),
            lock_future: Local::new(0),
            place: Padded(SpaceLink::new(id)),
            notes: Padded(AtomicU32::new(0)),
        };
        // SAFETY: a frame of ours, large enough and aligned.
        unsafe { body.write(content) };
        Ok(Self { memory, body })
    }

    /// The address space with this body, for a visit.
    ///
    /// # Safety
    /// The space lives as long as what is returned: see [`crate::object`].
    pub(crate) unsafe fn at(memory: &'static Memory<M>, body: NonNull<Body>) -> Self {
        Self { memory, body }
    }

    pub(crate) fn body(&self) -> NonNull<Body> {
        self.body
    }

    /// What it is made of, for who takes it apart; its frame is free.
    pub(crate) fn take_apart(self) -> Body {
        // SAFETY: the last use; the frame goes back below.
        let body = unsafe { self.body.read() };
        let machine = self.machine();
        let source = machine.frames();
        give_chunks(self.memory, &body.ranges);
        body.rss.free(self.memory);
        source.descriptor(body.frame).set_flags(Flags::NONE);
        source.free(machine.cpu(), body.frame);
        shard::give_back(self.memory, body.arenas.load(Ordering::Relaxed));
        body
    }

    /// Names the space to the machine's TLBs; holds the root table.
    pub fn id(&self) -> SpaceId {
        SpaceId {
            root: self.root,
            id: self.id,
        }
    }

    /// The CPUs that run this space. A CPU inserts itself before it loads the
    /// root and removes itself after it has dropped all translations.
    pub fn cpus(&self) -> &CpuSet {
        &self.cpus
    }

    /// Where things are.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The policy of faults.
    #[inline]
    pub fn policy(&self) -> Policy {
        match self.policy.load(Ordering::Relaxed) {
            0 => Policy::Classic,
            1 => Policy::VmaLock,
            #[cfg(feature = "speculative")]
            _ => Policy::Speculative,
            #[cfg(not(feature = "speculative"))]
            _ => Policy::VmaLock,
        }
    }

    /// Changes the policy of faults from now on. Safe at any moment: writers
    /// run the same protocol under every policy.
    pub fn set_policy(&self, policy: Policy) {
        self.policy.store(policy as u32, Ordering::Relaxed);
    }

    /// Under `classic` and `vma-lock`: whether `munmap` keeps the mmap lock for writing until all
    /// pages are gone, as Linux did before 4.20, instead of downgrading it. For comparisons.
    pub fn hold_zaps(&self, held: bool) {
        match held {
            true => self.note(Note::HELD_ZAPS),
            false => {
                self.take_note(Note::HELD_ZAPS);
            }
        }
    }

    /// The memory core the space belongs to.
    pub fn memory(&self) -> &'static Memory<M> {
        self.memory
    }

    /// Notes something.
    pub(crate) fn note(&self, note: Note) {
        if !self.has_note(note) {
            self.notes.fetch_or(note.0, Ordering::Relaxed);
        }
    }

    /// Whether something was noted.
    #[inline]
    pub(crate) fn has_note(&self, note: Note) -> bool {
        self.notes.load(Ordering::Relaxed) & note.0 != 0
    }

    /// Notes what was noted of another space, whose copy it is.
    pub(crate) fn note_as(&self, other: &Self) {
        // It has no arenas, and nothing locked.
        let not = Note::SPREAD.0 | Note::LOCKED.0 | Note::CROWDED.0;
        let notes = other.notes.load(Ordering::Relaxed) & !not;
        self.notes.store(notes, Ordering::Relaxed);
    }

    /// Whether something was noted; it is noted no more.
    pub(crate) fn take_note(&self, note: Note) -> bool {
        self.has_note(note) && self.notes.fetch_and(!note.0, Ordering::Relaxed) & note.0 != 0
    }

    #[inline]
    pub(crate) fn machine(&self) -> &'static M {
        self.memory.machine()
    }

    /// Flushes what an operation has gathered, once, on the CPUs that run the space.
    pub(crate) fn flush(&self, gather: &mut Gather) {
        let start = self.trace_start();
        if let Some(flush) = gather.flush(self.machine(), &self.cpus, self.id()) {
            let bytes = flush.end - flush.start;
            self.trace_end(Kind::Flush, start, flush.start, bytes, 0);
        }
    }

    /// The same if this CPU alone may hold any of it; whether that is so.
    #[inline]
    pub(crate) fn flush_here(&self, gather: &mut Gather) -> bool {
        let (start, cpu) = (self.trace_start(), self.machine().cpu());
        let flushed = gather.flush_here(self.machine(), cpu, &self.cpus, self.id());
        if let Ok(Some(flush)) = flushed {
            let bytes = flush.end - flush.start;
            self.trace_end(Kind::Flush, start, flush.start, bytes, 0);
        }
        flushed.is_ok()
    }

    /// Whether a frame is the shared zero page.
    #[inline]
    pub(crate) fn is_zero_page(&self, frame: Frame) -> bool {
        frame == self.machine().frames().zero_frame()
    }

    /// Where the page of an entry is counted, or of a claim that remembers one: its frame's
    /// descriptor. The shared zero page is not, and a device's pages have none.
    #[inline]
    pub(crate) fn counted(&self, value: u64) -> Option<&'static Descriptor> {
        let frame = Self::FORMAT.frame(value);
        let is_counted = !Self::FORMAT.is_device(value) && !self.is_zero_page(frame);
        is_counted.then(|| self.machine().frames().descriptor(frame))
    }

    /// Whether the page of an entry of this space is mapped by nobody else, so that it
    /// may be written at once.
    #[inline]
    pub(crate) fn is_exclusive(&self, value: u64) -> bool {
        self.counted(value)
            .is_some_and(|descriptor| descriptor.flags().has(Flags::EXCLUSIVE))
    }

    /// The pages of a byte range, checked as `munmap` checks it.
    pub(crate) fn check_range(&self, address: u64, length: u64) -> Result<u64, Errno> {
        if !address.is_multiple_of(PAGE_SIZE)
            || length > self.layout.end
            || address > self.layout.end - length
        {
            return Err(Errno::EINVAL);
        }
        Ok(address + length.next_multiple_of(PAGE_SIZE))
    }
}
