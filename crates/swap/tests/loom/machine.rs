//! The machine under the models, and a device that reports concurrent users of a slot.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::cell::Cell;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Mutex;

use faultless_frames::{Descriptor, FrameSource, NoMemory};
use faultless_paging::{Frame, PAGE_SIZE, PhysicalMemory};
use faultless_swap::{DeviceError, Page, SwapDevice, SwapMachine};
use faultless_sync::atomic::AtomicU32;
use faultless_sync::{Cpu, Wait};
use loom::cell::UnsafeCell;
use loom::thread;

loom::thread_local! {
    static CPU: Cell<u32> = Cell::new(0);
}

/// Makes the calling thread a CPU.
pub fn set_cpu(cpu: u32) {
    CPU.with(|own| own.set(cpu));
}

const PAGE: usize = PAGE_SIZE as usize;

/// Frames on the heap, from number 1 on. Arrays need none: in models they are on the heap themselves.
pub struct Source {
    memory: NonNull<u8>,
    descriptors: Vec<Descriptor>,
    /// No lock of loom's: its order means nothing.
    free: Mutex<Vec<u64>>,
}

// SAFETY: plain memory; the code under test decides which thread uses which frame.
unsafe impl Send for Source {}
// SAFETY: as above.
unsafe impl Sync for Source {}

impl Source {
    fn new(count: u64) -> Self {
        let layout = Layout::from_size_align(PAGE * (count as usize + 1), PAGE).unwrap();
        // SAFETY: not empty.
        let memory = unsafe { alloc_zeroed(layout) };
        Self {
            memory: NonNull::new(memory).unwrap(),
            descriptors: (0..=count).map(|_| Descriptor::new()).collect(),
            free: Mutex::new((1..=count).rev().collect()),
        }
    }

    fn pointer(&self, frame: Frame) -> NonNull<u8> {
        // SAFETY: frames come from the source, and all lie in its memory.
        unsafe { self.memory.add(frame.0 as usize * PAGE) }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let layout = Layout::from_size_align(PAGE * self.descriptors.len(), PAGE).unwrap();
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.memory.as_ptr(), layout) };
    }
}

impl FrameSource for Source {
    fn allocate(&self, _cpu: Cpu) -> Result<Frame, NoMemory> {
        self.free.lock().unwrap().pop().map(Frame).ok_or(NoMemory)
    }
    fn allocate_zeroed(&self, _cpu: Cpu) -> Result<Frame, NoMemory> {
        Err(NoMemory)
    }
    fn free(&self, _cpu: Cpu, frame: Frame) {
        // A header in it names no atomics of loom's any more.
        // SAFETY: a frame that nothing uses.
        unsafe { self.pointer(frame).write_bytes(0xdb, PAGE) };
        let mut free = self.free.lock().unwrap();
        assert!(!free.contains(&frame.0), "a frame is freed twice");
        free.push(frame.0);
    }
    fn descriptor(&self, frame: Frame) -> &Descriptor {
        &self.descriptors[frame.0 as usize]
    }
    fn extent(&self) -> Range<u64> {
        1..self.descriptors.len() as u64
    }
    fn zero_frame(&self) -> Frame {
        Frame(0)
    }
}

pub struct Machine(Source);

impl Machine {
    /// A machine without frames.
    pub fn new() -> Self {
        Self::with_frames(0)
    }

    pub fn with_frames(count: u64) -> Self {
        Self(Source::new(count))
    }

    /// How many frames are free.
    pub fn free(&self) -> usize {
        self.0.free.lock().unwrap().len()
    }
}

impl PhysicalMemory for Machine {
    fn pointer(&self, frame: Frame) -> NonNull<u8> {
        self.0.pointer(frame)
    }
}

impl Wait for Machine {
    fn relax(&self, _turn: u32) {
        thread::yield_now();
    }
    fn park(&self, _word: &AtomicU32, _expected: u32) {
        thread::yield_now();
    }
    fn wake(&self, _word: &AtomicU32, _count: u32) {}
}

impl SwapMachine for Machine {
    type Frames = Source;
    fn frames(&self) -> &Source {
        &self.0
    }
    fn cpu(&self) -> Cpu {
        Cpu(CPU.with(Cell::get))
    }
}

/// A device that keeps a byte of each page. Loom reports a slot that is used twice at once.
pub struct Cells(Vec<UnsafeCell<Option<u8>>>);

// SAFETY: loom checks the use of the cells.
unsafe impl Sync for Cells {}
// SAFETY: as above.
unsafe impl Send for Cells {}

impl Cells {
    pub fn new(slots: usize) -> Self {
        Self((0..slots).map(|_| UnsafeCell::new(None)).collect())
    }
}

impl SwapDevice for Cells {
    fn slots(&self) -> u64 {
        self.0.len() as u64
    }
    fn write(&self, slot: u64, page: &Page) -> Result<(), DeviceError> {
        // SAFETY: loom checks it.
        self.0[slot as usize].with_mut(|cell| unsafe { *cell = Some(page[0]) });
        Ok(())
    }
    fn read(&self, slot: u64, page: &mut Page) -> Result<(), DeviceError> {
        // SAFETY: loom checks it.
        let byte = self.0[slot as usize].with(|cell| unsafe { *cell });
        page[0] = byte.ok_or(DeviceError::Failed)?;
        Ok(())
    }
    fn discard(&self, slot: u64) {
        // SAFETY: loom checks it.
        self.0[slot as usize].with_mut(|cell| unsafe { *cell = None });
    }
    fn is_fast(&self) -> bool {
        true
    }
}
