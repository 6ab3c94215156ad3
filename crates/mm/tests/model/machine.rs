//! A machine with a few frames.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Mutex;

#[cfg(loom)]
use loom::{sync, thread, thread_local};
#[cfg(shuttle)]
use shuttle::{sync, thread, thread_local};

use faultless_frames::Flags;
use faultless_mm::{
    Cpu, CpuSet, Descriptor, EntryFormat, Flush, Frame, FrameSource, Machine, MarkedX86_64,
    NoMemory, PAGE_SIZE, PhysicalMemory, SpaceId, Tlb, Wait,
};
use faultless_paging::ENTRIES;
use faultless_sync::atomic::{AtomicU32, Ordering, fence};

/// Turns of a wait loop that loom explores.
#[cfg(loom)]
const TURNS: u32 = 3;

/// Number of device frames. They follow all other frames and have no descriptors.
const DEVICE: usize = 4;

/// The content of a free frame.
const FREE: u64 = 0xdead_dead_dead_dead;
/// The content of a frame that was allocated and not zeroed.
const STALE: u64 = 0x01d0_01d0_01d0_01d0;

thread_local! {
    static CPU: Cell<u32> = Cell::new(u32::MAX);
}

std::thread_local! {
    /// Whether TLBs ignore flushes: the broken variant.
    static LAZY: Cell<bool> = const { Cell::new(false) };
    /// Whether table walks of this model's machines mark the entries that they load.
    static MARKS: Cell<bool> = const { Cell::new(false) };
    /// Whether TLBs of this model's machines must not hold a huge page and a page of it.
    static BREAKS: Cell<bool> = const { Cell::new(false) };
}

/// Runs a model on a machine with table walks that mark the entries that they load.
pub fn with_marks(model: impl FnOnce()) {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            MARKS.set(false);
        }
    }
    let _reset = Reset;
    MARKS.set(true);
    model();
}

/// Runs a model on a machine with TLBs that must not hold a huge page and a page of it (AArch64).
#[cfg(loom)]
pub fn with_breaks(model: impl FnOnce()) {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            BREAKS.set(false);
        }
    }
    let _reset = Reset;
    BREAKS.set(true);
    model();
}

/// Under shuttle, some executions use such a machine.
#[cfg(shuttle)]
fn breaks_before_make() -> bool {
    use shuttle::rand::{Rng, thread_rng};
    BREAKS.get() || thread_rng().gen_bool(0.5)
}

/// Under loom, only the models of such machines do.
#[cfg(loom)]
fn breaks_before_make() -> bool {
    BREAKS.get()
}

/// Under shuttle, some executions use a machine with marks and some do not.
#[cfg(shuttle)]
fn marks_loads() -> bool {
    use shuttle::rand::{Rng, thread_rng};
    MARKS.get() || thread_rng().gen_bool(0.5)
}

/// Under shuttle, mappings get huge pages in half of the executions, but where a flaw has to be found.
#[cfg(shuttle)]
pub fn wants_huge() -> bool {
    use shuttle::rand::{Rng, thread_rng};
    !LAZY.get() && !faultless_sync::is_flawed() && thread_rng().gen_bool(0.5)
}

/// Under loom, only the models of marks use such a machine.
#[cfg(loom)]
fn marks_loads() -> bool {
    MARKS.get()
}

/// Runs a model on a machine where flushes do nothing.
pub fn with_lazy_tlbs(model: impl FnOnce()) {
    struct Mended;
    impl Drop for Mended {
        fn drop(&mut self) {
            LAZY.set(false);
        }
    }
    let _mended = Mended;
    LAZY.set(true);
    model();
}

/// Makes the calling thread a CPU.
pub fn set_cpu(cpu: u32) {
    CPU.with(|c| c.set(cpu));
}

/// Storage of a frame, for page tables and slab objects.
#[repr(align(4096))]
struct Place(MaybeUninit<[u8; PAGE_SIZE as usize]>);

impl Place {
    fn new() -> Self {
        // The first bytes stand for a page's instructions, and a probe may read them.
        Self(MaybeUninit::zeroed())
    }
}

