//! Shrinking, growing and moving mappings, under every policy: contents move along, the
//! source is unmapped, errors are Linux 6.12's.

use faultless_mm::{AddressSpace, Counter, Errno, Policy, SegvCode, flags, remap_flags};
use faultless_soft::{Soft, SoftCpu, SoftMemory, SoftSpace, Trap};
use faultless_tests::{available, machine};

const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS;
const PAGE: u64 = 4096;
const AT: u64 = 1 << 36;
const TO: u64 = (1 << 36) + (3 << 30) + 5 * PAGE;
const MAYMOVE: u32 = remap_flags::MAYMOVE;
const FIXED: u32 = MAYMOVE | remap_flags::FIXED;
const DONTUNMAP: u32 = MAYMOVE | remap_flags::DONTUNMAP;

fn map(space: &SoftSpace, at: u64, pages: u64) {
    let mapped = space.mmap(at, pages * PAGE, RW, ANON | flags::FIXED);
    assert_eq!(mapped, Ok(at));
}

fn gone(result: Result<u64, Trap>) -> bool {
    matches!(
        result,
        Err(Trap::Segv {
            code: SegvCode::MapErr,
            ..
        })
    )
}

/// Runs a test on a machine of its own under each policy, and asserts that no frame leaked.
fn each_policy(test: impl Fn(&SoftCpu<'_>, &SoftSpace, &'static SoftMemory)) {
    for &policy in Policy::ALL {
        let memory = machine(2, 64);
        let before = available(memory);
        let space = SoftCpu::attend(memory, 0, || Soft::space(memory, policy)).unwrap();
        SoftCpu::run(&space, 0, |cpu| test(cpu, &space, memory));
        SoftCpu::attend(memory, 0, || {
            if let Err(violation) = AddressSpace::verify_together(&[&space]) {
                panic!("{policy:?}: {violation}");
            }
            space.destroy();
        });
        assert_eq!(available(memory), before, "{policy:?}");
    }
}

/// The end of the source wraps to 0, as on Linux: nothing overlaps it, and the target is unmapped before the
/// length is refused.
#[test]
fn a_length_to_the_end_of_everything() {
    each_policy(|_, space, _| {
        map(space, AT, 1);
        map(space, TO, 1);
        let refused = space.mremap(AT, AT.wrapping_neg(), PAGE, FIXED, TO);
        assert_eq!(refused, Err(Errno::EINVAL));
        assert!(space.lookup(TO).is_none() && space.lookup(AT).is_some());
        map(space, TO, 1);
        let one_less = AT.wrapping_neg() - PAGE;
        let refused = space.mremap(AT, one_less, PAGE, FIXED, TO);
        assert_eq!(refused, Err(Errno::EINVAL), "they overlap");
        assert!(space.lookup(TO).is_some());
        let nowhere = space.mremap(AT, PAGE, PAGE, FIXED, PAGE.wrapping_neg());
        assert_eq!(nowhere, Err(Errno::EINVAL));
    });
}

/// Every length may be requested, and none of these fits.
#[test]
fn lengths_beyond_everything_are_refused() {
    each_policy(|_, space, _| {
        for protection in [0, RW] {
            let at = space.mmap(AT, PAGE, protection, ANON | flags::FIXED | flags::NORESERVE);
            assert_eq!(at, Ok(AT));
            for length in [1 << 47, 1 << 52, 1 << 58, !(PAGE - 1)] {
                for how in [0, MAYMOVE] {
                    let moved = space.mremap(AT, PAGE, length, how, 0);
                    assert_eq!(moved, Err(Errno::ENOMEM), "{length:#x}");
                }
            }
        }
    });
}

#[test]
fn pages_go_along() {
    each_policy(|cpu, space, memory| {
        // Over two tables on this side, three on the other.
        map(space, AT, 1200);
        for page in (0..1200).step_by(3) {
            cpu.store(AT + page * PAGE, page + 1).unwrap();
        }
        assert_eq!(cpu.load(AT + PAGE), Ok(0));
        space.mprotect(AT + 3 * PAGE, PAGE, 0).unwrap();
        space.mprotect(AT + 3 * PAGE, PAGE, RW).unwrap();
        let faults = memory.total(Counter::Faults);
        let moved = space.mremap(AT, 1200 * PAGE, 1300 * PAGE, FIXED, TO);
        assert_eq!(moved, Ok(TO));
        for page in 0..1200 {
            let expected = if page % 3 == 0 { page + 1 } else { 0 };
            assert!(gone(cpu.load(AT + page * PAGE)));
            if page % 3 == 0 || page == 1 {
                assert_eq!(cpu.load(TO + page * PAGE), Ok(expected));
            }
        }
        // No page was faulted in again: the only faults are those of failed loads.
        assert_eq!(memory.total(Counter::Faults) - faults, 1200);
        cpu.store(TO + 1299 * PAGE, 7).unwrap();
        assert!(gone(cpu.load(TO + 1300 * PAGE)));
        let mut lines = Vec::new();
        space.maps(&mut |line| lines.push((line.start, line.end)));
        assert_eq!(lines, [(TO, TO + 1300 * PAGE)]);
    });
}

