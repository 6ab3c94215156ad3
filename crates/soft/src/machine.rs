//! The soft machine: implements the traits that the memory core requires of a machine.

use std::cell::Cell;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Instant;

use faultless_frames::{Descriptor, FrameCache, Frames, Watermarks};
use faultless_mm::{HugeMode, Layout, Machine, Memory, OwnedSpace, Participant, PerCpu, Policy};
use faultless_paging::{Access, Flush, Frame, PAGE_SIZE, PhysicalMemory, SpaceId};
use faultless_sync::atomic::{AtomicU32, Local};
use faultless_sync::{Cpu, CpuSet, MAX_CPUS, Wait};
use faultless_trace::{Counter, Event, Kind, Mask, Switch, Tracer};

use crate::arena::{Arena, FIRST};
use crate::host;
use crate::shootdown::{Target, publish};
use crate::tlb::{Flushed, Tlb};

/// The size of a soft machine, and its checks.
#[derive(Clone, Debug)]
pub struct Options {
    /// The number of CPUs.
    pub cpus: usize,
    /// Bytes of physical memory.
    pub memory: u64,
    /// Bytes of a device, after the memory; no allocator has its frames.
    pub device: u64,
    /// Check every TLB hit against the tables, and overwrite frames that become free.
    pub check: bool,
    /// Keep a pool of zeroed frames.
    pub zeroed_pool: bool,
    /// Reclaim memory before the last of it is used: [`Soft::allocator`] has the usual watermarks.
    pub reclaims: bool,
    /// Execute-only memory cannot be read, as on CPUs with protection keys.
    pub execute_only: bool,
    /// How atomic instructions fault.
    pub atomics: Atomics,
    /// The CPUs mark entries as used and written, if the format lets them leave that to software.
    pub marks: bool,
    /// Which mappings get huge pages.
    pub huge: HugeMode,
    /// What is recorded: events, latencies, or nothing.
    pub record: Mask,
    /// Events that each CPU's ring holds.
    pub events: usize,
}

/// How an atomic instruction faults on a page that is absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomics {
    /// As a store: x86-64.
    Write,
    /// As a load, and then, if what it finds is read-only, as a store: AArch64.
    ReadFirst,
    /// The same, and the machine says that the instruction will also store ([`Machine::read_will_write`]).
    Told,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            cpus: 2,
            memory: 256 << 20,
            device: 0,
            check: false,
            zeroed_pool: true,
            reclaims: false,
            execute_only: false,
            atomics: Atomics::Write,
            marks: std::env::var_os("FAULTLESS_MARKS").is_none_or(|marks| marks != "software"),
            huge: match std::env::var_os("FAULTLESS_HUGE").is_some_and(|mode| mode == "always") {
                true => HugeMode::Always,
                false => HugeMode::Never,
            },
            record: Mask::NONE,
            events: 1 << 16,
        }
    }
}

/// The format of the machine's page-table entries.
#[cfg(not(feature = "aarch64"))]
pub type Entries = faultless_paging::MarkedX86_64;
/// The format of the machine's page-table entries.
#[cfg(feature = "aarch64")]
pub type Entries = faultless_paging::MarkedAArch64;

/// The memory core of a soft machine.
pub type SoftMemory = Memory<Soft>;

/// An address space of a soft machine.
pub type SoftSpace = OwnedSpace<Soft>;

/// The machine's state of one CPU.
pub(crate) struct CpuState {
    pub(crate) target: Target,
    pub(crate) tlb: OwnTlb,
    /// The id of the space that the CPU runs.
    pub(crate) space: Local,
    /// Whether the CPU executes the read of an atomic instruction.
    pub(crate) in_atomic: Local,
    /// A thread runs this CPU.
    taken: AtomicBool,
}

/// A TLB that only the thread of its CPU uses.
pub(crate) struct OwnTlb(pub(crate) Tlb);