/// Bytes of a frame that stand for instructions.
#[cfg(shuttle)]
const INSTRUCTIONS: usize = 64;

/// A translation that a CPU has cached.
#[derive(Clone, Copy)]
pub struct Translation {
    pub frame: Frame,
    pub write: bool,
}

impl Translation {
    /// That of a page in the huge page that this one maps.
    pub fn part(self, page: u64) -> Self {
        let frame = Frame(self.frame.0 + page % ENTRIES as u64);
        Self { frame, ..self }
    }
}

/// A CPU's TLB.
#[derive(Default)]
pub struct CpuTlb {
    /// By page.
    pub entries: HashMap<u64, Translation>,
    /// Those of huge pages, by first page. A small one of the same page may be there, too.
    pub huge: HashMap<u64, Translation>,
    /// The walk cache: tables that walks have reached, by level and first page. The flag says whether stores
    /// are allowed through to the pages below. A walk begins at the lowest cached table.
    pub tables: HashMap<(usize, u64), (Frame, bool)>,
    /// Whether a table walk is under way.
    pub walks: bool,
}

impl CpuTlb {
    /// Drops everything, as a CPU does when it leaves an address space.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.huge.clear();
        self.tables.clear();
    }

    /// Whether a translation leads to a frame that `is_meant` accepts.
    fn has(&self, is_meant: impl Fn(Frame) -> bool) -> bool {
        let parts = (0..ENTRIES as u64).flat_map(|at| self.huge.values().map(move |t| t.part(at)));
        let mut all = self.entries.values().copied().chain(parts);
        all.any(|translation| is_meant(translation.frame))
    }
}

/// Free frames, used frames, and page contents.
struct Pool {
    free: Vec<Frame>,
    spent: Vec<Frame>,
    used: HashSet<Frame>,
    /// The first frame of the shared huge zero page.
    huge_zero: Option<Frame>,
    /// A word stands for a page's content.
    words: Vec<u64>,
}

/// A cell that loom watches: each access to a frame is a read of it, each free a write. Loom reports a pair
/// that the code does not order.
#[cfg(loom)]
#[derive(Default)]
struct Watched(loom::cell::UnsafeCell<()>);

// SAFETY: loom checks the uses.
#[cfg(loom)]
unsafe impl Sync for Watched {}

/// The machine.
pub struct Model {
    places: Box<[Place]>,
    #[cfg(loom)]
    watched: Box<[Watched]>,
    descriptors: Box<[Descriptor]>,
    pool: Mutex<Pool>,
    tlbs: Box<[Mutex<CpuTlb>]>,
    /// What vCPUs have cached of their second-level tables: one for each CPU.
    guest_tlbs: Box<[Mutex<CpuTlb>]>,
    marks_loads: bool,
    breaks_before_make: std::sync::atomic::AtomicBool,
    /// Flushes that other CPUs were asked for.
    remote_flushes: std::sync::atomic::AtomicU64,
    bus: AtomicU32,
    /// Whether the end of a userfaultfd has woken a fault.
    left_behind: std::sync::atomic::AtomicBool,
    /// Whether it reclaims.
    is_short: std::sync::atomic::AtomicBool,
    /// A futex-like queue for parked threads.
    queue: sync::Mutex<()>,
    woken: sync::Condvar,
    #[cfg(shuttle)]
    gate: Gate,
    /// One allocation in `failing` fails; 0: none.
    #[cfg(shuttle)]
    failing: std::sync::atomic::AtomicU32,
}

/// Where a CPU's flushes wait until the model opens the gate.
#[cfg(shuttle)]
#[derive(Default)]
struct Gate {
    /// The CPUs that must wait, and whether each has arrived.
    shut_for: sync::Mutex<Vec<(u32, bool)>>,
    changed: sync::Condvar,
}

#[cfg(shuttle)]
impl Model {
    /// Makes one allocation in `count` fail; 0: none.
    pub fn fail_one_in(&self, count: u32) {
        self.failing.store(count, Ordering::Relaxed);
    }

