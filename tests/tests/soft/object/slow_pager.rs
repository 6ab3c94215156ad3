//! A slow device: only a fault that needs its page waits. Meanwhile mappings are made, changed, moved and
//! forked, the faulting one too. The fault then follows the mapping as it is at that time; under the policy
//! `speculative` it never acquires a lock.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use faultless_mm::{
    Counter, Errno, Frame, MemoryObject, Opened, Pager, PhysicalMemory, Policy, SegvCode, advice,
    flags, remap_flags,
};
use faultless_soft::{SoftCpu, SoftMemory, Trap};
use faultless_tests::each_policy;

const PAGE: u64 = 4096;
const NONE: u32 = 0;
const R: u32 = 1;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
const AT: u64 = 1 << 36;
const OTHER: u64 = AT + (1 << 30);
const READ: u64 = 4711;
/// Longer than any test takes, unless an operation waits wrongly.
const LONG: Duration = Duration::from_secs(60);

/// A device that answers on request.
struct Slow {
    memory: &'static SoftMemory,
    is_asked: AtomicBool,
    may_answer: AtomicBool,
    is_tired: AtomicBool,
}

impl Slow {
    fn wait(&self, for_what: &AtomicBool) {
        let start = Instant::now();
        while !for_what.load(Ordering::Acquire) {
            if start.elapsed() > LONG {
                return self.is_tired.store(true, Ordering::Release);
            }
            std::thread::yield_now();
        }
    }
}

impl Pager for Slow {
    fn fill(&self, _tag: u64, _index: u64, frame: Frame) -> Result<(), Errno> {
        self.is_asked.store(true, Ordering::Release);
        self.wait(&self.may_answer);
        let at = self.memory.machine().pointer(frame).cast::<[u64; 512]>();
        // SAFETY: the frame is the device's while it fills it.
        unsafe { at.write([READ; 512]) };
        Ok(())
    }
}

/// The totals of faults, of faults without a lock, and of major faults.
fn counted(memory: &'static SoftMemory) -> [u64; 3] {
    [Counter::Faults, Counter::Spf, Counter::MajorFaults].map(|counter| memory.total(counter))
}

/// CPU 1 accesses the page at `AT`, a file's, and CPU 0 runs `meanwhile` while the device reads it. Asserts the
/// access's result, and the number of major faults: those that waited and got the page
/// that they waited for.
fn while_waiting(
    how: u32,
    access: impl Fn(&SoftCpu<'_>) -> Result<u64, Trap> + Sync,
    meanwhile: impl Fn(&SoftCpu<'_>, &MemoryObject<faultless_soft::Soft>),
    expected: Result<u64, Trap>,
    majors: u64,
) {
    each_policy(2, 32, |cpu, space, memory| {
        let device: &'static Slow = Box::leak(Box::new(Slow {
            memory,
            is_asked: AtomicBool::new(false),
            may_answer: AtomicBool::new(false),
            is_tired: AtomicBool::new(false),
        }));
        let file = MemoryObject::new(memory, 4 * PAGE, Some(device), 7).unwrap();
        let opened = Opened {
            store: Ok(&file),
            offset: 0,
            file: 0,
            writable: true,
        };
        let how = how | flags::FIXED;
        let mapped = space.mmap_object(AT, 4 * PAGE, RW, how, &opened);
        assert_eq!(mapped, Ok(AT));
        let before = counted(memory);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| SoftCpu::run(space, 1, &access));
            device.wait(&device.is_asked);
            meanwhile(cpu, &file);
            device.may_answer.store(true, Ordering::Release);
            assert_eq!(waits.join().unwrap(), expected);
        });
        assert!(!device.is_tired.load(Ordering::Acquire), "it timed out");
        let now = counted(memory);
        let [faults, spf, counted] = [0, 1, 2].map(|i| now[i] - before[i]);
        assert_eq!(counted, majors);
        assert!(faults >= 1);
        if space.policy() == Policy::Speculative {
            assert_eq!(spf, faults, "all without a lock, the second try too");
        }
        space.verify().unwrap();
    });
}

fn load(cpu: &SoftCpu<'_>) -> Result<u64, Trap> {
    cpu.load(AT)
}

fn store(cpu: &SoftCpu<'_>) -> Result<u64, Trap> {
    cpu.store(AT, 5)?;
    cpu.load(AT)
}

/// Performs every operation that write-locks the mmap lock, on other pages and beside the page.
fn change_everything(cpu: &SoftCpu<'_>) {
    let space = cpu.space();
    for _ in 0..3 {
        assert_eq!(space.mmap(OTHER, 9 * PAGE, RW, ANON), Ok(OTHER));
        assert_eq!(cpu.store(OTHER, 1), Ok(()));
        assert_eq!(space.mprotect(OTHER, PAGE, R), Ok(()));
        let how = remap_flags::MAYMOVE | remap_flags::FIXED;
        let to = OTHER + 64 * PAGE;
        assert_eq!(space.mremap(OTHER, PAGE, PAGE, how, to), Ok(to));
        assert_eq!(space.madvise(to, PAGE, advice::DONTNEED), Ok(()));
        assert_eq!(space.munmap(OTHER, 65 * PAGE), Ok(()));
    }
    space.fork().unwrap().destroy();
    assert_eq!(space.mprotect(AT + PAGE, PAGE, R), Ok(()));
    assert_eq!(space.munmap(AT + 2 * PAGE, PAGE), Ok(()));
    space.clear_soft_dirty();
}

#[test]
fn mappings_change_during_reads() {
    for how in [flags::SHARED, flags::PRIVATE] {
        while_waiting(how, load, |cpu, _| change_everything(cpu), Ok(READ), 1);
        while_waiting(how, store, |cpu, _| change_everything(cpu), Ok(5), 1);
    }
}

/// The mapping changes while the page is read.
#[test]
fn what_the_fault_finds_is_what_holds_then() {
    let segv = |code| Err(Trap::Segv { code, address: AT });
    for how in [flags::SHARED, flags::PRIVATE] {
        let gone = |cpu: &SoftCpu<'_>, _: &_| cpu.space().munmap(AT, 4 * PAGE).unwrap();
        while_waiting(how, load, gone, segv(SegvCode::MapErr), 0);
        let hidden = |cpu: &SoftCpu<'_>, _: &_| {
            cpu.space().mprotect(AT, PAGE, NONE).unwrap();
        };
        while_waiting(how, load, hidden, segv(SegvCode::AccErr), 0);
        let read_only = |cpu: &SoftCpu<'_>, _: &_| {
            cpu.space().mprotect(AT, PAGE, R).unwrap();
        };
        while_waiting(how, store, read_only, segv(SegvCode::AccErr), 0);
        while_waiting(how, load, read_only, Ok(READ), 1);
        let anonymous = |cpu: &SoftCpu<'_>, _: &_| {
            assert_eq!(cpu.space().mmap(AT, PAGE, RW, ANON), Ok(AT));
        };
        while_waiting(how, load, anonymous, Ok(0), 0);
        while_waiting(how, store, anonymous, Ok(5), 0);
        // The page that was read is discarded.
        let cut = |_: &SoftCpu<'_>, file: &MemoryObject<_>| file.truncate(0).unwrap();
        while_waiting(how, load, cut, Err(Trap::Bus { address: AT }), 0);
    }
}
