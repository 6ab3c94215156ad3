//! Shared memory and files, under every policy: which mappings see which stores, what a truncation
//! and a hole unmap, and that nothing leaks.

use std::sync::atomic::{AtomicU32, Ordering};

use faultless_mm::{
    Counter, Errno, Frame, MemoryObject, Opened, Pager, PhysicalMemory, Policy, advice, flags,
};
use faultless_soft::{Soft, SoftCpu, SoftMemory, SoftSpace, Trap};
use faultless_tests::counting::Counts;
use faultless_tests::{available, machine};

const R: u32 = 1;
const RW: u32 = 3;
const PAGE: u64 = 4096;
const AT: u64 = 1 << 36;
const SHARED: u32 = flags::SHARED | flags::ANONYMOUS | flags::FIXED;

/// Runs a test under every policy, and verifies every frame afterwards.
fn with_space(test: impl Fn(&SoftCpu<'_>)) {
    for &policy in Policy::ALL {
        let memory = machine(2, 64);
        let before = available(memory);
        let space = SoftCpu::attend(memory, 0, || Soft::space(memory, policy).unwrap());
        let faults = memory.total(Counter::Faults);
        let spf = memory.total(Counter::Spf);
        SoftCpu::run(&space, 0, &test);
        if policy == Policy::Speculative {
            let all = memory.total(Counter::Faults) - faults;
            assert_eq!(memory.total(Counter::Spf) - spf, all, "all without a lock");
        }
        verify(memory, &[&space]);
        SoftCpu::attend(memory, 0, || space.destroy());
        verify(memory, &[]);
        assert_eq!(available(memory), before, "frames were lost or found");
    }
}

fn verify(memory: &'static SoftMemory, spaces: &[&SoftSpace]) {
    SoftCpu::attend(memory, 0, || {
        let frames = memory.machine().allocator();
        let all = spaces.iter().copied();
        let (_, accounts) = memory
            .verify_machine(frames, all, |_| Ok(()))
            .unwrap_or_else(|violation| panic!("{violation}"));
        assert_eq!(accounts.lost(), 0, "{accounts:?}");
    });
}

fn store(cpu: &SoftCpu<'_>, size: u64) -> MemoryObject<Soft> {
    MemoryObject::new(cpu.space().memory(), size, None, 7).unwrap()
}

fn map(
    cpu: &SoftCpu<'_>,
    at: u64,
    pages: u64,
    prot: u32,
    how: u32,
    store: &MemoryObject<Soft>,
    first: u64,
) {
    let opened = Opened {
        store: Ok(store),
        offset: first * PAGE,
        file: 0,
        writable: true,
    };
    let how = how | flags::FIXED;
    let mapped = cpu
        .space()
        .mmap_object(at, pages * PAGE, prot, how, &opened);
    assert_eq!(mapped, Ok(at));
}

fn word(cpu: &SoftCpu<'_>, store: &MemoryObject<Soft>, index: u64) -> Option<u64> {
    let page = store.page(index).unwrap()?;
    let pointer = cpu.space().memory().machine().pointer(page.frame());
    // SAFETY: the page is pinned.
    Some(unsafe { pointer.cast::<u64>().read() })
}

#[test]
fn a_child_shares_what_is_shared() {
    with_space(|cpu| {
        let space = cpu.space();
        space.mmap(AT, 4 * PAGE, RW, SHARED).unwrap();
        cpu.store(AT, 1).unwrap();
        let child = space.fork().unwrap();
        cpu.store(AT + PAGE, 2).unwrap();
        let memory = space.memory();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                SoftCpu::run(&child, 1, |cpu| {
                    assert_eq!((cpu.load(AT), cpu.load(AT + PAGE)), (Ok(1), Ok(2)));
                    cpu.store(AT + 2 * PAGE, 3).unwrap();
                    cpu.store(AT, 4).unwrap();
                });
            });
        });
        assert_eq!((cpu.load(AT), cpu.load(AT + 2 * PAGE)), (Ok(4), Ok(3)));
        let _ = memory;
        child.destroy();
        assert_eq!(cpu.load(AT + 2 * PAGE), Ok(3));
    });
}

#[test]
fn private_copies_are_private() {
    with_space(|cpu| {
        let file = store(cpu, 4 * PAGE);
        map(cpu, AT, 4, RW, flags::SHARED, &file, 0);
        map(cpu, AT + 16 * PAGE, 4, RW, flags::PRIVATE, &file, 0);
        cpu.store(AT, 1).unwrap();
        let private = AT + 16 * PAGE;
        assert_eq!(cpu.load(private), Ok(1));
        cpu.store(AT, 2).unwrap();
        assert_eq!(cpu.load(private), Ok(2), "not copied yet");
        cpu.store(private, 3).unwrap();
        cpu.store(AT, 4).unwrap();
        assert_eq!((cpu.load(private), cpu.load(AT)), (Ok(3), Ok(4)));
        // A write before any read copies immediately.
        cpu.store(AT + PAGE, 5).unwrap();
        cpu.store(private + PAGE + 8, 6).unwrap();
        assert_eq!(cpu.load(private + PAGE), Ok(5));
        assert_eq!(word(cpu, &file, 1), Some(5));
        // A discarded copy is replaced by the file's page.
        cpu.space()
            .madvise(private, PAGE, advice::DONTNEED)
            .unwrap();
        assert_eq!(cpu.load(private), Ok(4));
    });
}