    /// Makes the next flush of a CPU wait: that of a zap. No huge page is flushed for its split any more, because that
    /// flush holds the entry's claim, for which others wait.
    pub fn shut_gate(&self, cpu: u32) {
        self.breaks_before_make
            .store(false, std::sync::atomic::Ordering::Relaxed);
        self.gate.shut_for.lock().unwrap().push((cpu, false));
    }

    /// Waits until all those flushes have arrived.
    pub fn await_gate(&self) {
        let mut shut_for = self.gate.shut_for.lock().unwrap();
        while shut_for.iter().any(|(_, has_come)| !has_come) {
            shut_for = self.gate.changed.wait(shut_for).unwrap();
        }
    }

    /// Lets all waiting flushes continue.
    pub fn open_gate(&self) {
        self.gate.shut_for.lock().unwrap().clear();
        self.gate.changed.notify_all();
    }

    /// Lets the flush of one CPU continue.
    pub fn open_gate_for(&self, cpu: u32) {
        let mut shut_for = self.gate.shut_for.lock().unwrap();
        shut_for.retain(|(shut, _)| *shut != cpu);
        self.gate.changed.notify_all();
    }

    fn pass_gate(&self) {
        let cpu = CPU.with(Cell::get);
        let mut shut_for = self.gate.shut_for.lock().unwrap();
        while let Some(own) = shut_for.iter_mut().find(|(shut, _)| *shut == cpu) {
            // Only once: otherwise two waiting CPUs wake each other for ever.
            if !core::mem::replace(&mut own.1, true) {
                self.gate.changed.notify_all();
            }
            shut_for = self.gate.changed.wait(shut_for).unwrap();
        }
    }
}

impl Model {
    /// Creates a machine with `frames` frames, one of which is the zero page, and `cpus` CPUs.
    pub fn new(frames: usize, cpus: usize) -> Self {
        Self {
            places: (0..frames).map(|_| Place::new()).collect(),
            #[cfg(loom)]
            watched: (0..frames).map(|_| Watched::default()).collect(),
            descriptors: (0..frames).map(|_| Descriptor::new()).collect(),
            pool: Mutex::new(Pool {
                // Frame 1 is the zero page; there is no frame 0.
                free: (2..=frames as u64).rev().map(Frame).collect(),
                spent: Vec::new(),
                used: HashSet::new(),
                huge_zero: None,
                words: vec![0; frames + DEVICE],
            }),
            tlbs: (0..cpus).map(|_| Mutex::default()).collect(),
            guest_tlbs: (0..cpus).map(|_| Mutex::default()).collect(),
            marks_loads: marks_loads(),
            breaks_before_make: std::sync::atomic::AtomicBool::new(breaks_before_make()),
            remote_flushes: std::sync::atomic::AtomicU64::new(0),
            bus: AtomicU32::new(0),
            left_behind: std::sync::atomic::AtomicBool::new(false),
            is_short: std::sync::atomic::AtomicBool::new(false),
            queue: sync::Mutex::new(()),
            woken: sync::Condvar::new(),
            #[cfg(shuttle)]
            gate: Gate::default(),
            #[cfg(shuttle)]
            failing: std::sync::atomic::AtomicU32::new(0),
        }
    }

    /// The device's frames.
    pub fn device_frames(&self) -> Range<u64> {
        let first = 1 + self.descriptors.len() as u64;
        first..first + DEVICE as u64
    }

