//! Corner cases of files and shared memory: sizes near the limits of the integers; truncation of private
//! copies and of pages without any access; forks of all of it; a device that fails; an object that is
//! dropped during a read.

use std::sync::atomic::{AtomicBool, Ordering};

use faultless_mm::{Errno, Frame, MemoryObject, Opened, Pager, Policy, advice, flags, remap_flags};
use faultless_soft::{Soft, SoftCpu, SoftMemory, SoftSpace, Trap};
use faultless_tests::{available, machine};

const R: u32 = 1;
const RW: u32 = 3;
const PAGE: u64 = 4096;
const AT: u64 = 1 << 36;
/// The address of a second mapping.
const OTHER: u64 = AT + 64 * PAGE;

/// Runs a test under every policy, and verifies every frame afterwards.
fn with_space(test: impl Fn(&SoftCpu<'_>)) {
    for &policy in Policy::ALL {
        let memory = machine(2, 64);
        let before = available(memory);
        let space = SoftCpu::attend(memory, 0, || Soft::space(memory, policy).unwrap());
        SoftCpu::run(&space, 0, &test);
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

/// Runs `look` in a child on another CPU.
fn in_child<R: Send>(child: &SoftSpace, look: impl Fn(&SoftCpu<'_>) -> R + Sync) -> R {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| SoftCpu::run(child, 1, |cpu| look(cpu)));
        thread.join().unwrap()
    })
}

fn store(cpu: &SoftCpu<'_>, size: u64) -> MemoryObject<Soft> {
    MemoryObject::new(cpu.space().memory(), size, None, 7).unwrap()
}

fn map(cpu: &SoftCpu<'_>, at: u64, pages: u64, prot: u32, how: u32, store: &MemoryObject<Soft>) {
    map_at(cpu, at, pages, prot, how, store, 0);
}

fn map_at(
    cpu: &SoftCpu<'_>,
    at: u64,
    pages: u64,
    prot: u32,
    how: u32,
    store: &MemoryObject<Soft>,
    offset: u64,
) {
    let opened = Opened {
        store: Ok(store),
        offset,
        file: 0,
        writable: true,
    };
    let how = how | flags::FIXED;
    let mapped = cpu
        .space()
        .mmap_object(at, pages * PAGE, prot, how, &opened);
    assert_eq!(mapped, Ok(at));
}

fn bus<T>(address: u64) -> Result<T, Trap> {
    Err(Trap::Bus { address })
}

#[test]
fn files_of_every_size() {
    with_space(|cpu| {
        let file = store(cpu, u64::MAX);
        assert_eq!(file.punch(0..u64::MAX), Ok(()));
        // The last pages of the largest file that can be mapped.
        let offset = (i64::MAX as u64 & !(PAGE - 1)) - 4 * PAGE;
        map_at(cpu, AT, 4, RW, flags::SHARED, &file, offset);
        cpu.store(AT + 3 * PAGE, 1).unwrap();
        assert_eq!(cpu.load(AT + 3 * PAGE), Ok(1));
        assert_eq!(file.punch(offset..u64::MAX), Ok(()));
        assert_eq!(cpu.load(AT + 3 * PAGE), Ok(0));
        assert_eq!(file.truncate(offset + 3 * PAGE), Ok(()));
        assert_eq!(cpu.load(AT + 3 * PAGE), bus(AT + 3 * PAGE));
        assert_eq!(cpu.load(AT + 2 * PAGE), Ok(0));
        let opened = Opened {
            store: Ok(&file),
            offset: !(PAGE - 1),
            file: 0,
            writable: true,
        };
        let how = flags::SHARED | flags::FIXED;
        let mapped = cpu.space().mmap_object(AT, 4 * PAGE, R, how, &opened);
        assert_eq!(mapped, Err(Errno::EOVERFLOW));
        file.truncate(0).unwrap();
        file.truncate(u64::MAX).unwrap();
        assert_eq!(cpu.load(AT), Ok(0));
    });
}

#[test]
fn an_empty_hole_and_a_hole_behind_the_end() {
    with_space(|cpu| {
        let file = store(cpu, 2 * PAGE + 8);
        map(cpu, AT, 3, RW, flags::SHARED, &file);
        for page in 0..3 {
            cpu.store(AT + page * PAGE, page + 1).unwrap();
        }
        for hole in [0..0, 8..8, 4 * PAGE..8 * PAGE, 3 * PAGE..u64::MAX] {
            assert_eq!(file.punch(hole), Ok(()));
        }
        let seen = [0, 1, 2].map(|page| cpu.load(AT + page * PAGE));
        assert_eq!(seen, [Ok(1), Ok(2), Ok(3)]);
        assert_eq!(file.punch(PAGE + 8..u64::MAX), Ok(()));
        let seen = [0, 1, 2].map(|page| cpu.load(AT + page * PAGE));
        assert_eq!(seen, [Ok(1), Ok(2), Ok(0)]);
    });
}

/// A write allocates its page first and may then fail; the truncation afterwards frees the page.
#[test]
fn what_a_failed_write_made_goes() {
    with_space(|cpu| {
        let file = store(cpu, PAGE);
        drop(file.page_to_write(0).unwrap());
        drop(file.page_to_write(5).unwrap());
        assert_eq!(file.pages(), 2);
        file.truncate(PAGE).unwrap();
        assert_eq!(
            (file.pages(), file.next(0), file.next(1)),
            (1, Some(0), None)
        );
    });
}

#[test]
fn pages_without_any_access_go_too() {
    with_space(|cpu| {
        let file = store(cpu, 4 * PAGE);
        for (at, how) in [(AT, flags::SHARED), (OTHER, flags::PRIVATE)] {
            map(cpu, at, 4, RW, how, &file);
            (0..4).for_each(|page| cpu.store(at + page * PAGE, 5).unwrap());
            cpu.space().mprotect(at, 4 * PAGE, 0).unwrap();
        }
        let child = cpu.space().fork().unwrap();
        file.punch(0..PAGE).unwrap();
        file.truncate(2 * PAGE).unwrap();
        assert_eq!(file.pages(), 1);
        let look = |cpu: &SoftCpu<'_>| {
            for at in [AT, OTHER] {
                cpu.space().mprotect(at, 4 * PAGE, RW).unwrap();
            }
            // A private copy survives a hole in the file.
            assert_eq!((cpu.load(AT), cpu.load(OTHER)), (Ok(0), Ok(5)));
            for at in [AT, OTHER] {
                assert_eq!(cpu.load(at + PAGE), Ok(5));
                assert_eq!(cpu.load(at + 2 * PAGE), bus(at + 2 * PAGE));
            }
        };
        look(cpu);
        in_child(&child, look);
        child.destroy();
    });
}

#[test]
fn a_child_has_private_copies_and_the_rest_of_the_file() {
    with_space(|cpu| {
        let file = store(cpu, 4 * PAGE);
        map(cpu, AT, 4, RW, flags::SHARED, &file);
        map(cpu, OTHER, 4, RW, flags::PRIVATE, &file);
        (0..4).for_each(|page| cpu.store(AT + page * PAGE, 10 + page).unwrap());
        cpu.store(OTHER, 20).unwrap();
        assert_eq!(cpu.load(OTHER + PAGE), Ok(11));
        let child = cpu.space().fork().unwrap();
        // The child has its own copy; pages that were not copied follow the file.
        cpu.store(OTHER, 30).unwrap();
        cpu.store(OTHER + 2 * PAGE, 32).unwrap();
        cpu.store(AT + PAGE, 41).unwrap();
        in_child(&child, |cpu| {
            let seen = [0, 1, 2, 3].map(|page| cpu.load(OTHER + page * PAGE));
            assert_eq!(seen, [Ok(20), Ok(41), Ok(12), Ok(13)]);
            cpu.store(OTHER + PAGE, 51).unwrap();
            cpu.store(OTHER, 50).unwrap();
        });
        assert_eq!((cpu.load(OTHER), cpu.load(OTHER + PAGE)), (Ok(30), Ok(41)));
        child.destroy();
        cpu.store(OTHER + PAGE, 61).unwrap();
        assert_eq!(cpu.load(AT + PAGE), Ok(41));
    });
}

#[test]
fn what_a_child_does_not_get() {
    with_space(|cpu| {
        let file = store(cpu, 4 * PAGE);
        map(cpu, AT, 4, RW, flags::SHARED, &file);
        map(cpu, OTHER, 4, RW, flags::PRIVATE, &file);
        cpu.store(OTHER, 1).unwrap();
        let space = cpu.space();
        for at in [AT, OTHER] {
            let wiped = space.madvise(at, 4 * PAGE, advice::WIPEONFORK);
            assert_eq!(
                wiped,
                Err(Errno::EINVAL),
                "only what is anonymous and private"
            );
            assert_eq!(space.madvise(at, 4 * PAGE, advice::KEEPONFORK), Ok(()));
            assert_eq!(space.madvise(at, 2 * PAGE, advice::DONTFORK), Ok(()));
        }
        let child = space.fork().unwrap();
        in_child(&child, |cpu| {
            for at in [AT, OTHER] {
                assert!(matches!(cpu.load(at), Err(Trap::Segv { .. })));
                assert_eq!(cpu.load(at + 2 * PAGE), Ok(0));
            }
        });
        file.truncate(0).unwrap();
        assert_eq!(cpu.load(OTHER), bus(OTHER));
        child.destroy();
    });
}

#[test]
fn a_read_only_page_is_copied_once_it_may_be_written() {
    with_space(|cpu| {
        let file = store(cpu, 4 * PAGE);
        map(cpu, AT, 4, RW, flags::SHARED, &file);
        (0..4).for_each(|page| cpu.store(AT + page * PAGE, 1).unwrap());
        map(cpu, OTHER, 4, R, flags::PRIVATE, &file);
        assert_eq!(cpu.load(OTHER), Ok(1));
        let space = cpu.space();
        space.mprotect(OTHER, 4 * PAGE, RW).unwrap();
        cpu.store(OTHER, 2).unwrap();
        let write = space.madvise(OTHER, 4 * PAGE, advice::POPULATE_WRITE);
        assert_eq!(write, Ok(()));
        (0..4).for_each(|page| cpu.store(AT + page * PAGE, 3).unwrap());
        let seen = [0, 1, 2, 3].map(|page| cpu.load(OTHER + page * PAGE));
        assert_eq!(seen, [Ok(2), Ok(1), Ok(1), Ok(1)]);
        // Moved, and truncated at the new place.
        let to = OTHER + 16 * PAGE;
        let how = remap_flags::MAYMOVE | remap_flags::FIXED;
        assert_eq!(space.mremap(OTHER, 4 * PAGE, 4 * PAGE, how, to), Ok(to));
        file.truncate(PAGE).unwrap();
        assert_eq!((cpu.load(to), cpu.load(to + PAGE)), (Ok(2), bus(to + PAGE)));
        let write = space.madvise(to, 4 * PAGE, advice::POPULATE_WRITE);
        assert_eq!(write, Err(Errno::EFAULT));
    });
}

#[test]
fn what_was_cut_off_never_comes_back() {
    with_space(|cpu| {
        let file = store(cpu, 4 * PAGE);
        map(cpu, AT, 4, RW, flags::SHARED, &file);
        for size in [PAGE + 8, PAGE, 3 * PAGE + 16, 8, 0] {
            for word in 0..4 * PAGE / 512 {
                cpu.store(AT + word * 512, word + 1).unwrap();
            }
            file.truncate(size).unwrap();
            file.extend(4 * PAGE);
            for word in 0..4 * PAGE / 512 {
                let is_left = word * 512 < size;
                let expected = if is_left { word + 1 } else { 0 };
                assert_eq!(cpu.load(AT + word * 512), Ok(expected), "{word} of {size}");
            }
        }
    });
}

/// A device that waits until it may answer, and then fails.
struct Stuck {
    may_answer: AtomicBool,
    is_asked: AtomicBool,
}

impl Pager for Stuck {
    fn fill(&self, _tag: u64, _index: u64, _frame: Frame) -> Result<(), Errno> {
        self.is_asked.store(true, Ordering::Release);
        while !self.may_answer.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        Err(Errno::EFAULT)
    }
}

/// Only a fault that waits for a page still holds the object.
#[test]
fn a_store_that_goes_while_a_fault_waits() {
    static DEVICE: Stuck = Stuck {
        may_answer: AtomicBool::new(false),
        is_asked: AtomicBool::new(false),
    };
    with_space(|cpu| {
        DEVICE.may_answer.store(false, Ordering::Release);
        DEVICE.is_asked.store(false, Ordering::Release);
        let memory = cpu.space().memory();
        let file = MemoryObject::new(memory, 4 * PAGE, Some(&DEVICE), 7).unwrap();
        map(cpu, AT, 4, RW, flags::SHARED, &file);
        let space = cpu.space();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| SoftCpu::run(space, 1, |cpu| cpu.load(AT)));
            while !DEVICE.is_asked.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            // Also removes the mark from the page's slot.
            file.truncate(0).unwrap();
            drop(file);
            space.munmap(AT, 4 * PAGE).unwrap();
            (0..4).for_each(|_| memory.expedite());
            DEVICE.may_answer.store(true, Ordering::Release);
            // The read fails before the fault sees that the mapping is gone.
            assert_eq!(waits.join().unwrap(), bus(AT));
        });
    });
}