// SAFETY: `Soft` gives a CPU's TLB only to the thread that runs that CPU.
unsafe impl Sync for OwnTlb {}
// SAFETY: as above.
unsafe impl Send for OwnTlb {}

/// The soft machine.
pub struct Soft {
    arena: Arena,
    frames: Frames<Arena>,
    cpus: Vec<CpuState>,
    options: Options,
    asymmetric: bool,
    started: Instant,
    /// Allocations until one fails; negative: none fails.
    fail_in: AtomicI64,
    /// Allocations until all fail; negative: none fails.
    fail_from: AtomicI64,
    memory: std::sync::OnceLock<&'static [PerCpu]>,
}

thread_local! {
    static THIS_CPU: Cell<u32> = const { Cell::new(u32::MAX) };
}

fn leak<T>(count: usize, make: impl FnMut() -> T) -> &'static [T] {
    let mut make = make;
    Vec::leak((0..count).map(|_| make()).collect())
}

impl Soft {
    /// Starts a machine and its memory core, which live as long as the process.
    ///
    /// # Errors
    /// When the host has no address space left, or the options are invalid.
    pub fn start(options: Options) -> std::io::Result<&'static SoftMemory> {
        let frames = options.memory / PAGE_SIZE;
        if options.cpus == 0 || options.cpus > MAX_CPUS || frames < 16 {
            return Err(std::io::Error::other(format!(
                "a soft machine has 1 to {MAX_CPUS} CPUs and at least 64 KiB of memory"
            )));
        }
        let device = options.device / PAGE_SIZE;
        let arena = Arena::new(frames + device, options.check)?;
        let descriptors = leak(frames as usize, Descriptor::new);
        let caches = leak(options.cpus, FrameCache::new);
        let source = Frames::new(
            arena,
            Frame(FIRST),
            descriptors,
            caches,
            std::iter::once(FIRST..FIRST + frames),
        )
        .map_err(std::io::Error::other)?;
        let source = if options.zeroed_pool {
            source
        } else {
            source.without_pool()
        };
        if options.reclaims {
            source.set_watermarks(Watermarks::of(frames));
        }
        let cpus = (0..options.cpus)
            .map(|_| CpuState {
                target: Target::new(),
                tlb: OwnTlb(Tlb::new()),
                space: Local::new(0),
                in_atomic: Local::new(0),
                taken: AtomicBool::new(false),
            })
            .collect();
        let (count, record, events) = (options.cpus, options.record, options.events);
        let machine = Soft {
            arena,
            frames: source,
            cpus,
            options,
            asymmetric: host::has_membarrier(),
            started: Instant::now(),
            fail_in: AtomicI64::new(-1),
            fail_from: AtomicI64::new(-1),
            memory: std::sync::OnceLock::new(),
        };
        let per_cpu = leak(count, PerCpu::new);
        if record != Mask::NONE {
            let events = if record.has_events() { events } else { 0 };
            for cpu in per_cpu {
                let words = leak(Tracer::words(events), || Local::new(0));
                cpu.tracer().begin(words, record);
            }
        }
        let participants = leak(count, Participant::new);
        let memory: &'static SoftMemory =
            Box::leak(Box::new(Memory::new(machine, per_cpu, participants)));
        // The machine counts its flushes in the core's counters.
        let _ = memory.machine().memory.set(memory.cpus());
        let huge = memory.machine().options.huge;
        memory.set_huge_mode(huge);
        memory.set_shared_huge_mode(huge);
        Ok(memory)
    }

    /// Creates an address space with the layout of a Linux process.
    ///
    /// # Errors
    /// When memory is short.
    pub fn space(
        memory: &'static SoftMemory,
        policy: Policy,
    ) -> Result<SoftSpace, faultless_frames::NoMemory> {
        let commit_pages = memory.machine().options.memory / PAGE_SIZE;
        OwnedSpace::new(
            memory,
            policy,
            Layout {
                commit_pages,
                ..Layout::LINUX_X86_64
            },
        )
    }

    /// Returns the options with which the machine was started.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Returns the frames of the device.
    pub fn device_frames(&self) -> Range<u64> {
        let first = FIRST + self.options.memory / PAGE_SIZE;
        first..first + self.options.device / PAGE_SIZE
    }

    /// Returns the frame allocator.
    pub fn allocator(&self) -> &Frames<Arena> {
        &self.frames
    }

    /// Lets `allocations` more allocations succeed, then one fail, and the rest
    /// succeed again. `None`: none fails.
    pub fn fail_in(&self, allocations: Option<u32>) {
        self.fail_in
            .store(allocations.map_or(-1, i64::from), Ordering::Relaxed);
    }

    /// Lets `allocations` more allocations succeed, then all fail until the next call. `None`: none fails.
    pub fn fail_from(&self, allocations: Option<u32>) {
        self.fail_from
            .store(allocations.map_or(-1, i64::from), Ordering::Relaxed);
    }

    /// Whether the failure asked for by [`Soft::fail_in`] has happened.
    pub fn has_failed(&self) -> bool {
        self.fail_in.load(Ordering::Relaxed) < 0
    }

    /// Binds the calling thread to a CPU that no thread runs.
    pub(crate) fn take(&self, cpu: Cpu) {
        let count = self.cpus.len();
        assert!(
            cpu.index() < count,
            "the machine has {count} CPUs, and not number {}",
            cpu.0
        );
        assert_eq!(THIS_CPU.get(), u32::MAX, "this thread is a CPU already");
        // Acquire: pairs with the release of the thread that ran this CPU before.
        let taken = self.state(cpu).taken.swap(true, Ordering::Acquire);
        assert!(!taken, "CPU {} runs on another thread", cpu.0);
        THIS_CPU.set(cpu.0);
        self.trace_switch(cpu, host::this_thread);
    }

    /// Records that a thread has taken CPU `cpu`, or that none has.
    fn trace_switch(&self, cpu: Cpu, thread: fn() -> Switch) {
        if let Some(now) = self.trace_start(cpu) {
            self.trace(cpu, Event::switch(now, thread()));
        }
    }

    /// Unbinds the calling thread from CPU `cpu`, which it runs.
    pub(crate) fn leave(&self, cpu: Cpu) {
        self.trace_switch(cpu, Switch::idle);
        THIS_CPU.set(u32::MAX);
        self.state(cpu).taken.store(false, Ordering::Release);
    }

    pub(crate) fn state(&self, cpu: Cpu) -> &CpuState {
        &self.cpus[cpu.index()]
    }

    /// Waits for the accesses that other CPUs have begun.
    pub(crate) fn wait_for_accesses(&self) {
        let me = THIS_CPU.get() as usize;
        for (_, state) in self.cpus.iter().enumerate().filter(|(cpu, _)| *cpu != me) {
            state.target.wait();
        }
    }

    pub(crate) fn is_asymmetric(&self) -> bool {
        self.asymmetric
    }

    fn count(&self, cpu: Cpu, counter: Counter, times: u64) {
        if let Some(cpus) = self.memory.get() {
            cpus[cpu.index()].counters().add(counter, times);
        }
    }

    fn count_flushed(&self, cpu: Cpu, flushed: Flushed) {
        match flushed {
            Flushed::All => self.count(cpu, Counter::TlbLocalFlushAll, 1),
            Flushed::Pages(pages) => self.count(cpu, Counter::TlbLocalFlushOne, pages),
        }
    }

    /// Executes the flushes that other CPUs have requested of this CPU.
    #[cold]
    pub(crate) fn answer(&self, cpu: Cpu) {
        let state = self.state(cpu);
        let tlb = &state.tlb.0;
        let start = self.trace_start(cpu);
        let mut numbers = 0..0;
        state.target.answer(|mailbox| {
            numbers = mailbox.number - mailbox.received..mailbox.number;
            self.count(cpu, Counter::TlbRemoteFlushReceived, mailbox.received);
            if mailbox.ranges.is_everything() {
                tlb.flush_all();
                self.count_flushed(cpu, Flushed::All);
            } else {
                let ranges = mailbox.ranges.of(state.space.get());
                self.count_flushed(cpu, tlb.flush(ranges));
            }
        });
        if let Some(start) = start {
            let kind = Kind::ShootdownReceived;
            let event = Event::slice(kind, start, self.now(), numbers.start, numbers.end);
            self.trace(cpu, event);
        }
    }

    /// Returns the time, if CPU `cpu`, the calling one, is traced.
    #[inline]
    fn trace_start(&self, cpu: Cpu) -> Option<u64> {
        let tracer = self.memory.get()?[cpu.index()].tracer();
        tracer.is_on().then(|| self.now())
    }

    #[cold]
    fn trace(&self, cpu: Cpu, event: Event) {
        if let Some(cpus) = self.memory.get() {
            cpus[cpu.index()].tracer().record(event);
        }
    }
}