#[test]
fn a_part_moves_out_of_the_middle() {
    each_policy(|cpu, space, _| {
        map(space, AT, 10);
        for page in 0..10 {
            cpu.store(AT + page * PAGE, page + 1).unwrap();
        }
        map(space, TO, 6);
        cpu.store(TO + 2 * PAGE, 99).unwrap();
        // Two pages shorter than it was, over something else.
        let moved = space.mremap(AT + 2 * PAGE, 5 * PAGE, 3 * PAGE, FIXED, TO + PAGE);
        assert_eq!(moved, Ok(TO + PAGE));
        for page in 1..4 {
            assert_eq!(cpu.load(TO + page * PAGE), Ok(page + 2));
        }
        for page in 0..10 {
            let here = cpu.load(AT + page * PAGE);
            if (2..7).contains(&page) {
                assert!(gone(here));
            } else {
                assert_eq!(here, Ok(page + 1));
            }
        }
        assert_eq!(cpu.load(TO), Ok(0));
    });
}

/// Neighbours that have become equal are one mapping, whatever they were before.
#[test]
fn equal_neighbours_go_together() {
    each_policy(|cpu, space, _| {
        map(space, AT, 2);
        map(space, AT + 3 * PAGE, 2);
        let between = AT + 2 * PAGE;
        assert_eq!(
            space.mmap(between, PAGE, 1, ANON | flags::FIXED),
            Ok(between)
        );
        for page in [0, 1, 3, 4] {
            cpu.store(AT + page * PAGE, page + 1).unwrap();
        }
        let apart = space.mremap(AT, 5 * PAGE, 5 * PAGE, FIXED, TO);
        assert_eq!(apart, Err(Errno::EFAULT));
        space.mprotect(between, PAGE, RW).unwrap();
        map(space, AT + 5 * PAGE, 1);
        let stuck = space.mremap(AT, 5 * PAGE, 7 * PAGE, 0, 0);
        assert_eq!(stuck, Err(Errno::ENOMEM));
        let moved = space.mremap(AT + PAGE, 4 * PAGE, 4 * PAGE, FIXED, TO);
        assert_eq!(moved, Ok(TO));
        for page in [1, 3, 4] {
            assert_eq!(cpu.load(TO + (page - 1) * PAGE), Ok(page + 1));
        }
        assert!(gone(cpu.load(AT + PAGE)));
        assert_eq!(cpu.load(AT), Ok(1));
        let mut lines = Vec::new();
        space.maps(&mut |line| lines.push((line.start, line.end)));
        let left = [(AT, AT + PAGE), (AT + 5 * PAGE, AT + 6 * PAGE)];
        assert_eq!(lines, [left[0], left[1], (TO, TO + 4 * PAGE)]);
    });
}

#[test]
fn in_place_if_there_is_room() {
    each_policy(|cpu, space, _| {
        map(space, AT, 4);
        cpu.store(AT, 5).unwrap();
        assert_eq!(space.mremap(AT, 4 * PAGE, 9 * PAGE, 0, 0), Ok(AT));
        cpu.store(AT + 8 * PAGE, 6).unwrap();
        assert_eq!(space.mremap(AT, 9 * PAGE, 2 * PAGE, 0, 0), Ok(AT));
        assert!(gone(cpu.load(AT + 8 * PAGE)));
        map(space, AT + 4 * PAGE, 1);
        let stuck = space.mremap(AT, 2 * PAGE, 5 * PAGE, 0, 0);
        assert_eq!(stuck, Err(Errno::ENOMEM));
        let moved = space.mremap(AT, 2 * PAGE, 5 * PAGE, MAYMOVE, 0).unwrap();
        assert_ne!(moved, AT);
        assert_eq!(cpu.load(moved), Ok(5));
        assert!(gone(cpu.load(AT)));
    });
}

