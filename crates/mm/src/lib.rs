//! Address spaces with page faults that take no lock.
//!
//! A virtual-memory subsystem for kernels, hypervisors and emulators: mappings, page tables, faults and the
//! `mmap` family with Linux's semantics. It needs no `alloc`, and every allocation is fallible. Under the
//! default policy a fault takes no lock and writes no cache line that a fault elsewhere writes.
//!
//! ```
//! use faultless_mm::{Access, AddressSpace, Errno, Machine, Outcome};
//! use faultless_mm::{PROT_READ, PROT_WRITE, flags};
//!
//! /// A kernel's page-fault handler. The error is the signal.
//! fn page_fault<M: Machine>(
//!     space: &AddressSpace<M>,
//!     address: u64,
//!     access: Access,
//! ) -> Result<(), &'static str> {
//!     match space.fault(address, access) {
//!         Outcome::Resolved => Ok(()),
//!         Outcome::Segv(_) => Err("SIGSEGV"),
//!         Outcome::Bus | Outcome::Poisoned => Err("SIGBUS"),
//!         // The handler of a userfaultfd was waited for in vain.
//!         Outcome::Interrupted => Ok(()),
//!         Outcome::OutOfMemory => Err("SIGKILL"),
//!     }
//! }
//!
//! /// A system call: a stack for a thread.
//! fn stack<M: Machine>(space: &AddressSpace<M>) -> Result<u64, Errno> {
//!     let how = flags::PRIVATE | flags::ANONYMOUS;
//!     space.mmap(0, 8 << 20, PROT_READ | PROT_WRITE, how)
//! }
//! ```
//!
//! * [`AddressSpace`] is the address space of a process. A trap handler calls [`AddressSpace::fault`]; system
//!   calls call [`AddressSpace::mmap`] and the rest.
//! * [`Memory`] is what all address spaces of a machine share.
//! * [`Machine`] is what a port provides.
//! * [`Policy`] says how a fault finds and holds its mapping.
//!
//! `ARCHITECTURE.md` at the root of the repository is the map: the life of a fault, the written cache lines,
//! the lock order.
//!
//! # Porting guide
//!
//! A port is one type that implements four small traits. `examples/port` is a complete one in 300 lines; copy
//! it and change it.
//!
//! 1. **[`PhysicalMemory`]** turns a frame's number into a pointer that never changes. A kernel adds the
//!    start of its direct map.
//! 2. **[`FrameSource`]** has `allocate`, `allocate_zeroed`, `free`, a [`Descriptor`] for each frame, the
//!    range of frames, and a zero page. Use [`Frames`] (a buddy allocator with per-CPU caches), or bring your
//!    own. Only the zero page may have frame number 0.
//! 3. **[`Wait`]**: `relax` is one turn of a short wait; `park` and `wake` are a futex. *`relax` must answer
//!    TLB shootdowns*: otherwise two CPUs that wait for each other's acknowledgement deadlock. A kernel that
//!    is not preempted inside the core implements [`Wait::cond_resched`] to let other threads run; long work
//!    calls it between its batches.
//! 4. **[`Tlb`]**: `flush` returns when no CPU of the set uses an old translation of the range. The core has
//!    changed the entries before the call. If [`Flush::tables`] says so, it has also changed entries that
//!    lead to tables: a fork write-protects there, and a software table walk must honour that as hardware
//!    does. The core calls with interrupts off, and may hold claims, so other CPUs may be waiting in `relax`
//!    meanwhile. An emulator, which walks the tables itself, says so ([`Tlb::marks_loads`]): a page that only
//!    one CPU has used is then flushed on that CPU alone.
//! 5. **[`Machine`]**: the current CPU, interrupts off and on, the time. During a call into the core the
//!    calling thread must stay on its CPU, except inside `park` and `cond_resched`.
//!
//! Then:
//!
//! * Make a [`PerCpu`] and a [`Participant`] for each CPU, and one [`Memory`]. Each CPU calls
//!   [`Memory::online`] once before it calls anything else.
//! * A CPU inserts itself into [`AddressSpace::cpus`] before it loads the address space's root
//!   ([`SpaceId::root`]). It removes itself after it has dropped all translations. Flushes go to the CPUs in
//!   that set.
//! * The trap handler calls [`AddressSpace::fault`] with the address and the [`Access`], with no lock held.
//!   It acts on the [`Outcome`]: return from the trap, deliver SIGSEGV with the [`SegvCode`] or SIGBUS, or
//!   choose an OOM victim. An access from interrupt context must not come here.
//! * The kernel's own accesses to user memory fault the same way. They happen with no lock of the core held,
//!   because a port cannot hold one.
//! * Where an atomic instruction faults on its read first, as on AArch64, [`Machine::READS_MAY_WRITE`] and
//!   [`Machine::read_will_write`] save the second fault: the port decodes the instruction by [`rmw::is_atomic_rmw`].
//! * Where the kernel or a device uses a program's page beside the program, [`AddressSpace::pin`] keeps its
//!   frame in place.
//! * A device's frames, which no allocator gives out, are mapped through a [`Device`], which can be revoked.
//! * [`AddressSpace::set_limits`] sets what may be mapped and locked; call it again when that changes.
//!   [`AddressSpace::totals`] returns what is mapped.
//! * Call [`OwnedSpace::destroy`] when no CPU runs the space any more.
//! * In tests, call [`AddressSpace::verify`] after any step.
//!
//! # Features
//!
//! `speculative` (default) has the policy of that name. Without it, faults find and hold mappings only under
//! a lock.
//!
//! `events` (default) can record what happened when ([`Tracer`]), at the cost of one branch while nothing
//! records.
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
mod swap;
mod table;
#[cfg(any(loom, shuttle))]
pub mod tree;
#[cfg(not(any(loom, shuttle)))]
mod tree;
mod tune;
mod verify;

