//! Pages that are swapped out and come back, under every policy: what they hold, what it costs, and what other
//! operations make of them.

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// Whether reads fail.
    pub broken: AtomicU64,
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
        if self.broken.load(Ordering::Relaxed) != 0 {
            return Err(DeviceError::Failed);
        }
        *page = self.pages.lock().unwrap()[&slot];
        Ok(())
    }

    fn discard(&self, slot: u64) {
        self.pages.lock().unwrap().remove(&slot);
    }

    fn is_fast(&self) -> bool {
        true
    }
}

/// Gives the machine a device.
pub fn swap_on(memory: &'static SoftMemory) -> &'static Store {
    add_device(memory, 0, SLOTS)
}

/// Gives the machine a device of so many slots, which gets this number.
fn add_device(memory: &'static SoftMemory, number: u32, slots: u64) -> &'static Store {
    let store: &'static Store = Box::leak(Box::new(Store {
        slots,
        ..Store::default()
    }));
    let cpus = memory.cpus().iter().map(|_| SlotCache::default());
    let cpus: &'static [SlotCache] = Vec::leak(cpus.collect());
    SoftCpu::attend(memory, 0, || {
        assert_eq!(memory.swap_on(store, cpus), Ok(number))
    });
    store
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

#[test]
fn a_page_that_comes_back_by_a_read_is_written_without_a_fault() {
    each_policy(2, 32, |cpu, space, memory, store| {
        map(cpu, 100);
        page_out(space, 0, 100);
        assert_eq!((space.resident(), store.used()), (0, 100));
        assert_eq!(memory.total(Counter::SwapOut), 100);
        assert!(memory.total(Counter::TlbRemoteFlush) <= 1 + 100 / 32);
        sound(&[space]);
        let reads = during(memory, Counter::Faults, || {
            for number in 0..100 {
                assert_eq!(cpu.load(page(number)), Ok(number + 1));
            }
        });
        assert_eq!(reads, 100);
        assert_eq!(memory.total(Counter::SwapIn), 100);
        assert_eq!(memory.total(Counter::MajorFaults), 100);
        // Nothing is left on the device.
        assert_eq!((space.resident(), store.used()), (100, 0));
        let counters = [Counter::Faults, Counter::Copies, Counter::TlbRemoteFlush];
        let before = counters.map(|counter| memory.total(counter));
        for number in 0..100 {
            cpu.store(page(number), number + 2).unwrap();
        }
        assert_eq!(counters.map(|counter| memory.total(counter)), before);
        sound(&[space]);
    });
}

#[test]
fn a_write_brings_a_page_back_by_one_fault() {
    each_policy(2, 32, |cpu, space, memory, store| {
        map(cpu, 10);
        page_out(space, 0, 10);
        let faults = during(memory, Counter::Faults, || {
            for number in 0..10 {
                cpu.store(page(number) + 8, 7).unwrap();
            }
        });
        assert_eq!((faults, store.used()), (10, 0));
        for number in 0..10 {
            let seen = (cpu.load(page(number)), cpu.load(page(number) + 8));
            assert_eq!(seen, (Ok(number + 1), Ok(7)));
        }
        sound(&[space]);
    });
}

#[test]
fn a_child_and_its_parent_each_get_the_page_as_it_was() {
    each_policy(2, 32, |cpu, space, _, store| {
        map(cpu, 20);
        page_out(space, 0, 10);
        let child = space.fork().unwrap();
        sound(&[space, &child]);
        assert_eq!(store.used(), 10);
        for number in 0..5 {
            cpu.store(page(number), 100).unwrap();
        }
        let seen: Vec<_> = on_another(&child, |cpu| {
            (0..20)
                .map(|number| cpu.load(page(number)).unwrap())
                .collect()
        });
        assert_eq!(seen, (1..=20).collect::<Vec<_>>());
        // The child's reads were the last uses of the first five slots.
        assert_eq!(store.used(), 5);
        sound(&[space, &child]);
        child.destroy();
        for number in 5..20 {
            assert_eq!(cpu.load(page(number)), Ok(number + 1));
        }
        assert_eq!(store.used(), 0);
        sound(&[space]);
    });
}