#[test]
fn a_truncation_unmaps_pages_everywhere() {
    with_space(|cpu| {
        let file = store(cpu, 8 * PAGE - 100);
        map(cpu, AT, 8, RW, flags::SHARED, &file, 0);
        map(cpu, AT + 16 * PAGE, 8, RW, flags::PRIVATE, &file, 0);
        for page in 0..8 {
            cpu.store(AT + page * PAGE, page + 1).unwrap();
            cpu.store(AT + (16 + page) * PAGE, page + 101).unwrap();
        }
        let child = cpu.space().fork().unwrap();
        file.truncate(2 * PAGE + 8).unwrap();
        for (at, expected) in [(AT, 1), (AT + 16 * PAGE, 101)] {
            assert_eq!(cpu.load(at), Ok(expected));
            assert_eq!(cpu.load(at + 2 * PAGE), Ok(expected + 2));
            let address = at + 3 * PAGE;
            assert_eq!(cpu.load(address), Err(Trap::Bus { address }));
            assert_eq!(cpu.store(address, 1), Err(Trap::Bus { address }));
        }
        cpu.space().memory().expedite();
        assert_eq!(file.pages(), 3);
        // The content behind the new end is lost for good.
        file.truncate(8 * PAGE).unwrap();
        assert_eq!(cpu.load(AT + 3 * PAGE), Ok(0));
        assert_eq!(cpu.load(AT + 16 * PAGE + 3 * PAGE), Ok(0));
        child.destroy();
    });
}

#[test]
fn a_hole_reads_as_zeroes_and_leaves_copies() {
    with_space(|cpu| {
        let file = store(cpu, 8 * PAGE);
        map(cpu, AT, 8, RW, flags::SHARED, &file, 0);
        map(cpu, AT + 16 * PAGE, 8, RW, flags::PRIVATE, &file, 0);
        for page in 0..8 {
            cpu.store(AT + page * PAGE + 4088, page + 1).unwrap();
            cpu.store(AT + page * PAGE, page + 1).unwrap();
        }
        cpu.store(AT + 18 * PAGE, 50).unwrap();
        file.punch(PAGE + 4088..4 * PAGE + 8).unwrap();
        let seen: Vec<_> = (0..8)
            .map(|page| cpu.load(AT + page * PAGE).unwrap())
            .collect();
        assert_eq!(seen, [1, 2, 0, 0, 0, 6, 7, 8]);
        assert_eq!(cpu.load(AT + PAGE + 4088), Ok(0));
        assert_eq!(cpu.load(AT + 4 * PAGE + 4088), Ok(5));
        assert_eq!(cpu.load(AT + 18 * PAGE), Ok(50));
        assert_eq!(cpu.load(AT + 19 * PAGE), Ok(0));
    });
}

#[test]
fn a_mapping_keeps_its_store_and_moves_with_it() {
    with_space(|cpu| {
        let file = store(cpu, 8 * PAGE);
        map(cpu, AT, 4, RW, flags::SHARED, &file, 2);
        cpu.store(AT + PAGE, 9).unwrap();
        assert_eq!(word(cpu, &file, 3), Some(9));
        let moved = AT + 64 * PAGE;
        let how = 3;
        let space = cpu.space();
        assert_eq!(space.mremap(AT, 4 * PAGE, 6 * PAGE, how, moved), Ok(moved));
        assert_eq!(cpu.load(moved + PAGE), Ok(9));
        cpu.store(moved + 5 * PAGE, 10).unwrap();
        assert_eq!(word(cpu, &file, 7), Some(10));
        // A second mapping of the same pages.
        let second = AT + 128 * PAGE;
        assert_eq!(space.mremap(moved, 0, 2 * PAGE, how, second), Ok(second));
        cpu.store(second + PAGE, 11).unwrap();
        assert_eq!(cpu.load(moved + PAGE), Ok(11));
        drop(file);
        assert_eq!(cpu.load(moved + 5 * PAGE), Ok(10));
        space.munmap(second, 2 * PAGE).unwrap();
        assert_eq!(cpu.load(moved + PAGE), Ok(11));
    });
}

#[test]
fn neighbours_with_following_pages_are_one_line() {
    with_space(|cpu| {
        let file = store(cpu, 8 * PAGE);
        map(cpu, AT, 2, RW, flags::SHARED, &file, 0);
        map(cpu, AT + 2 * PAGE, 2, RW, flags::SHARED, &file, 2);
        map(cpu, AT + 4 * PAGE, 2, RW, flags::SHARED, &file, 6);
        let mut lines = Vec::new();
        let mut show = |line: faultless_mm::MapsEntry| {
            let file = line.file.unwrap();
            lines.push(((line.end - line.start) / PAGE, file.offset / PAGE, file.tag));
        };
        cpu.space().maps(&mut show);
        assert_eq!(lines, [(4, 0, 7), (2, 6, 7)]);
    });
}