    /// Whether a fault has waited until its handler was gone.
    pub fn has_left_behind(&self) -> bool {
        self.left_behind.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Whether a frame is of the shared huge zero page.
    fn is_huge_zero(&self, frame: Frame) -> bool {
        let first = self.pool.lock().unwrap().huge_zero;
        first.is_some_and(|first| block(first).any(|of| of == frame))
    }

    /// From now on memory is short, so that it is reclaimed when the model asks for that.
    pub fn be_short(&self) {
        self.is_short
            .store(true, std::sync::atomic::Ordering::Relaxed);
    }

    /// Whether a TLB still maps a frame of the device.
    pub fn is_device_cached(&self) -> bool {
        let device = self.device_frames();
        self.tlbs.iter().any(|tlb| {
            let tlb = tlb.lock().unwrap();
            tlb.has(|frame| device.contains(&frame.0))
        })
    }

    /// The number of frames not freed. Under loom, frames of slab objects do not count.
    pub fn used_frames(&self) -> usize {
        let pool = self.pool.lock().unwrap();
        let has_objects = |frame: Frame| self.descriptor(frame).flags().has(Flags::SLAB);
        let lost = |frame: &&Frame| !(cfg!(loom) && has_objects(**frame));
        pool.used.iter().filter(lost).count()
    }

    /// The content of a page's frame, as one word.
    pub fn word(&self, frame: Frame) -> u64 {
        self.pool.lock().unwrap().words[index(frame)]
    }

    /// Writes to a page's frame.
    pub fn set_word(&self, frame: Frame, word: u64) {
        self.pool.lock().unwrap().words[index(frame)] = word;
    }

    /// A point between two accesses where loom or shuttle may switch threads.
    pub fn step(&self) {
        // A write, because loom reorders only conflicting accesses.
        self.bus.fetch_add(1, Ordering::Relaxed);
    }

    /// A CPU's TLB.
    pub fn tlb(&self, cpu: u32) -> &Mutex<CpuTlb> {
        &self.tlbs[cpu as usize]
    }

    /// What the vCPU on a CPU has cached.
    pub fn guest_tlb(&self, cpu: u32) -> &Mutex<CpuTlb> {
        &self.guest_tlbs[cpu as usize]
    }

    /// Flushes all vCPUs.
    pub fn flush_guests(&self) {
        fence(Ordering::SeqCst);
        if LAZY.get() {
            return;
        }
        for tlb in &self.guest_tlbs {
            self.step();
            loop {
                let mut tlb = tlb.lock().unwrap();
                if !tlb.walks {
                    tlb.clear();
                    break;
                }
                drop(tlb);
                thread::yield_now();
            }
        }
    }

    /// The value that a table walk by `cpu` gives a present entry before it uses the entry.
    pub fn loaded(&self, value: u64, cpu: u32) -> u64 {
        let format = MarkedX86_64::FORMAT;
        match self.marks_loads {
            true => format.loaded(value, Cpu(cpu)),
            false => value | format.accessed,
        }
    }

    /// The number of flush requests from one CPU to another.
    pub fn remote_flushes(&self) -> u64 {
        self.remote_flushes.load(Ordering::Relaxed)
    }

    /// Memory as table walks see it, which loom does not watch. No ordering in the code separates a walk from
    /// the free of its table, because the flush waits for the walk.
    pub fn hardware(&self) -> Hardware<'_> {
        Hardware(self)
    }

    fn check_uncached(&self, frame: Frame) {
        for tlb in self.tlbs.iter().chain(&self.guest_tlbs) {
            let tlb = tlb.lock().unwrap();
            let has_page = tlb.has(|of| of == frame);
            let has_table = tlb.tables.values().any(|&(table, _)| table == frame);
            // A panic's unwinding lets other threads run, and they must not find the lock poisoned.
            drop(tlb);
            assert!(!has_page, "a TLB holds a frame that is freed");
            assert!(!has_table, "a walk cache holds a table that is freed");
        }
    }

    /// Returns the frame at an address from [`PhysicalMemory::pointer`].
    pub fn frame_at(&self, at: NonNull<u8>) -> Frame {
        let frames = 1..=self.places.len() as u64;
        let found = frames.map(Frame).find(|frame| self.place(*frame) == at);
        found.expect("an address of a frame")
    }

    fn place(&self, frame: Frame) -> NonNull<u8> {
        NonNull::from(&self.places[index(frame)].0).cast()
    }
}

/// See [`Model::hardware`].
pub struct Hardware<'a>(&'a Model);

impl PhysicalMemory for Hardware<'_> {
    fn pointer(&self, frame: Frame) -> NonNull<u8> {
        self.0.place(frame)
    }
}