#[test]
fn shared_and_pinned_pages_stay() {
    each_policy(2, 32, |cpu, space, _, store| {
        map(cpu, 10);
        let mut pins = [None];
        assert_eq!(space.pin_pages(page(0), Taken::ToWrite, &mut pins), Ok(1));
        page_out(space, 0, 10);
        assert_eq!(store.used(), 9);
        drop(pins);
        let child = space.fork().unwrap();
        page_out(space, 0, 10);
        assert_eq!(store.used(), 9);
        assert_eq!(cpu.load(page(0)), Ok(1));
        child.destroy();
        sound(&[space]);
    });
}

#[test]
fn other_operations_free_the_slots() {
    each_policy(2, 32, |cpu, space, _, store| {
        map(cpu, 60);
        page_out(space, 0, 60);
        assert_eq!(space.munmap(page(0), 10 * PAGE), Ok(()));
        assert_eq!(store.used(), 50);
        assert_eq!(space.madvise(page(10), 10 * PAGE, advice::DONTNEED), Ok(()));
        assert_eq!(store.used(), 40);
        assert_eq!(space.madvise(page(20), 10 * PAGE, advice::FREE), Ok(()));
        assert_eq!(store.used(), 30);
        assert_eq!(
            space.madvise(page(30), 10 * PAGE, advice::GUARD_INSTALL),
            Ok(())
        );
        assert_eq!(store.used(), 20);
        assert_eq!(space.mmap(page(40), 10 * PAGE, RW, ANON), Ok(page(40)));
        assert_eq!(store.used(), 10);
        sound(&[space]);
        for number in (10..30).chain(40..50) {
            assert_eq!(cpu.load(page(number)), Ok(0), "page {number}");
        }
        assert!(matches!(cpu.load(page(30)), Err(Trap::Segv { .. })));
        for number in 50..60 {
            assert_eq!(cpu.load(page(number)), Ok(number + 1));
        }
        assert_eq!(store.used(), 0);
        sound(&[space]);
    });
}

#[test]
fn a_space_that_ends_frees_its_slots() {
    each_policy(2, 32, |cpu, space, _, store| {
        map(cpu, 10);
        let child = space.fork().unwrap();
        assert_eq!(space.munmap(page(0), 10 * PAGE), Ok(()));
        on_another(&child, |cpu| {
            // The last mapping is exclusive again once it is written.
            (0..10).for_each(|number| cpu.store(page(number), 5).unwrap());
        });
        assert_eq!(child.madvise(AT, 10 * PAGE, advice::PAGEOUT), Ok(()));
        assert_eq!(store.used(), 10);
        child.destroy();
        assert_eq!(store.used(), 0);
        sound(&[space]);
    });
}

#[test]
fn a_swapped_page_moves_and_keeps_its_rights() {
    each_policy(2, 32, |cpu, space, _, store| {
        map(cpu, 10);
        page_out(space, 0, 10);
        let to = AT + (1 << 30);
        let moved = space.mremap(
            AT,
            10 * PAGE,
            10 * PAGE,
            remap_flags::MAYMOVE | remap_flags::FIXED,
            to,
        );
        assert_eq!(moved, Ok(to));
        assert_eq!(space.mprotect(to, 10 * PAGE, 1), Ok(()));
        sound(&[space]);
        for number in 0..10 {
            assert_eq!(cpu.load(to + number * PAGE), Ok(number + 1));
            assert!(matches!(
                cpu.store(to + number * PAGE, 0),
                Err(Trap::Segv { .. })
            ));
        }
        assert_eq!(space.mprotect(to, 10 * PAGE, RW), Ok(()));
        cpu.store(to, 9).unwrap();
        assert_eq!(store.used(), 0);
        sound(&[space]);
    });
}

#[test]
fn a_page_that_the_device_does_not_take_stays() {
    each_policy(2, 32, |cpu, space, memory, store| {
        store.writable.store(3, Ordering::Relaxed);
        map(cpu, 30);
        page_out(space, 0, 30);
        assert_eq!(store.used() as u64, memory.total(Counter::SwapOut));
        assert!((15..30).contains(&store.used()));
        sound(&[space]);
        let child = space.fork().unwrap();
        for number in 0..30 {
            assert_eq!(cpu.load(page(number)), Ok(number + 1));
        }
        on_another(&child, |cpu| {
            (0..30).for_each(|number| assert_eq!(cpu.load(page(number)), Ok(number + 1)));
        });
        child.destroy();
        assert_eq!(store.used(), 0);
        sound(&[space]);
    });
}