#[test]
fn the_old_place_can_stay_mapped() {
    each_policy(|cpu, space, _| {
        map(space, AT, 4);
        cpu.store(AT + PAGE, 5).unwrap();
        let at = space.mremap(AT, 4 * PAGE, 4 * PAGE, DONTUNMAP, TO);
        assert_eq!(at, Ok(TO));
        assert_eq!(cpu.load(TO + PAGE), Ok(5));
        assert_eq!(cpu.load(AT + PAGE), Ok(0));
        cpu.store(AT + PAGE, 8).unwrap();
        assert_eq!(cpu.load(TO + PAGE), Ok(5));
    });
}

#[test]
fn what_was_shared_by_fork_stays_shared() {
    for &policy in Policy::ALL {
        let memory = machine(2, 64);
        let space = SoftCpu::attend(memory, 0, || Soft::space(memory, policy)).unwrap();
        let child = SoftCpu::run(&space, 0, |cpu| {
            map(&space, AT, 4);
            cpu.store(AT, 1).unwrap();
            cpu.store(AT + PAGE, 2).unwrap();
            let child = space.fork().unwrap();
            assert_eq!(space.mremap(AT, 4 * PAGE, 4 * PAGE, FIXED, TO), Ok(TO));
            cpu.store(TO, 10).unwrap();
            assert_eq!(cpu.load(TO + PAGE), Ok(2));
            child
        });
        SoftCpu::run(&child, 0, |cpu| {
            assert_eq!(cpu.load(AT), Ok(1));
            cpu.store(AT + PAGE, 20).unwrap();
        });
        SoftCpu::run(&space, 0, |cpu| {
            assert_eq!(cpu.load(TO), Ok(10));
            assert_eq!(cpu.load(TO + PAGE), Ok(2));
        });
        SoftCpu::attend(memory, 0, || {
            let verified = AddressSpace::verify_together(&[&space, &child]);
            assert!(verified.is_ok(), "{policy:?}: {verified:?}");
            space.destroy();
            child.destroy();
        });
    }
}

#[test]
fn wrong_arguments() {
    each_policy(|cpu, space, _| {
        map(space, AT, 4);
        map(space, TO, 4);
        space.mprotect(AT + 2 * PAGE, PAGE, 1).unwrap();
        let remap =
            |old, old_length, length, flags, new| space.mremap(old, old_length, length, flags, new);
        for (answer, error) in [
            (remap(AT, PAGE, PAGE, 8, 0), Errno::EINVAL),
            (remap(AT, PAGE, PAGE, remap_flags::FIXED, TO), Errno::EINVAL),
            (remap(AT, PAGE, 2 * PAGE, DONTUNMAP, 0), Errno::EINVAL),
            (remap(AT + 1, PAGE, PAGE, 0, 0), Errno::EINVAL),
            (remap(AT, PAGE, 0, 0, 0), Errno::EINVAL),
            (remap(AT, PAGE, u64::MAX, 0, 0), Errno::EINVAL),
            (remap(AT - PAGE, PAGE, PAGE, 0, 0), Errno::EFAULT),
            (remap(AT, 4 * PAGE, 8 * PAGE, MAYMOVE, 0), Errno::EFAULT),
            (remap(AT, 0, PAGE, MAYMOVE, 0), Errno::EINVAL),
            (
                remap(AT, 2 * PAGE, 2 * PAGE, FIXED, AT + PAGE),
                Errno::EINVAL,
            ),
            (remap(AT, PAGE, PAGE, FIXED, TO + 1), Errno::EINVAL),
            (
                remap(AT, PAGE, PAGE, FIXED, u64::MAX - PAGE + 1),
                Errno::EINVAL,
            ),
            (remap(AT, PAGE, PAGE, FIXED, 0), Errno::EPERM),
            (remap(AT, PAGE, 1 << 47, MAYMOVE, 0), Errno::ENOMEM),
        ] {
            assert_eq!(answer, Err(error));
        }
        // As on Linux, the mapping at a fixed target is unmapped before the source is found wrong.
        cpu.store(TO, 1).unwrap();
        assert_eq!(remap(AT, 4 * PAGE, 4 * PAGE, FIXED, TO), Err(Errno::EFAULT));
        assert!(gone(cpu.load(TO)));
    });
}
