//! Address spaces in which page faults wait for nobody.
//!
//! A virtual-memory subsystem for kernels, hypervisors and emulators: mappings,
//! page tables, faults and the `mmap` family with Linux's semantics, without
//! `alloc`, every allocation fallible. Under the default policy a fault takes no
//! lock and writes no cache line that a fault elsewhere writes.
//!
//! * [`AddressSpace`] is what a process has. [`AddressSpace::fault`] is called by
//!   a trap handler; [`AddressSpace::mmap`] and the others by system calls.
//! * [`Memory`] is what all address spaces of a machine share.
//! * [`Machine`] is what a port provides.
//! * [`Policy`] says how a fault finds and holds its mapping.
//!
//! `ARCHITECTURE.md` at the root of the repository is the map: the life of a
//! fault, who may write which line, the lock order.
//!
//! # Porting guide
//!
//! A port is one type that implements four small traits. `examples/port` is a
//! complete one in 300 lines; copy it and change it.
//!
//! 1. **[`PhysicalMemory`]**: a frame's number becomes a pointer that stays the
//!    same. A kernel adds the start of its direct map.
//! 2. **[`FrameSource`]**: `allocate`, `allocate_zeroed`, `free`, a
//!    [`Descriptor`] for each frame, which frames there are, and a zero page. Use [`Frames`] (a buddy
//!    allocator with per-CPU caches), or bring your own; no frame is number 0
//!    except, if you like, the zero page.
//! 3. **[`Wait`]**: `relax` is a turn of a short wait, `park` and `wake` are a
//!    futex. *`relax` must answer TLB shootdowns*: two CPUs that wait for each
//!    other's acknowledgement must not stand still. A kernel that is not preempted inside the
//!    core has [`Wait::cond_resched`] let others run: long work asks between its batches.
//! 4. **[`Tlb`]**: `flush` returns when no CPU of the set uses an old
//!    translation of the range. The core has changed the entries before it
//!    calls, those that lead to tables too if [`Flush::tables`] says so: a fork
//!    takes the right to store away there, and a machine that walks the tables
//!    in software has to honour that as hardware does. The core calls with interrupts
//!    off, and may hold claims, so that other CPUs may be waiting in `relax` meanwhile.
//!    An emulator, which walks the tables itself, says so ([`Tlb::marks_loads`]): then a page
//!    that one CPU alone has used is flushed on that CPU alone.
//! 5. **[`Machine`]**: which CPU this is, interrupts off and on, the time.
//!    During a call into the core the calling thread must stay on its CPU,
//!    except inside `park` and `cond_resched`.
//!
//! Then:
//!
//! * Make a [`PerCpu`] and a [`Participant`] for each CPU and one [`Memory`].
//!   Each CPU calls [`Memory::online`] once before it calls anything else.
//! * Before a CPU loads an address space's root ([`SpaceId::root`]), it inserts
//!   itself into [`AddressSpace::cpus`]; after it has dropped all translations
//!   it removes itself. Flushes go to the CPUs in that set.
//! * The trap handler calls [`AddressSpace::fault`] with the address and the
//!   [`Access`], with no lock held, and acts on the [`Outcome`]: return from
//!   the trap, deliver SIGSEGV with the [`SegvCode`], or find a victim.
//!   Accesses from interrupt context must not come here.
//! * The kernel's own accesses to user memory fault the same way. Make none
//!   with a lock of the core held: there is no way to hold one.
//! * Where the kernel or a device uses a program's page beside the program,
//!   [`AddressSpace::pin`] keeps its frame what it is.
//! * Frames of a device, which no allocator gives out, are mapped through a [`Device`], which can be
//!   revoked.
//! * [`AddressSpace::set_limits`] says what may be mapped and locked; call it again when
//!   that changes. [`AddressSpace::totals`] says what is.
//! * [`AddressSpace::destroy`] when no CPU runs the space any more.
//! * In tests, call [`AddressSpace::verify`] after any step.
//!
//! # Features
//!
//! `speculative` (default) has the policy of that name. Without it, the code
//! that finds and holds mappings under a lock is all there is.
//!
//! `events` (default) can record what happened when ([`Tracer`]), at the cost of one
//! branch while it does not.
#![cfg_attr(not(any(loom, shuttle, record)), no_std)]

mod base;
mod fault;
mod lock;
mod object;
mod ops;
mod probe;
mod reclaim;
mod rmap;
mod space;
mod table;
#[cfg(any(loom, shuttle))]
pub mod tree;
#[cfg(not(any(loom, shuttle)))]
mod tree;
mod tune;
mod verify;

pub use base::errno::Errno;
pub use base::layout::Layout;
pub use base::machine::Machine;
pub use base::memory::{Memory, PerCpu};
pub use base::policy::{Policy, UnknownPolicy};
pub use fault::pin::{Taken, UserPage};
pub use fault::{Outcome, SegvCode};
pub use lock::limits::Limits;
pub use object::{Device, MemoryObject, Pager, Pinned};
pub use ops::{
    AgingMode, MappedFile, MapsEntry, Opened, OpenedDevice, PROT_EXEC, PROT_READ, PROT_WRITE,
    PageState, Rss, Share, Usage, advice, flags, lock_all_flags, lock_flags, remap_flags,
};
pub use probe::list::Probe;
pub use reclaim::compact::Evacuated;
pub use rmap::migrate::{Mover, NotMoved};
pub use space::{AddressSpace, OwnedSpace};
pub use tree::account::VmStats;
pub use tree::mapping::{
    Attributes, Flags, Huge, Locked, Mapping, ObjectRef, Reading, SoftDirtyEpoch,
};
pub use verify::{Census, Violation};

pub use faultless_frames::{
    Descriptor, FrameCache, FrameSource, Frames, MOST_PINS, NoMemory, Sharing,
};
pub use faultless_paging::{
    Access, Caching, EntryFormat, Flush, Frame, MarkedX86_64, PAGE_SIZE, PhysicalMemory,
    Protection, SpaceId, Tlb, X86_64,
};
pub use faultless_sync::atomic::AtomicU32;
pub use faultless_sync::reclaim::Participant;
pub use faultless_sync::{Cpu, CpuSet, MAX_CPUS, Wait};
pub use faultless_trace::{Counter, Counters, Event, How, Kind, Latency, Mask, Reason, Tracer};
