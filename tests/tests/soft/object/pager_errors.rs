//! A device that fails or is full: a fault ends in SIGBUS, and a call returns the error. No unfilled
//! page stays, nothing leaks, and all of it works once the device does.

use faultless_mm::{
    Access, Counter, Errno, MemoryObject, Opened, Outcome, PhysicalMemory, Taken, advice, flags,
};
use faultless_soft::{Soft, SoftCpu, SoftMemory, Trap};
use faultless_tests::device::{Device, FIRST};
use faultless_tests::each_policy;

const PAGE: u64 = 4096;
const RW: u32 = 3;
const AT: u64 = 1 << 36;
const ENOSPC: Errno = Errno(28);
const KINDS: [u32; 2] = [flags::SHARED, flags::PRIVATE];

/// A file of 20 pages, mapped.
struct File {
    store: MemoryObject<Soft>,
    device: &'static Device,
}

impl File {
    fn map(cpu: &SoftCpu<'_>, memory: &'static SoftMemory, how: u32) -> Self {
        Self::map_of(cpu, memory, how, Device::new(memory))
    }

    fn map_of(
        cpu: &SoftCpu<'_>,
        memory: &'static SoftMemory,
        how: u32,
        device: &'static Device,
    ) -> Self {
        let store = MemoryObject::new(memory, 20 * PAGE, Some(device), 7).unwrap();
        let opened = Opened {
            store: Ok(&store),
            offset: 0,
            file: 0,
            writable: true,
        };
        let how = how | flags::FIXED;
        let mapped = cpu.space().mmap_object(AT, 20 * PAGE, RW, how, &opened);
        assert_eq!(mapped, Ok(AT));
        Self { store, device }
    }

    /// Asserts that there are `pages` pages, and that the device was charged for as many.
    fn has(&self, pages: u64) {
        assert_eq!(self.store.pages(), pages);
        assert_eq!(self.device.charged(), pages as i64);
    }

    /// The first word of a page.
    fn read(&self, memory: &'static SoftMemory, index: u64) -> Result<Option<u64>, Errno> {
        let Some(page) = self.store.page(index)? else {
            return Ok(None);
        };
        let pointer = memory.machine().pointer(page.frame()).cast::<u64>();
        // SAFETY: the page is pinned, and no thread writes it.
        Ok(Some(unsafe { pointer.read() }))
    }
}

fn bus<T>(address: u64) -> Result<T, Trap> {
    Err(Trap::Bus { address })
}

/// Errors of a read that all end a fault in the same way.
const ERRORS: [Errno; 5] = [
    Errno::EIO,
    Errno::EFAULT,
    Errno::EBUSY,
    Errno::ENODEV,
    Errno(121),
];

#[test]
fn faults_are_sigbus_until_the_device_recovers() {
    for how in KINDS {
        each_policy(1, 32, |cpu, space, memory| {
            let file = File::map(cpu, memory, how);
            assert_eq!(cpu.load(AT + 8), Ok(FIRST));
            for (number, error) in ERRORS.into_iter().enumerate() {
                let at = AT + (1 + 3 * number as u64) * PAGE;
                file.device.fail(Some(error));
                let reads = file.device.reads();
                assert_eq!(cpu.load(at), bus(at));
                assert_eq!(cpu.store(at, 1), bus(at));
                assert!(cpu.execute(at).is_err());
                assert_eq!(space.fault(at, Access::Read), Outcome::Bus);
                assert!(file.device.reads() - reads >= 3, "asked each time");
                assert_eq!(space.translate(at), None);
                file.has(1 + 2 * number as u64);
                // A cached page does not need the device.
                assert_eq!(cpu.load(AT), Ok(FIRST));
                space.verify().unwrap();

                file.device.fail(None);
                let index = (at - AT) / PAGE;
                assert_eq!(cpu.load(at), Ok(FIRST + index));
                assert_eq!(cpu.store(at + PAGE + 8, 5), Ok(()));
                assert_eq!(cpu.load(at + PAGE), Ok(FIRST + index + 1));
                file.has(3 + 2 * number as u64);
            }
        });
    }
}

/// As on Linux: a device without memory causes no SIGBUS.
#[test]
fn a_device_without_memory() {
    each_policy(1, 32, |cpu, _, memory| {
        let file = File::map(cpu, memory, flags::SHARED);
        file.device.fail(Some(Errno::ENOMEM));
        assert_eq!(cpu.load(AT), Err(Trap::OutOfMemory));
        assert_eq!(file.read(memory, 0), Err(Errno::ENOMEM));
        file.has(0);
        file.device.fail(None);
        assert_eq!(cpu.load(AT), Ok(FIRST));
    });
}

