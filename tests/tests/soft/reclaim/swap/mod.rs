//! Pages that are swapped out and come back, under every policy.

mod advised;
mod costs;
mod failures;
mod limits;
mod off;
mod operations;
mod read_ahead;

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use faultless_mm::{
    AddressSpace, Counter, DeviceError, Errno, Opened, Policy, Probe, SlotCache, SwapDevice, Taken,
    advice, flags, remap_flags,
};
use faultless_soft::{Soft, SoftCpu, SoftMemory, SoftSpace, Trap};
use faultless_tests::file_injection::File;
use faultless_tests::{available, machine, verify_and_destroy};

const PAGE: u64 = 4096;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
const AT: u64 = 1 << 36;

/// A device in the test's memory, which fails on request.
#[derive(Default)]
pub struct Store {
    /// How many slots it has.
    slots: u64,
    pages: Mutex<HashMap<u64, [u8; PAGE as usize]>>,
    /// Slots from this one on cannot be written; 0: all can.
    pub writable: AtomicU64,
    /// Whether reads fail: 1 if all do, else the slot plus 2 of which they do.
    pub broken: AtomicU64,
    /// Whether it is slow, so that neighbours are read ahead.
    pub slow: AtomicBool,
}

impl Store {
    /// Returns how many slots have a page.
    pub fn used(&self) -> usize {
        self.pages.lock().unwrap().len()
    }
}

pub const SLOTS: u64 = 4096;

impl SwapDevice for Store {
    fn slots(&self) -> u64 {
        self.slots
    }

    fn write(&self, slot: u64, page: &[u8; PAGE as usize]) -> Result<(), DeviceError> {
        assert!(slot < self.slots);
        let limit = self.writable.load(Ordering::Relaxed);
        if limit != 0 && slot.is_multiple_of(limit) {
            return Err(DeviceError::Failed);
        }
        self.pages.lock().unwrap().insert(slot, *page);
        Ok(())
    }

    fn read(&self, slot: u64, page: &mut [u8; PAGE as usize]) -> Result<(), DeviceError> {
        let broken = self.broken.load(Ordering::Relaxed);
        if broken == 1 || broken == slot + 2 {
            return Err(DeviceError::Failed);
        }
        *page = self.pages.lock().unwrap()[&slot];
        Ok(())
    }

    fn discard(&self, slot: u64) {
        self.pages.lock().unwrap().remove(&slot);
    }

    fn is_fast(&self) -> bool {
        !self.slow.load(Ordering::Relaxed)
    }
}

/// Gives the machine a device.
pub fn swap_on(memory: &'static SoftMemory) -> &'static Store {
    add_device(memory, 0, SLOTS)
}

/// Gives the machine a device of so many slots, which gets this number.
fn add_device(memory: &'static SoftMemory, number: u32, slots: u64) -> &'static Store {
    let (store, cpus) = new_device(memory, slots);
    SoftCpu::attend(memory, 0, || {
        assert_eq!(memory.swap_on(store, cpus, None), Ok(number))
    });
    store
}

/// Makes a device, and the CPUs' parts of its slots.
pub fn new_device(
    memory: &'static SoftMemory,
    slots: u64,
) -> (&'static Store, &'static [SlotCache]) {
    let store: &'static Store = Box::leak(Box::new(Store {
        slots,
        ..Store::default()
    }));
    let cpus = memory.cpus().iter().map(|_| SlotCache::default());
    (store, Vec::leak(cpus.collect()))
}

/// Runs a test under each policy, on CPU 0 of a machine of its own with a device and one address space. Asserts
/// that no frame and no slot leaked.
pub fn each_policy(
    cpus: usize,
    megabytes: u64,
    test: impl Fn(&SoftCpu<'_>, &SoftSpace, &'static SoftMemory, &'static Store),
) {
    for &policy in Policy::ALL {
        let memory = machine(cpus, megabytes);
        let store = swap_on(memory);
        let before = available(memory);
        let space = SoftCpu::attend(memory, 0, || Soft::space(memory, policy))
            .unwrap_or_else(|error| panic!("no address space: {error}"));
        SoftCpu::run(&space, 0, |cpu| test(cpu, &space, memory, store));
        verify_and_destroy(space, before);
        assert_eq!(store.used(), 0, "slots were lost");
    }
}

fn page(number: u64) -> u64 {
    AT + number * PAGE
}

fn map(cpu: &SoftCpu<'_>, pages: u64) {
    assert_eq!(cpu.space().mmap(AT, pages * PAGE, RW, ANON), Ok(AT));
    for number in 0..pages {
        cpu.store(page(number), number + 1).unwrap();
    }
}

fn page_out(space: &SoftSpace, first: u64, pages: u64) {
    let done = space.madvise(page(first), pages * PAGE, advice::PAGEOUT);
    assert_eq!(done, Ok(()));
}

/// Runs a program of another space on CPU 1, in a thread of its own.
fn on_another<R: Send>(space: &SoftSpace, program: impl FnOnce(&SoftCpu<'_>) -> R + Send) -> R {
    std::thread::scope(|scope| {
        let running = scope.spawn(|| SoftCpu::run(space, 1, program));
        running.join().unwrap()
    })
}

fn sound(spaces: &[&SoftSpace]) {
    AddressSpace::verify_together(spaces).unwrap_or_else(|violation| panic!("{violation}"));
}

/// The counter's change while `act` runs.
fn during(memory: &SoftMemory, counter: Counter, act: impl FnOnce()) -> u64 {
    let before = memory.total(counter);
    act();
    memory.total(counter) - before
}
