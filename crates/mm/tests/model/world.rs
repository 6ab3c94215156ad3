//! A machine with one address space, created anew for each execution of a model.

use std::sync::{Arc, Mutex};

#[cfg(loom)]
use loom::thread::{self, JoinHandle};
#[cfg(shuttle)]
use shuttle::thread::{self, JoinHandle};

use faultless_mm::{
    AddressSpace, Caching, Census, Cpu, Device, HugeMode, Layout, Memory, OpenedDevice, OwnedSpace,
    Participant, PerCpu, Policy, flags,
};
use faultless_paging::{LEVELS, table};

use super::machine::{Model, set_cpu};
use super::processor::Processor;
use super::swap::Store;
use super::{FIXED, PAGE, RW};

/// An address space of the machine.
pub type Space = OwnedSpace<Model>;

/// Frames of the machine: the zero page and what a model needs.
const FRAMES: usize = if cfg!(loom) { 32 } else { 96 };

/// The state of one execution.
pub struct World {
    space: Space,
    participants: &'static [Participant],
    store: Mutex<Option<&'static Store>>,
}

impl World {
    /// A machine of `cpus` CPUs, all of which run one space. The caller is CPU 0.
    pub fn new(cpus: u32, policy: Policy) -> Arc<Self> {
        Self::with_others(cpus, 0, policy)
    }

    /// Like `new`, with `others` more CPUs for the space's children.
    pub fn with_others(running: u32, others: u32, policy: Policy) -> Arc<Self> {
        Self::with_frames(FRAMES, running, others, policy)
    }

    /// Like `with_others`, with `frames` frames of memory.
    pub fn with_frames(frames: usize, running: u32, others: u32, policy: Policy) -> Arc<Self> {
        let cpus = running + others;
        set_cpu(0);
        let per_cpu = (0..cpus).map(|_| PerCpu::new()).collect::<Vec<_>>();
        let participants = (0..cpus).map(|_| Participant::new()).collect::<Vec<_>>();
        let participants: &'static [Participant] = participants.leak();
        let machine = Model::new(frames, cpus as usize);
        let memory = Memory::new(machine, per_cpu.leak(), participants);
        let memory: &'static Memory<Model> = Box::leak(Box::new(memory));
        (0..cpus).for_each(|cpu| memory.online(Cpu(cpu)));
        let layout = Layout {
            lowest: 0,
            // The span that the page tables cover.
            end: table::span(LEVELS) * PAGE,
            ..Layout::LINUX_X86_64
        };
        let space = OwnedSpace::new(memory, policy, layout).expect("there are frames");
        (0..running).for_each(|cpu| space.cpus().insert(Cpu(cpu)));
        #[cfg(shuttle)]
        if super::machine::wants_huge() {
            memory.set_huge_mode(HugeMode::Always);
            memory.set_shared_huge_mode(HugeMode::Always);
        }
        Arc::new(Self {
            space,
            participants,
            store: Mutex::default(),
        })
    }

    /// Like `new`, with huge pages for all mappings.
    pub fn huge(cpus: u32, policy: Policy) -> Arc<Self> {
        let world = Self::new(cpus, policy);
        world.space.memory().set_huge_mode(HugeMode::Always);
        world
    }

    /// Whether mappings get huge pages.
    pub fn has_huge(&self) -> bool {
        self.space.memory().huge_mode() == HugeMode::Always
    }

    /// Keeps huge pages out of a scenario that is about small ones.
    #[cfg(shuttle)]
    pub fn keep_small(&self) {
        self.space.memory().set_huge_mode(HugeMode::Never);
        self.space.memory().set_shared_huge_mode(HugeMode::Never);
    }

    /// The address space.
    pub fn space(&self) -> &Space {
        &self.space
    }