#[test]
fn a_file_not_opened_for_writing_is_never_written() {
    with_space(|cpu| {
        let file = store(cpu, PAGE);
        let opened = Opened {
            store: Ok(&file),
            offset: 0,
            file: 0,
            writable: false,
        };
        let space = cpu.space();
        let map = |prot, how| space.mmap_object(AT, PAGE, prot, how | flags::FIXED, &opened);
        assert_eq!(map(RW, flags::SHARED), Err(Errno::EACCES));
        assert_eq!(map(R, flags::SHARED), Ok(AT));
        assert_eq!(space.mprotect(AT, PAGE, RW), Err(Errno::EACCES));
        assert_eq!(map(R, flags::PRIVATE), Ok(AT));
        assert_eq!(space.mprotect(AT, PAGE, RW), Ok(()));
        cpu.store(AT, 1).unwrap();
        assert_eq!(word(cpu, &file, 0), Some(0));
    });
}

#[test]
fn reads_map_what_is_there_around_them() {
    with_space(|cpu| {
        let file = store(cpu, 64 * PAGE);
        map(cpu, AT, 64, RW, flags::SHARED, &file, 0);
        (0..40).for_each(|page| cpu.store(AT + page * PAGE, page).unwrap());
        let other = AT + 256 * PAGE;
        map(cpu, other, 64, R, flags::SHARED, &file, 0);
        let memory = cpu.space().memory();
        let faults = || memory.total(Counter::Faults);
        let before = faults();
        (0..40).for_each(|page| assert_eq!(cpu.load(other + page * PAGE), Ok(page)));
        // Pages 0 to 15, 16 to 31, 32 to 39.
        assert_eq!(faults() - before, 3);
    });
}

/// A slow device that fails for some pages.
struct Device {
    reads: AtomicU32,
}

impl Pager for Device {
    fn fill(&self, tag: u64, index: u64, frame: Frame) -> Result<(), Errno> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(std::time::Duration::from_millis(30));
        if index == 3 {
            return Err(Errno::EFAULT);
        }
        let memory = MEMORY.get().unwrap();
        let at = memory.machine().pointer(frame).cast::<[u64; 512]>();
        // SAFETY: the frame is the device's while it fills it.
        unsafe { at.write([tag + index; 512]) };
        Ok(())
    }
}

static MEMORY: std::sync::OnceLock<&'static SoftMemory> = std::sync::OnceLock::new();

#[test]
fn a_slow_device_is_asked_once() {
    static DEVICE: Device = Device {
        reads: AtomicU32::new(0),
    };
    let memory = machine(2, 64);
    MEMORY.get_or_init(|| memory);
    for &policy in Policy::ALL {
        DEVICE.reads.store(0, Ordering::Relaxed);
        let space = SoftCpu::attend(memory, 0, || Soft::space(memory, policy).unwrap());
        SoftCpu::attend(memory, 0, || {
            let file = MemoryObject::new(memory, 4 * PAGE, Some(&DEVICE), 1000).unwrap();
            let opened = Opened {
                store: Ok(&file),
                offset: 0,
                file: 0,
                writable: true,
            };
            let how = flags::SHARED | flags::FIXED;
            space.mmap_object(AT, 4 * PAGE, RW, how, &opened).unwrap();
        });
        let before = Counts::now(memory);
        let together = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                SoftCpu::run(&space, 1, |cpu| {
                    together.wait();
                    assert_eq!(cpu.load(AT + PAGE), Ok(1001));
                });
            });
            SoftCpu::run(&space, 0, |cpu| {
                together.wait();
                assert_eq!(cpu.load(AT + PAGE), Ok(1001));
                assert_eq!(cpu.load(AT + 2 * PAGE), Ok(1002));
                let address = AT + 3 * PAGE;
                assert_eq!(cpu.load(address), Err(Trap::Bus { address }));
            });
        });
        // Pages 1, 2, and 3, which fails.
        assert_eq!(DEVICE.reads.load(Ordering::Relaxed), 3);
        let counts = Counts::now(memory).since(&before);
        counts.add_up(policy);
        // Page 1 twice, unless the later fault found it already read; then page 2.
        let major = counts.get(Counter::MajorFaults);
        assert!((2..=3).contains(&major), "{policy}: {counts:?}");
        assert_eq!(counts.get(Counter::Faults), 4, "{policy}");
        assert_eq!(counts.get(Counter::FaultsFailed), 1, "{policy}");
        assert_eq!(counts.get(Counter::FaultsRefused), 0, "{policy}");
        verify(memory, &[&space]);
        SoftCpu::attend(memory, 0, || space.destroy());
        verify(memory, &[]);
    }
}