fn index(frame: Frame) -> usize {
    frame.0 as usize - 1
}

/// The frames of a huge page.
fn block(first: Frame) -> impl Iterator<Item = Frame> {
    (first.0..first.0 + ENTRIES as u64).map(Frame)
}

impl Pool {
    /// Takes the last free block of as many of the `frames` as a huge page has.
    fn take_block(&mut self, frames: usize) -> Option<Frame> {
        let blocks = (1..=frames / ENTRIES).rev();
        let mut firsts = blocks.map(|number| Frame((number * ENTRIES) as u64));
        let first = firsts.find(|&first| block(first).all(|frame| self.free.contains(&frame)))?;
        self.free
            .retain(|frame| !block(first).any(|of| of == *frame));
        Some(first)
    }
}

impl FrameSource for Model {
    fn missing(&self) -> u64 {
        self.is_short
            .load(std::sync::atomic::Ordering::Relaxed)
            .into()
    }

    fn allocate(&self, _cpu: Cpu) -> Result<Frame, NoMemory> {
        let mut pool = self.pool.lock().unwrap();
        let frame = pool.free.pop().ok_or(NoMemory)?;
        pool.used.insert(frame);
        pool.words[index(frame)] = STALE;
        Ok(frame)
    }

    fn allocate_zeroed(&self, cpu: Cpu) -> Result<Frame, NoMemory> {
        let frame = self.allocate(cpu)?;
        self.zero(frame);
        Ok(frame)
    }

    fn free(&self, _cpu: Cpu, frame: Frame) {
        assert_ne!(frame, self.zero_frame(), "the zero page is freed");
        assert!(!self.is_huge_zero(frame), "the huge zero page is freed");
        self.check_uncached(frame);
        #[cfg(loom)]
        self.watched[index(frame)].0.with_mut(|_| ());
        let mut pool = self.pool.lock().unwrap();
        let again = pool.free.contains(&frame) || pool.spent.contains(&frame);
        assert!(!again, "a frame is freed twice");
        pool.words[index(frame)] = FREE;
        pool.used.remove(&frame);
        // Loom does not see the mutex, and would take two successive uses of a frame by different threads for
        // a race. So a freed frame is not reused.
        if cfg!(loom) {
            pool.spent.push(frame);
        } else {
            pool.free.push(frame);
        }
    }

    fn allocate_huge(&self, _cpu: Cpu) -> Result<Frame, NoMemory> {
        let mut pool = self.pool.lock().unwrap();
        let first = pool.take_block(self.descriptors.len()).ok_or(NoMemory)?;
        for frame in block(first) {
            pool.used.insert(frame);
            pool.words[index(frame)] = STALE;
        }
        Ok(first)
    }

    fn descriptors_of_huge(&self, first: Frame) -> &[Descriptor] {
        &self.descriptors[index(first)..index(first) + ENTRIES]
    }

    fn huge_zero_frame(&self) -> Option<Frame> {
        self.pool.lock().unwrap().huge_zero
    }

    fn make_huge_zero(&self, _cpu: Cpu) -> Result<Frame, NoMemory> {
        let mut pool = self.pool.lock().unwrap();
        if pool.huge_zero.is_none() {
            // Its frames are never freed, and count as used by nothing.
            let first = pool.take_block(self.descriptors.len()).ok_or(NoMemory)?;
            block(first).for_each(|frame| pool.words[index(frame)] = 0);
            pool.huge_zero = Some(first);
        }
        pool.huge_zero.ok_or(NoMemory)
    }

    fn descriptor(&self, frame: Frame) -> &Descriptor {
        &self.descriptors[index(frame)]
    }

    fn extent(&self) -> std::ops::Range<u64> {
        1..1 + self.descriptors.len() as u64
    }

    fn zero_frame(&self) -> Frame {
        Frame(1)
    }
}

impl PhysicalMemory for Model {
    fn pointer(&self, frame: Frame) -> NonNull<u8> {
        #[cfg(loom)]
        self.watched[index(frame)].0.with(|_| ());
        self.place(frame)
    }