pub use base::errno::Errno;
pub use base::huge::{HugeMode, HugeScanSetting};
pub use base::layout::Layout;
pub use base::machine::Machine;
pub use base::memory::{Memory, PerCpu};
pub use base::policy::{Policy, UnknownPolicy};
pub use base::rmw;
pub use base::userfault::queue::Message;
pub use base::userfault::{Handler, Userfault, numbers as userfault};
pub use fault::pin::{Taken, UserPage};
pub use fault::{Outcome, SegvCode};
pub use lock::limits::Limits;
pub use object::{Device, MemoryObject, ObjectHuge, Pager, Pinned};
pub use ops::{
    AgingMode, Filled, Forked, HugeScan, MappedFile, MapsEntry, Opened, OpenedDevice, PROT_EXEC,
    PROT_READ, PROT_WRITE, PageState, Rss, Share, Usage, advice, flags, lock_all_flags, lock_flags,
    remap_flags,
};
pub use probe::list::Probe;
pub use reclaim::compact::Evacuated;
pub use rmap::claims::NotMoved;
pub use rmap::migrate::Mover;
pub use space::{AddressSpace, OwnedSpace};
pub use swap::SwapUsage;
pub use table::guests::{GuestCalls, GuestHook, HostEntry, HostPage, HostPages, ToldPages};
pub use tree::account::VmStats;
pub use tree::mapping::{
    Attributes, Flags, Huge, Locked, Mapping, ObjectRef, Reading, SoftDirtyEpoch,
};
pub use verify::{Census, Violation};

pub use faultless_frames::{
    Descriptor, FrameCache, FrameSource, Frames, MOST_PINS, NoMemory, Sharing,
};
pub use faultless_paging::{
    Access, Caching, EntryFormat, Flush, Frame, MarkedX86_64, PAGE_SIZE, Page, Pages,
    PhysicalMemory, Protection, SpaceId, Tlb, X86_64,
};
pub use faultless_swap::{DeviceError, SlotCache, SwapDevice};
pub use faultless_sync::atomic::AtomicU32;
pub use faultless_sync::reclaim::Participant;
pub use faultless_sync::{Cpu, CpuSet, MAX_CPUS, Wait};
pub use faultless_trace::{Counter, Counters, Event, How, Kind, Latency, Mask, Reason, Tracer};
