//! No memory at all, by injection or in earnest: faults report it, nothing leaks,
//! and everything works afterwards.

use faultless_mm::{Access, Errno, Layout, Outcome, Policy, advice, flags};
use faultless_soft::{Soft, SoftCpu, Trap};
use faultless_tests::{available, machine};

const PAGE: u64 = 4096;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS;
/// Far from other mappings, so that tables of every level and nodes are missing.
const AT: u64 = 1 << 36;

fn map(cpu: &SoftCpu<'_>, pages: u64, prot: u32, more: u32) {
    let at = cpu
        .space()
        .mmap(AT, pages * PAGE, prot, ANON | flags::FIXED | more);
    assert_eq!(at, Ok(AT));
}

/// Whichever allocation of a fault fails, for however long, the outcome
/// reports it, nothing leaks, and the fault succeeds afterwards.
#[test]
fn faults_without_memory() {
    for &policy in Policy::ALL {
        // Tables of three levels and the page; a read needs no page.
        for (needs, write) in [(4, true), (3, false)] {
            let memory = machine(1, 64);
            for allocation in 0..=needs {
                let before = available(memory);
                let space = SoftCpu::attend(memory, 0, || Soft::space(memory, policy)).unwrap();
                let access = if write { Access::Write } else { Access::Read };
                SoftCpu::run(&space, 0, |cpu| {
                    map(cpu, 9, RW, 0);
                    let faults = || cpu.space().fault(AT, access);
                    memory.machine().fail_from(Some(allocation));
                    let expected = match allocation < needs {
                        true => Outcome::OutOfMemory,
                        false => Outcome::Resolved,
                    };
                    assert_eq!(faults(), expected, "{policy}, {access:?}, {allocation}");
                    memory.machine().fail_from(None);
                    let census = space.verify().unwrap();
                    assert_eq!(census.tables, 1 + u64::from(allocation.min(3)));
                    assert_eq!(faults(), Outcome::Resolved);
                    assert_eq!(cpu.load(AT), Ok(0));
                    space.verify().unwrap();
                });
                SoftCpu::attend(memory, 0, || space.destroy());
                assert_eq!(
                    available(memory),
                    before,
                    "{policy}, {access:?}, {allocation}"
                );
            }
        }
    }
}

/// A stack that cannot grow for lack of memory is an error of the program, as in
/// Linux, and its mapping stays.
#[test]
fn growth_without_memory() {
    for &policy in Policy::ALL {
        let memory = machine(1, 64);
        let before = available(memory);
        let space = SoftCpu::attend(memory, 0, || Soft::space(memory, policy)).unwrap();
        SoftCpu::run(&space, 0, |cpu| {
            map(cpu, 9, RW, flags::GROWSDOWN);
            memory.drain();
            memory.machine().fail_from(Some(0));
            let below = AT - 100 * PAGE;
            let grown = cpu.store(below, 7);
            assert!(grown.is_err(), "{grown:?} under {policy}");
            memory.machine().fail_from(None);
            assert_eq!(cpu.store(below, 7), Ok(()));
            space.verify().unwrap();
        });
        SoftCpu::attend(memory, 0, || space.destroy());
        assert_eq!(available(memory), before);
    }
}

#[test]
fn making_an_address_space() {
    let memory = machine(1, 64);
    let before = available(memory);
    for allocation in 0.. {
        SoftCpu::attend(memory, 0, || {
            memory.machine().fail_in(Some(allocation));
            let result = Soft::space(memory, Policy::default());
            memory.machine().fail_in(None);
            if let Ok(space) = result {
                space.destroy();
            }
        });
        assert_eq!(available(memory), before, "allocation {allocation}");
        if allocation > 8 {
            break;
        }
    }
}

#[test]
fn really_exhausted() {
    let memory = machine(1, 1);
    let before = available(memory);
    let space = SoftCpu::attend(memory, 0, || {
        let layout = Layout {
            commit_pages: u64::MAX,
            ..Layout::LINUX_X86_64
        };
        faultless_mm::OwnedSpace::new(memory, Policy::default(), layout)
    })
    .unwrap();
    SoftCpu::run(&space, 0, |cpu| {
        map(cpu, 1000, RW, 0);
        let stored = (0..1000)
            .take_while(|page| cpu.store(AT + page * PAGE, 1).is_ok())
            .count();
        assert!((100..256).contains(&stored), "{stored} pages of 256 frames");
        assert_eq!(cpu.store(AT + 999 * PAGE, 1), Err(Trap::OutOfMemory));
        let errno = cpu.space().madvise(AT, 1000 * PAGE, advice::POPULATE_WRITE);
        assert_eq!(errno, Err(Errno::ENOMEM));
        // Unmapping needs memory only for a split.
        assert_eq!(cpu.space().munmap(AT, 1000 * PAGE), Ok(()));
        map(cpu, 100, RW, 0);
        for page in 0..100 {
            assert_eq!(cpu.store(AT + page * PAGE, page), Ok(()));
        }
        cpu.space().verify().unwrap();
    });
    SoftCpu::attend(memory, 0, || space.destroy());
    assert_eq!(available(memory), before);
}