impl PhysicalMemory for Soft {
    #[inline]
    fn pointer(&self, frame: Frame) -> NonNull<u8> {
        self.arena.pointer(frame)
    }
}

impl Wait for Soft {
    #[inline]
    fn relax(&self, turn: u32) {
        self.arena.relax(turn);
    }
    fn park(&self, word: &AtomicU32, expected: u32) {
        self.arena.park(word, expected);
    }
    fn wake(&self, word: &AtomicU32, count: u32) {
        self.arena.wake(word, count);
    }
}

impl faultless_paging::Tlb for Soft {
    #[inline]
    fn marks_loads(&self) -> bool {
        true
    }

    fn flush(&self, cpus: &CpuSet, space: SpaceId, flush: Flush) {
        let me = self.cpu();
        // The entries were changed before: a CPU that joins the set from now on sees the new ones.
        std::sync::atomic::fence(Ordering::SeqCst);
        if cpus.contains(me) && self.state(me).space.get() == space.id {
            let range = core::iter::once(flush.start..flush.end);
            self.count_flushed(me, self.state(me).tlb.0.flush(range));
        }
        if cpus.is_only(me) {
            return;
        }
        self.count(me, Counter::TlbRemoteFlush, 1);
        for cpu in cpus.iter().filter(|&cpu| cpu != me) {
            let number = self.state(cpu).target.request(space, flush);
            if let Some(now) = self.trace_start(me) {
                let kind = Kind::ShootdownSent;
                self.trace(me, Event::instant(kind, now, u64::from(cpu.0), number));
            }
        }
        publish(self.asymmetric);
        for cpu in cpus.iter().filter(|&cpu| cpu != me) {
            self.state(cpu).target.wait();
        }
    }
}

impl Machine for Soft {
    type Format = Entries;
    type Frames = Frames<Arena>;

    #[inline]
    fn frames(&self) -> &Frames<Arena> {
        &self.frames
    }

    #[inline]
    fn cpu(&self) -> Cpu {
        let cpu = THIS_CPU.get();
        debug_assert_ne!(cpu, u32::MAX, "this thread runs no CPU");
        Cpu(cpu)
    }

    fn refuses_data(&self, _access: Access) -> bool {
        self.options.execute_only
    }

    const READS_MAY_WRITE: bool = true;

    fn read_will_write(&self) -> bool {
        self.options.atomics == Atomics::Told && self.state(self.cpu()).in_atomic.get() != 0
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }

    #[inline]
    fn may_allocate(&self) -> bool {
        let one = self.fail_in.load(Ordering::Relaxed);
        let all = self.fail_from.load(Ordering::Relaxed);
        if one < 0 && all < 0 {
            return true;
        }
        if all == 0 || (one >= 0 && self.fail_in.fetch_sub(1, Ordering::Relaxed) == 0) {
            return false;
        }
        if all > 0 {
            self.fail_from.fetch_sub(1, Ordering::Relaxed);
        }
        true
    }
}