#[test]
fn a_page_that_cannot_be_read_is_a_bus_error_for_that_page_alone() {
    each_policy(2, 32, |cpu, space, _, store| {
        map(cpu, 2);
        page_out(space, 0, 1);
        store.broken.store(1, Ordering::Relaxed);
        assert_eq!(cpu.load(page(0)), Err(Trap::Bus { address: page(0) }));
        assert_eq!(cpu.load(page(1)), Ok(2));
        store.broken.store(0, Ordering::Relaxed);
        assert_eq!(cpu.load(page(0)), Ok(1));
        sound(&[space]);
    });
}

#[test]
fn a_full_device_leaves_pages_in_memory() {
    each_policy(1, 64, |cpu, space, memory, store| {
        let more = SLOTS + 100;
        map(cpu, more);
        page_out(space, 0, more);
        assert_eq!(store.used() as u64, SLOTS);
        assert_eq!(space.resident(), 100);
        assert_eq!(memory.swap_usage(), (SLOTS, SLOTS));
        for number in 0..more {
            assert_eq!(cpu.load(page(number)), Ok(number + 1));
        }
        assert_eq!(memory.swap_usage(), (SLOTS, 0));
        page_out(space, 0, 10);
        assert_eq!(store.used(), 10);
        sound(&[space]);
    });
}

#[test]
fn soft_dirty_tracking_sees_the_first_store_to_a_page_that_came_back() {
    each_policy(2, 32, |cpu, space, _, _| {
        map(cpu, 3);
        space.clear_soft_dirty();
        cpu.store(page(2), 5).unwrap();
        page_out(space, 0, 3);
        let dirty = |number| space.page_state(page(number)).soft_dirty;
        assert_eq!([0, 1, 2].map(dirty), [false, false, true]);
        assert_eq!(cpu.load(page(0)), Ok(1));
        assert_eq!(cpu.load(page(1)), Ok(2));
        assert!(!dirty(0));
        cpu.store(page(0), 6).unwrap();
        assert_eq!([0, 1].map(dirty), [true, false]);
        sound(&[space]);
    });
}

/// The first device is full in the middle of a batch.
#[test]
fn the_rest_of_a_batch_goes_to_the_next_device() {
    let memory = machine(1, 32);
    let stores = [3, 100].map(|slots| (slots, slots == 100));
    let stores = stores.map(|(slots, second)| add_device(memory, second.into(), slots));
    let before = available(memory);
    let space = SoftCpu::attend(memory, 0, || Soft::space(memory, Policy::Speculative)).unwrap();
    SoftCpu::run(&space, 0, |cpu| {
        map(cpu, 10);
        page_out(&space, 0, 10);
        assert_eq!(stores.map(Store::used), [3, 7]);
        sound(&[&space]);
        for number in 0..10 {
            assert_eq!(cpu.load(page(number)), Ok(number + 1));
        }
    });
    verify_and_destroy(space, before);
    assert_eq!(stores.map(Store::used), [0, 0]);
}

#[test]
fn a_store_before_the_mapping_became_read_only_stays_soft_dirty() {
    each_policy(2, 32, |cpu, space, _, _| {
        map(cpu, 1);
        space.clear_soft_dirty();
        cpu.store(page(0), 5).unwrap();
        assert_eq!(space.mprotect(page(0), PAGE, 1), Ok(()));
        page_out(space, 0, 1);
        assert_eq!(cpu.load(page(0)), Ok(5));
        assert!(space.page_state(page(0)).soft_dirty);
        sound(&[space]);
    });
}

#[test]
fn pagemap_and_usage_tell_what_was_swapped_out() {
    const SWAPPED: u64 = 1 << 62;
    each_policy(2, 32, |cpu, space, _, store| {
        map(cpu, 4);
        page_out(space, 1, 2);
        let mut entries = [0; 4];
        assert_eq!(space.pagemap(page(0) / PAGE, &mut entries, true), 4);
        let is_swapped = entries.map(|entry| entry & SWAPPED != 0);
        assert_eq!(is_swapped, [false, true, true, false]);
        let slots = [1, 2].map(|at: usize| entries[at] >> 5 & 0xffff_ffff);
        assert!(slots.iter().all(|&slot| slot < SLOTS) && slots[0] != slots[1]);
        let usage = space.usage(page(0)..page(4));
        assert_eq!((usage.swapped, usage.resident), (2 * PAGE, 2 * PAGE));
        assert_eq!((space.rss().swapped, store.used()), (2, 2));
        sound(&[space]);
    });
}

