//! The port: what `faultless-mm` needs to know about a machine.

use std::cell::Cell;
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError, atomic::AtomicU64, atomic::Ordering};

use faultless_mm::{
    Access, AddressSpace, CpuSet, Descriptor, EntryFormat, Flush, Frame, FrameSource, Memory,
    NoMemory, Outcome, PAGE_SIZE, Participant, PerCpu, PhysicalMemory, SpaceId, Tlb, Wait, X86_64,
};

/// A page of physical memory.
#[repr(C, align(4096))]
struct Page([u8; PAGE_SIZE as usize]);

/// A TLB: the frame of a page, and whether it may be written.
type Translations = HashMap<u64, (Frame, bool)>;

/// The machine.
pub struct Machine {
    memory: *mut Page,
    frames: Frames,
    tlbs: Vec<Mutex<Translations>>,
}

// SAFETY: memory is shared as the core says; everything else is synchronised.
unsafe impl Send for Machine {}
// SAFETY: as above.
unsafe impl Sync for Machine {}

/// The frame source: a stack.
pub struct Frames {
    free: Mutex<Vec<Frame>>,
    descriptors: Vec<Descriptor>,
    memory: *mut Page,
}

thread_local! {
    static CPU: Cell<u32> = const { Cell::new(0) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Machine {
    /// Starts a machine with `cpus` CPUs and `frames` frames. Frame 0 is the shared zero page.
    pub fn start(cpus: usize, frames: usize) -> &'static Memory<Machine> {
        let pages = Vec::from_iter((0..frames).map(|_| Page([0; PAGE_SIZE as usize])));
        let memory = Vec::leak(pages).as_mut_ptr();
        let machine = Machine {
            memory,
            frames: Frames {
                free: Mutex::new((1..frames as u64).map(Frame).collect()),
                descriptors: (0..frames).map(|_| Descriptor::new()).collect(),
                memory,
            },
            tlbs: (0..cpus).map(|_| Mutex::default()).collect(),
        };
        let per_cpu = Vec::leak((0..cpus).map(|_| PerCpu::new()).collect());
        let participants = Vec::leak((0..cpus).map(|_| Participant::new()).collect());
        Box::leak(Box::new(Memory::new(machine, per_cpu, participants)))
    }

    /// Makes the calling thread CPU `cpu` while `work` runs.
    pub fn as_cpu<R>(memory: &Memory<Machine>, cpu: u32, work: impl FnOnce() -> R) -> R {
        let before = CPU.replace(cpu);
        memory.online(faultless_mm::Cpu(cpu));
        let result = work();
        memory.offline(faultless_mm::Cpu(cpu));
        CPU.set(before);
        result
    }

    /// The number of free frames.
    pub fn free_frames(&self) -> usize {
        lock(&self.frames.free).len()
    }
}

impl PhysicalMemory for Machine {
    fn pointer(&self, frame: Frame) -> NonNull<u8> {
        // SAFETY: frames come from our own source, which stays inside the memory.
        unsafe { NonNull::new_unchecked(self.memory.add(frame.0 as usize).cast()) }
    }
}

impl FrameSource for Frames {
    fn allocate(&self, _cpu: faultless_mm::Cpu) -> Result<Frame, NoMemory> {
        lock(&self.free).pop().ok_or(NoMemory)
    }

    fn allocate_zeroed(&self, cpu: faultless_mm::Cpu) -> Result<Frame, NoMemory> {
        let frame = self.allocate(cpu)?;
        // SAFETY: inside the memory, and the caller's alone.
        unsafe { self.memory.add(frame.0 as usize).write_bytes(0, 1) };
        Ok(frame)
    }

    fn free(&self, _cpu: faultless_mm::Cpu, frame: Frame) {
        lock(&self.free).push(frame);
    }

    fn descriptor(&self, frame: Frame) -> &Descriptor {
        &self.descriptors[frame.0 as usize]
    }

    fn extent(&self) -> std::ops::Range<u64> {
        0..self.descriptors.len() as u64
    }

    fn zero_frame(&self) -> Frame {
        Frame(0)
    }
}

impl Tlb for Machine {
    fn flush(&self, cpus: &CpuSet, _space: SpaceId, flush: Flush) {
        // A CPU holds its TLB's mutex during an access: when this returns, no
        // access through an old translation is under way or can begin.
        for cpu in cpus.iter() {
            let range = flush.start / PAGE_SIZE..flush.end / PAGE_SIZE;
            lock(&self.tlbs[cpu.index()]).retain(|page, _| !range.contains(page));
        }
    }
}

impl Wait for Machine {
    fn relax(&self, _turn: u32) {
        std::thread::yield_now();
    }
    fn park(&self, _word: &faultless_mm::AtomicU32, _expected: u32) {
        std::thread::yield_now();
    }
    fn wake(&self, _word: &faultless_mm::AtomicU32, _count: u32) {}
}

impl faultless_mm::Machine for Machine {
    type Format = X86_64;
    type Frames = Frames;

    fn frames(&self) -> &Frames {
        &self.frames
    }
    fn cpu(&self) -> faultless_mm::Cpu {
        faultless_mm::Cpu(CPU.get())
    }
}

/// A CPU that runs an address space.
pub struct Cpu<'a> {
    space: &'a AddressSpace<Machine>,
    number: u32,
}

impl<'a> Cpu<'a> {
    /// Runs an address space on CPU `number`.
    pub fn enter(space: &'a AddressSpace<Machine>, number: u32) -> Self {
        space.cpus().insert(faultless_mm::Cpu(number));
        Self { space, number }
    }

    /// Loads the word at an address that is a multiple of 8.
    pub fn load(&self, address: u64) -> Result<u64, String> {
        self.access(address, Access::Read, |word| word.load(Ordering::Relaxed))
    }

    /// Stores a word.
    pub fn store(&self, address: u64, value: u64) -> Result<(), String> {
        self.access(address, Access::Write, |word| {
            word.store(value, Ordering::Relaxed)
        })
    }

    /// Acts as hardware does: the TLB, then the tables, then a fault.
    fn access<R>(
        &self,
        address: u64,
        access: Access,
        act: impl Fn(&AtomicU64) -> R,
    ) -> Result<R, String> {
        let machine = self.space.memory().machine();
        let (page, write) = (address / PAGE_SIZE, access == Access::Write);
        loop {
            let mut tlb = lock(&machine.tlbs[self.number as usize]);
            let hit = tlb
                .get(&page)
                .copied()
                .filter(|(_, writable)| *writable || !write);
            let frame = hit.map(|(frame, _)| frame).or_else(|| {
                let entry = self.space.entry(address)?;
                let frame = X86_64::FORMAT.frame(entry);
                tlb.insert(page, (frame, X86_64::FORMAT.is_writable(entry)));
                X86_64::FORMAT.permits(entry, access).then_some(frame)
            });
            if let Some(frame) = frame {
                let offset = (address % PAGE_SIZE) as usize;
                // SAFETY: inside a frame, aligned, and every access is atomic.
                let word = unsafe { machine.pointer(frame).add(offset).cast::<AtomicU64>() };
                // SAFETY: as above.
                return Ok(act(unsafe { word.as_ref() }));
            }
            drop(tlb);
            match self.space.fault(address, access) {
                Outcome::Resolved => {}
                error => return Err(format!("{error:?} at {address:#x}")),
            }
        }
    }
}

impl Drop for Cpu<'_> {
    fn drop(&mut self) {
        lock(&self.space.memory().machine().tlbs[self.number as usize]).clear();
        self.space.cpus().remove(faultless_mm::Cpu(self.number));
    }
}
