//! Each allocation of a fork and of the copies after it fails: fork fails as a whole, a
//! write reports the error, nothing leaks, and both work again.

use faultless_mm::{AddressSpace, Errno, HugeMode, flags};
use faultless_soft::{SoftCpu, SoftSpace, Trap};
use faultless_tests::inject::{Failing, inject};
use faultless_tests::{available, machine};

const PAGE: u64 = 4096;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS;
const AT: u64 = 1 << 36;

/// Several mappings, tables and nodes; pages of every kind.
fn prepare(cpu: &SoftCpu<'_>) {
    for (first, pages, prot) in [(0, 200, RW), (200, 70, 1), (5000, 3, RW), (300_000, 1, RW)] {
        let at = AT + first * PAGE;
        let mapped = cpu
            .space()
            .mmap(at, pages * PAGE, prot, ANON | flags::FIXED);
        assert_eq!(mapped, Ok(at));
        if prot == RW {
            cpu.store(at, first + 1).unwrap();
        }
        cpu.load(at + (pages - 1) * PAGE).unwrap();
    }
    cpu.space().mprotect(AT + 200 * PAGE, PAGE, 0).unwrap();
    cpu.space().mprotect(AT + 10 * PAGE, PAGE, 1).unwrap();
}

/// Asserts that the child has what the parent has, and destroys it.
fn look_and_destroy(cpu: &SoftCpu<'_>, child: SoftSpace) {
    AddressSpace::verify_together(&[cpu.space(), &child])
        .unwrap_or_else(|violation| panic!("{violation}"));
    for first in [0, 5000, 300_000] {
        let at = AT + first * PAGE;
        assert!(child.translate(at).is_some());
        assert_eq!(child.translate(at), cpu.space().translate(at));
    }
    child.destroy();
}

#[test]
fn forking() {
    inject(
        "fork",
        Failing::Whole,
        prepare,
        |cpu| match cpu.space().fork() {
            Ok(child) => {
                look_and_destroy(cpu, child);
                Ok(())
            }
            Err(e) => {
                assert_eq!(e, Errno::ENOMEM);
                Err(e)
            }
        },
        |cpu| {
            // Pages that a failed fork write-protected are written in place.
            for first in [0, 5000, 300_000] {
                let at = AT + first * PAGE;
                assert_eq!(cpu.load(at), Ok(first + 1));
                cpu.store(at, first + 1).unwrap();
            }
        },
    );
}

/// The same with huge pages behind small ones: what was frozen before the failure is thawed.
#[test]
fn forking_huge_pages() {
    const HUGE: u64 = 2 << 20;
    let at = AT + (1 << 30);
    inject(
        "fork huge pages",
        Failing::Whole,
        |cpu| {
            prepare(cpu);
            cpu.space().memory().set_huge_mode(HugeMode::Always);
            let how = ANON | flags::FIXED;
            assert_eq!(cpu.space().mmap(at, 2 * HUGE, RW, how), Ok(at));
            cpu.store(at, 7).unwrap();
            cpu.load(at + HUGE).unwrap();
            cpu.space().memory().set_huge_mode(HugeMode::Never);
        },
        |cpu| {
            cpu.space().fork().map(|child| {
                assert_eq!(child.translate(at), cpu.space().translate(at));
                look_and_destroy(cpu, child);
            })
        },
        |cpu| {
            for (page, word) in [(at, 7), (AT, 1), (AT + 5000 * PAGE, 5001)] {
                assert_eq!(cpu.load(page), Ok(word));
                cpu.store(page, word).unwrap();
            }
            cpu.store(at + HUGE, 8).unwrap();
        },
    );
}

/// A copy that finds no frame changes nothing; the next attempt succeeds.
#[test]
fn copying() {
    let memory = machine(2, 64);
    for &policy in faultless_mm::Policy::ALL {
        let before = available(memory);
        let space =
            SoftCpu::attend(memory, 0, || faultless_soft::Soft::space(memory, policy)).unwrap();
        let child = SoftCpu::run(&space, 0, |cpu| {
            prepare(cpu);
            cpu.space().fork().unwrap()
        });
        SoftCpu::run(&space, 0, |cpu| {
            memory.machine().fail_from(Some(0));
            assert_eq!(cpu.store(AT, 9), Err(Trap::OutOfMemory));
            assert_eq!(cpu.load(AT), Ok(1));
            memory.machine().fail_from(None);
            memory.machine().fail_in(Some(0));
            // One failure: the fault tries again.
            assert_eq!(cpu.store(AT, 9), Ok(()));
            assert!(memory.machine().has_failed());
            AddressSpace::verify_together(&[cpu.space(), &child])
                .unwrap_or_else(|violation| panic!("{violation}"));
        });
        // As the last user of the page, the child needs no frame.
        SoftCpu::run(&child, 1, |cpu| {
            assert_eq!(cpu.load(AT), Ok(1));
            memory.machine().fail_from(Some(0));
            assert_eq!(cpu.store(AT, 10), Ok(()));
            assert_eq!(cpu.store(AT + 5000 * PAGE, 10), Err(Trap::OutOfMemory));
            memory.machine().fail_from(None);
        });
        SoftCpu::attend(memory, 0, || {
            AddressSpace::verify_together(&[&space, &child])
                .unwrap_or_else(|violation| panic!("{violation}"));
            space.destroy();
            child.destroy();
        });
        assert_eq!(available(memory), before, "frames were lost or found");
    }
}

/// Forks until memory runs out, and once more afterwards.
#[test]
fn forking_until_memory_is_gone() {
    let memory = machine(1, 4);
    let before = available(memory);
    let space = SoftCpu::attend(memory, 0, || {
        faultless_soft::Soft::space(memory, faultless_mm::Policy::default())
    })
    .unwrap();
    SoftCpu::run(&space, 0, |cpu| {
        prepare(cpu);
        let mut children = Vec::new();
        let error = loop {
            match cpu.space().fork() {
                Ok(child) => children.push(child),
                Err(error) => break error,
            }
        };
        assert_eq!(error, Errno::ENOMEM);
        assert!(children.len() > 10, "{} children", children.len());
        let mut all: Vec<_> = children.iter().collect();
        all.push(cpu.space());
        AddressSpace::verify_together(&all).unwrap_or_else(|violation| panic!("{violation}"));
        children.into_iter().for_each(|child| {
            child.destroy();
        });
        look_and_destroy(cpu, cpu.space().fork().unwrap());
    });
    SoftCpu::attend(memory, 0, || space.destroy());
    assert_eq!(available(memory), before, "frames were lost or found");
}
