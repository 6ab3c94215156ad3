//! A machine of this crate's tests: threads as CPUs, frames on the heap, allocations that fail on demand.

use std::alloc::{Layout, alloc_zeroed};
use std::cell::Cell;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use faultless_frames::{Accounts, Descriptor, FrameCache, FrameSource, Frames, NoMemory, Use};
use faultless_paging::{Frame, PAGE_SIZE, PhysicalMemory};
use faultless_swap::{Compressed, Scratch, SwapMachine};
use faultless_sync::atomic::AtomicU32;
use faultless_sync::{Cpu, Wait};

thread_local! {
    static CPU: Cell<u32> = const { Cell::new(0) };
}

/// Sets the number of the calling thread's CPU.
pub fn set_cpu(cpu: u32) {
    CPU.set(cpu);
}

/// The memory of a machine.
#[derive(Clone, Copy)]
pub struct Arena(NonNull<u8>);

// SAFETY: plain memory; the code under test decides which thread uses which frame.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl PhysicalMemory for Arena {
    fn pointer(&self, frame: Frame) -> NonNull<u8> {
        // SAFETY: frames come from the source, and all lie in the arena.
        unsafe { self.0.add((frame.0 * PAGE_SIZE) as usize) }
    }

    fn forget(&self, frame: Frame) {
        // SAFETY: a frame that nothing uses.
        unsafe { self.pointer(frame).write_bytes(0xdb, PAGE_SIZE as usize) };
    }
}

impl Wait for Arena {
    fn relax(&self, _turn: u32) {
        std::thread::yield_now();
    }
    fn park(&self, _word: &AtomicU32, _expected: u32) {
        std::thread::yield_now();
    }
    fn wake(&self, _word: &AtomicU32, _count: u32) {}
}

/// The frame source: the default one, with failures on demand.
pub struct Source {
    frames: Frames<Arena>,
    /// Allocations until all fail.
    left: AtomicU64,
}

impl Source {
    fn may_allocate(&self) -> Result<(), NoMemory> {
        let left = self.left.load(Relaxed).checked_sub(1).ok_or(NoMemory)?;
        self.left.store(left, Relaxed);
        Ok(())
    }
}

impl FrameSource for Source {
    fn allocate(&self, cpu: Cpu) -> Result<Frame, NoMemory> {
        self.may_allocate()?;
        self.frames.allocate(cpu)
    }
    fn allocate_zeroed(&self, cpu: Cpu) -> Result<Frame, NoMemory> {
        self.may_allocate()?;
        self.frames.allocate_zeroed(cpu)
    }
    fn free(&self, cpu: Cpu, frame: Frame) {
        self.frames.free(cpu, frame);
    }
    fn descriptor(&self, frame: Frame) -> &Descriptor {
        self.frames.descriptor(frame)
    }
    fn extent(&self) -> std::ops::Range<u64> {
        self.frames.extent()
    }
    fn zero_frame(&self) -> Frame {
        self.frames.zero_frame()
    }
}

/// The machine. Its memory is never freed.
pub struct Machine {
    arena: Arena,
    source: Source,
}

pub fn leak<T: Default>(count: usize) -> &'static [T] {
    Vec::leak((0..count).map(|_| T::default()).collect())
}

impl Machine {
    pub fn new(frames: u64, cpus: usize) -> &'static Self {
        let size = (frames * PAGE_SIZE) as usize;
        let layout = Layout::from_size_align(size, PAGE_SIZE as usize).unwrap();
        // SAFETY: the size is not 0.
        let arena = Arena(NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap());
        let descriptors = Vec::leak((0..frames).map(|_| Descriptor::new()).collect());
        let frames = Frames::new(
            arena,
            Frame(0),
            descriptors,
            leak::<FrameCache>(cpus),
            std::iter::once(0..frames),
        );
        let source = Source {
            frames: frames.unwrap(),
            left: AtomicU64::new(u64::MAX),
        };
        Box::leak(Box::new(Self { arena, source }))
    }

    /// Lets `count` allocations succeed, and no more.
    pub fn fail_after(&self, count: u64) {
        self.source.left.store(count, Relaxed);
    }

    /// Returns the number of frames that can be allocated.
    pub fn available(&self) -> u64 {
        self.source.frames.census().available()
    }

    /// Returns the frames.
    pub fn frames(&self) -> &Frames<Arena> {
        &self.source.frames
    }

    /// Enters the frames of some devices, and returns what every frame is used for.
    pub fn audit(&self, devices: &[&Compressed<&'static Machine>]) -> Accounts {
        let audit = self.source.frames.audit().unwrap();
        for device in devices {
            device.for_each_frame(&mut |frame| audit.enter(frame, Use::SWAP).unwrap());
        }
        audit.close()
    }
}

impl PhysicalMemory for Machine {
    fn pointer(&self, frame: Frame) -> NonNull<u8> {
        self.arena.pointer(frame)
    }
}

impl Wait for Machine {
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

impl SwapMachine for Machine {
    type Frames = Source;
    fn frames(&self) -> &Source {
        &self.source
    }
    fn cpu(&self) -> Cpu {
        Cpu(CPU.get())
    }
}

/// A machine and a device on it.
pub fn device(
    frames: u64,
    cpus: usize,
    slots: u64,
) -> (&'static Machine, Compressed<&'static Machine>) {
    let machine = Machine::new(frames, cpus);
    let device = Compressed::new(machine, leak::<Scratch>(cpus), slots).unwrap();
    (machine, device)
}