    /// Gives the machine a swap device with `slots` slots, which ends with the world. Memory is short from now on.
    pub fn swap(&self, slots: u64) -> &'static Store {
        self.space.memory().machine().be_short();
        let store = Store::begin(self.space.memory(), slots);
        *self.store.lock().unwrap() = Some(store);
        store
    }

    /// Maps pages `first..first + count`.
    pub fn map(&self, first: u64, count: u64, prot: u32) {
        let at = self
            .space
            .mmap(first * PAGE, count * PAGE, prot, FIXED)
            .expect("there is room");
        assert_eq!(at, first * PAGE);
    }

    /// The machine's device.
    pub fn device(&self) -> Device<Model> {
        let memory = self.space.memory();
        let frames = memory.machine().device_frames();
        Device::new(memory, frames, Caching::Uncached, None, 0).expect("there are frames")
    }

    /// Maps the first `count` pages of a device, shared, at page `first`.
    pub fn map_device(&self, device: &Device<Model>, first: u64, count: u64) {
        let opened = OpenedDevice {
            device: Ok(device),
            offset: 0,
            file: 0,
            writable: true,
        };
        let (at, how) = (first * PAGE, flags::SHARED | flags::FIXED);
        let mapped = self
            .space
            .mmap_device(at, count * PAGE, RW, how, &opened)
            .expect("there is room");
        assert_eq!(mapped, at);
    }

    /// Runs `program` on CPU `cpu`, in a new thread.
    pub fn run<R: 'static + Send>(
        self: &Arc<Self>,
        cpu: u32,
        program: impl FnOnce(&Processor<'_>) -> R + Send + 'static,
    ) -> JoinHandle<R> {
        let world = self.clone();
        thread::spawn(move || {
            set_cpu(cpu);
            program(&Processor::new(&world.space, cpu))
        })
    }

    /// The word that a page of a child holds.
    pub fn word_of(&self, child: &Space, page: u64) -> u64 {
        let machine = child.memory().machine();
        let frame = child.translate(page * PAGE);
        frame.map_or(0, |frame| machine.word(frame))
    }

    /// Runs `program` in a child, on CPU `cpu`, which runs no space yet. Afterwards the CPU has left the
    /// child.
    pub fn run_in<R: 'static + Send>(
        self: &Arc<Self>,
        child: &Arc<Space>,
        cpu: u32,
        program: impl FnOnce(&Processor<'_>) -> R + Send + 'static,
    ) -> JoinHandle<R> {
        let child = child.clone();
        child.cpus().insert(Cpu(cpu));
        thread::spawn(move || {
            set_cpu(cpu);
            let result = program(&Processor::new(&child, cpu));
            let machine = child.memory().machine();
            machine.tlb(cpu).lock().unwrap().clear();
            child.cpus().remove(Cpu(cpu));
            result
        })
    }

    /// The calling thread as CPU 0.
    pub fn cpu(&self) -> Processor<'_> {
        Processor::new(&self.space, 0)
    }

    /// Checks the invariants once all threads are joined, frees everything, and checks that nothing is
    /// missing. Returns the census of the space before it is destroyed.
    pub fn finish(self: Arc<Self>) -> Census {
        self.finish_with(Vec::new())
    }

    /// Like `finish`, for the space and its children together.
    pub fn finish_with(self: Arc<Self>, children: Vec<Space>) -> Census {
        let family: Vec<_> = children.iter().chain([&self.space]).collect();
        let census = match faultless_mm::AddressSpace::verify_together(&family) {
            Ok(census) => census,
            Err(violation) => panic!("{violation}"),
        };
        let Ok(world) = Arc::try_unwrap(self) else {
            panic!("a thread still runs");
        };
        let Self {
            space,
            participants,
            store,
        } = world;
        let memory = space.memory();
        let machine = memory.machine();
        for cpu in 0..memory.cpus().len() as u32 {
            machine.tlb(cpu).lock().unwrap().clear();
        }
        space.destroy();
        children.into_iter().for_each(|child| {
            child.destroy();
        });
        for _ in 0..4 {
            memory.expedite();
        }
        memory.drain();
        if let Some(store) = store.into_inner().unwrap() {
            store.end();
        }
        assert_eq!(memory.deferred(), 0, "deferred without readers");
        assert_eq!(machine.used_frames(), 0, "frames were lost or found");
        let participants = std::ptr::from_ref(participants).cast_mut();
        let per_cpu = std::ptr::from_ref(memory.cpus()).cast_mut();
        let memory = std::ptr::from_ref(memory).cast_mut();
        // SAFETY: leaked in `new`, and no other reference is left.
        unsafe {
            drop(Box::from_raw(memory));
            drop(Box::from_raw(per_cpu));
            drop(Box::from_raw(participants));
        }
        census
    }
}
