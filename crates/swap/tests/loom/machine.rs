//! The machine under the models, which has no memory, and a device that reports concurrent users of a slot.

use std::cell::Cell;
use std::ops::Range;
use std::ptr::NonNull;

use faultless_frames::{Descriptor, FrameSource, NoMemory};
use faultless_paging::{Frame, PhysicalMemory};
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

/// No frames: in models arrays are on the heap.
pub struct NoFrames(Descriptor);

impl FrameSource for NoFrames {
    fn allocate(&self, _cpu: Cpu) -> Result<Frame, NoMemory> {
        Err(NoMemory)
    }
    fn allocate_zeroed(&self, _cpu: Cpu) -> Result<Frame, NoMemory> {
        Err(NoMemory)
    }
    fn free(&self, _cpu: Cpu, _frame: Frame) {}
    fn descriptor(&self, _frame: Frame) -> &Descriptor {
        &self.0
    }
    fn extent(&self) -> Range<u64> {
        0..0
    }
    fn zero_frame(&self) -> Frame {
        Frame(0)
    }
}

pub struct Machine(NoFrames);

impl Machine {
    pub fn new() -> Self {
        Self(NoFrames(Descriptor::new()))
    }
}

impl PhysicalMemory for Machine {
    fn pointer(&self, _frame: Frame) -> NonNull<u8> {
        NonNull::dangling()
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
    type Frames = NoFrames;
    fn frames(&self) -> &NoFrames {
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