    fn zero(&self, frame: Frame) {
        self.set_word(frame, 0);
        #[cfg(shuttle)]
        // SAFETY: inside the frame, which the caller owns.
        unsafe {
            self.place(frame).as_ptr().write_bytes(0, INSTRUCTIONS);
        }
    }

    fn copy(&self, from: Frame, to: Frame) {
        #[cfg(shuttle)]
        // SAFETY: inside the frames; the caller owns `to`, and only one thread runs at a time.
        unsafe {
            let (from, to) = (self.place(from).as_ptr(), self.place(to).as_ptr());
            to.copy_from_nonoverlapping(from, INSTRUCTIONS);
        }
        let mut pool = self.pool.lock().unwrap();
        pool.words[index(to)] = pool.words[index(from)];
    }
}

impl Wait for Model {
    fn relax(&self, turn: u32) {
        #[cfg(loom)]
        match turn {
            // In loom a yielded thread runs again only when no other thread can. The first turn must not hide
            // what happens before that.
            0 => return,
            // On each further turn loom chooses freely which thread runs next, which multiplies the
            // executions. An execution with a long wait ends unexplored.
            TURNS.. => loom::skip_branch(),
            _ => {}
        }
        #[cfg(shuttle)]
        let _ = turn;
        thread::yield_now();
    }

    fn park(&self, word: &AtomicU32, expected: u32) {
        let queue = self.queue.lock().unwrap();
        if word.load(Ordering::Relaxed) == expected {
            drop(self.woken.wait(queue).unwrap());
        }
    }

    fn wake(&self, _word: &AtomicU32, _count: u32) {
        drop(self.queue.lock().unwrap());
        self.woken.notify_all();
    }
}

impl Tlb for Model {
    fn marks_loads(&self) -> bool {
        self.marks_loads
    }

    fn flush(&self, cpus: &CpuSet, _space: SpaceId, flush: Flush) {
        fence(Ordering::SeqCst);
        #[cfg(shuttle)]
        self.pass_gate();
        if LAZY.get() {
            return;
        }
        let pages = flush.start / PAGE_SIZE..flush.end / PAGE_SIZE;
        for cpu in cpus.iter() {
            let is_remote = cpu != self.cpu();
            self.remote_flushes
                .fetch_add(u64::from(is_remote), Ordering::Relaxed);
            self.step();
            loop {
                let mut tlb = self.tlb(cpu.0).lock().unwrap();
                if !tlb.walks {
                    tlb.entries.retain(|page, _| !pages.contains(page));
                    // A flush of one page drops the huge translation.
                    tlb.huge.retain(|&start, _| {
                        pages.end <= start || start + ENTRIES as u64 <= pages.start
                    });
                    if flush.tables {
                        tlb.tables.retain(|(_, page), _| !pages.contains(page));
                    }
                    break;
                }
                // Hardware finishes a walk before it acknowledges the flush.
                drop(tlb);
                thread::yield_now();
            }
        }
    }
}

impl Machine for Model {
    type Format = MarkedX86_64;
    type Frames = Self;

    fn breaks_before_make(&self) -> bool {
        self.breaks_before_make
            .load(std::sync::atomic::Ordering::Relaxed)
    }

    #[cfg(shuttle)]
    fn may_allocate(&self) -> bool {
        use shuttle::rand::{Rng, thread_rng};
        let count = self.failing.load(Ordering::Relaxed);
        count == 0 || thread_rng().gen_range(0..count) != 0
    }

    fn frames(&self) -> &Self {
        self
    }

    fn park_for_handler(&self, word: &AtomicU32, expected: u32, _by_kernel: bool) -> bool {
        self.park(word, expected);
        // The end of a handler is no wake-up that a fault may need.
        if word.load(Ordering::Relaxed) > 1 {
            self.left_behind
                .store(true, std::sync::atomic::Ordering::Relaxed);
        }
        true
    }

    fn cpu(&self) -> Cpu {
        let cpu = CPU.with(Cell::get);
        assert_ne!(cpu, u32::MAX, "this thread runs no CPU");
        Cpu(cpu)
    }
}