#[test]
fn calls_say_what_has_happened() {
    for error in ERRORS {
        each_policy(1, 32, |cpu, space, memory| {
            let file = File::map(cpu, memory, flags::SHARED);
            let store = &file.store;
            cpu.store(AT + 10 * PAGE, 1).unwrap();
            cpu.store(AT + 12 * PAGE, 1).unwrap();
            file.device.fail(Some(error));
            // read and write
            assert_eq!(file.read(memory, 3), Err(error));
            let page = store.page_to_write(3).map(|page| page.frame());
            assert_eq!(page, Err(error));
            assert!(store.present(3).unwrap().is_none());
            assert_eq!(store.next(0), Some(10));
            // fallocate: a hole within one page, then holes of which one end splits a page; none is made.
            assert_eq!(store.punch(3 * PAGE + 8..4 * PAGE), Err(error));
            assert_eq!(store.punch(9 * PAGE + 8..11 * PAGE), Err(error));
            assert_eq!(store.punch(4 * PAGE..5 * PAGE + 8), Err(error));
            file.has(1);
            // ftruncate: the size is set, and the pages behind it are freed.
            assert_eq!(store.truncate(5 * PAGE + 8), Err(error));
            assert_eq!(store.size(), 5 * PAGE + 8);
            assert_eq!(cpu.load(AT + 12 * PAGE), bus(AT + 12 * PAGE));
            file.has(0);
            space.verify().unwrap();

            file.device.fail(None);
            assert_eq!(store.truncate(5 * PAGE + 8), Ok(()));
            assert_eq!(cpu.load(AT + 5 * PAGE), Ok(FIRST + 5));
            assert_eq!(cpu.load(AT + 5 * PAGE + 8), Ok(0));
            assert_eq!(store.punch(3 * PAGE + 8..4 * PAGE), Ok(()));
            assert_eq!(cpu.load(AT + 3 * PAGE), Ok(FIRST + 3));
            assert_eq!(cpu.load(AT + 3 * PAGE + 8), Ok(0));
            assert_eq!(file.read(memory, 4), Ok(Some(FIRST + 4)));
            assert_eq!(file.read(memory, 6), Ok(None), "behind the end");
            assert!(store.page_to_write(2).is_ok());
            file.has(4);
        });
    }
}

#[test]
fn what_reaches_a_page_otherwise() {
    for how in KINDS {
        each_policy(1, 32, |cpu, space, memory| {
            let file = File::map(cpu, memory, how);
            file.device.fail(Some(Errno::EIO));
            for taken in [Taken::ToRead, Taken::ToReadForLong, Taken::ToWrite] {
                assert_eq!(space.pin(AT, taken).err(), Some(Outcome::Bus));
            }
            for access in [Access::Read, Access::Write] {
                assert_eq!(space.access(AT, access, &mut |_| {}), Err(Errno::EIO));
            }
            for what in [advice::POPULATE_READ, advice::POPULATE_WRITE] {
                assert_eq!(space.madvise(AT, PAGE, what), Err(Errno::EFAULT));
            }
            // As on Linux: the range is locked, though populating failed.
            assert_eq!(space.mlock(AT, 2 * PAGE, 0), Err(Errno::ENOMEM));
            assert_eq!(space.totals().locked, 2);
            file.has(0);
            space.verify().unwrap();

            file.device.fail(None);
            assert_eq!(space.mlock(AT, 2 * PAGE, 0), Ok(()));
            assert!(space.translate(AT + PAGE).is_some());
            assert!(space.pin(AT, Taken::ToWrite).is_ok());
            assert_eq!(space.access(AT, Access::Write, &mut |_| {}), Ok(()));
            assert_eq!(space.madvise(AT, PAGE, advice::POPULATE_WRITE), Ok(()));
        });
    }
}

/// The device has no room for the page: of a file that is read from the device, and of one that begins as
/// zeroes.
#[test]
fn a_device_that_is_full() {
    for of_zeroes in [false, true] {
        for how in KINDS {
            each_policy(1, 32, |cpu, space, memory| {
                let device = match of_zeroes {
                    true => Device::without_pages(memory),
                    false => Device::new(memory),
                };
                let file = File::map_of(cpu, memory, how, device);
                let fresh = |page| if of_zeroes { 0 } else { FIRST + page };
                assert_eq!(cpu.load(AT), Ok(fresh(0)));
                device.fill_up(Some(ENOSPC));
                let at = AT + PAGE;
                assert_eq!(cpu.load(at), bus(at));
                assert_eq!(cpu.store(at, 1), bus(at));
                let page = file.store.page_to_write(1).map(|page| page.frame());
                assert_eq!(page, Err(ENOSPC));
                // Reading a hole needs no room.
                let read = if of_zeroes { Ok(None) } else { Err(ENOSPC) };
                assert_eq!(file.read(memory, 1), read);
                // Existing pages can be written.
                assert!(file.store.page_to_write(0).is_ok());
                file.has(1);
                space.verify().unwrap();

                device.fill_up(None);
                assert_eq!(cpu.load(at), Ok(fresh(1)));
                assert_eq!(cpu.store(at + PAGE, 1), Ok(()));
                file.has(3);
                assert_eq!(file.store.truncate(0), Ok(()));
                file.has(0);
            });
        }
    }
}

/// Several threads need pages that cannot be read: all of them get the error, and none keeps
/// waiting.
#[test]
fn every_waiter_is_told() {
    each_policy(2, 32, |cpu, space, memory| {
        let file = File::map(cpu, memory, flags::SHARED);
        let majors = memory.total(Counter::MajorFaults);
        let both = |expect: &(dyn Fn(u64, Result<u64, Trap>) + Sync)| {
            let look = |cpu: &SoftCpu<'_>| {
                for page in 0..20 {
                    expect(page, cpu.load(AT + page * PAGE));
                }
            };
            std::thread::scope(|scope| {
                scope.spawn(|| SoftCpu::run(space, 1, |cpu| look(cpu)));
                look(cpu);
            });
        };
        file.device.fail(Some(Errno::EIO));
        both(&|page, seen| assert_eq!(seen, bus(AT + page * PAGE)));
        file.has(0);
        file.device.fail(None);
        let reads = file.device.reads();
        both(&|page, seen| assert_eq!(seen, Ok(FIRST + page)));
        file.has(20);
        assert_eq!(file.device.reads() - reads, 20, "each page once");
        let counted = memory.total(Counter::MajorFaults) - majors;
        // A fault that reads or waits for a read is major; one that fails is not.
        assert!((20..=40).contains(&counted), "{counted}");
    });
}