/// A breakpoint lies in a private copy of a file's page, which is swapped out like other anonymous pages.
#[test]
fn a_breakpoint_in_a_swapped_copy_ends_with_its_probe() {
    const BYTE: u64 = 2 * PAGE + 8;
    each_policy(2, 32, |cpu, space, _, store| {
        let file = File::of_device(cpu, 8);
        let opened = Opened {
            store: Ok(&file.store),
            offset: 0,
            file: 3,
            writable: true,
        };
        let how = flags::PRIVATE | flags::FIXED;
        assert_eq!(space.mmap_object(AT, 8 * PAGE, 5, how, &opened), Ok(AT));
        let original = cpu.load_u8(AT + BYTE).unwrap();
        let probe = Probe::register(&file.store, BYTE, 0xcc, BYTE).unwrap();
        assert_eq!(cpu.load_u8(AT + BYTE), Ok(0xcc));
        page_out(space, 0, 8);
        assert_eq!(store.used(), 1);
        sound(&[space]);
        drop(probe);
        assert_eq!(cpu.load_u8(AT + BYTE), Ok(original));
        sound(&[space]);
    });
}

/// One allocation fails, or one and all that follow, at each place in a fork and in the loads that bring pages back.
/// Nothing is lost: afterwards both sides have every page.
#[test]
fn no_page_is_lost_where_an_allocation_fails() {
    const PAGES: u64 = 3;
    for is_lasting in [false, true] {
        let has_failed = Cell::new(true);
        for allocation in 0.. {
            if !has_failed.get() {
                assert!(allocation > 3, "too few allocations");
                break;
            }
            each_policy(2, 32, |cpu, space, memory, store| {
                map(cpu, PAGES);
                page_out(space, 0, PAGES);
                let machine = memory.machine();
                match is_lasting {
                    false => machine.fail_in(Some(allocation)),
                    true => machine.fail_from(Some(allocation)),
                }
                let child = space.fork();
                let seen: Vec<_> = (0..PAGES).map(|number| cpu.load(page(number))).collect();
                has_failed.set(match is_lasting {
                    false => machine.has_failed(),
                    true => child.is_err() || seen.contains(&Err(Trap::OutOfMemory)),
                });
                machine.fail_in(None);
                machine.fail_from(None);
                for (number, seen) in (0..).zip(seen) {
                    assert!(matches!(seen, Err(Trap::OutOfMemory)) || seen == Ok(number + 1));
                    assert_eq!(cpu.load(page(number)), Ok(number + 1));
                }
                match child {
                    Ok(child) => {
                        sound(&[space, &child]);
                        on_another(&child, |cpu| {
                            for number in 0..PAGES {
                                assert_eq!(cpu.load(page(number)), Ok(number + 1));
                            }
                        });
                        child.destroy();
                    }
                    Err(error) => assert_eq!(error, Errno::ENOMEM),
                }
                assert_eq!(store.used(), 0);
                sound(&[space]);
            });
        }
    }
}

#[test]
fn pages_that_will_be_needed_come_back() {
    each_policy(2, 32, |cpu, space, memory, store| {
        map(cpu, 100);
        page_out(space, 0, 100);
        let advised = space.madvise(page(10), 80 * PAGE, advice::WILLNEED);
        assert_eq!((advised, store.used()), (Ok(()), 20));
        let faults = during(memory, Counter::Faults, || {
            for number in 10..90 {
                cpu.store(page(number) + 8, 1).unwrap();
                assert_eq!(cpu.load(page(number)), Ok(number + 1));
            }
        });
        assert_eq!(faults, 0);
        // What cannot be read is no error yet.
        store.broken.store(1, Ordering::Relaxed);
        assert_eq!(space.madvise(page(0), 10 * PAGE, advice::WILLNEED), Ok(()));
        assert!(cpu.load(page(0)).is_err());
        store.broken.store(0, Ordering::Relaxed);
        assert_eq!(cpu.load(page(0)), Ok(1));
        sound(&[space]);
    });
}
