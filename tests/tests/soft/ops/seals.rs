//! `mseal`, under every policy: what it forbids, as in Linux 6.12, and that a forbidden operation
//! changes nothing.

use faultless_mm::{AddressSpace, Errno, advice, flags, remap_flags};
use faultless_soft::{SoftCpu, SoftSpace};
use faultless_tests::each_policy;

const PAGE: u64 = 4096;
const READ: u32 = 1;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS;
const AT: u64 = 1 << 36;
const TO: u64 = AT + (3 << 30);
const HEAP: u64 = 1 << 32;
const FIXED: u32 = remap_flags::MAYMOVE | remap_flags::FIXED;
const EPERM: Errno = Errno::EPERM;

fn page(number: u64) -> u64 {
    AT + number * PAGE
}

fn map(space: &SoftSpace, at: u64, pages: u64, prot: u32) {
    let mapped = space.mmap(at, pages * PAGE, prot, ANON | flags::FIXED);
    assert_eq!(mapped, Ok(at));
}

fn seal(space: &SoftSpace, first: u64, pages: u64) {
    assert_eq!(space.mseal(page(first), pages * PAGE, 0), Ok(()));
}

/// First and last page, and whether it can be written.
fn lines(space: &SoftSpace) -> Vec<(u64, u64, bool)> {
    let mut lines = Vec::new();
    space.maps(&mut |line| {
        let (start, end) = (line.start.wrapping_sub(AT), line.end.wrapping_sub(AT));
        lines.push((start / PAGE, end / PAGE, line.protection.write));
    });
    lines
}

/// Ten pages with their numbers in them, of which 4 to 6 are sealed.
fn sealed_within(cpu: &SoftCpu<'_>, space: &SoftSpace) {
    map(space, AT, 10, RW);
    for number in 0..10 {
        cpu.store(page(number), number).unwrap();
    }
    seal(space, 4, 3);
}

#[test]
fn what_is_sealed_cannot_be_unmapped_moved_or_replaced() {
    each_policy(1, 64, |cpu, space, _| {
        sealed_within(cpu, space);
        let before = lines(space);
        assert_eq!(before, [(0, 4, true), (4, 7, true), (7, 10, true)]);
        for (first, pages) in [(4, 3), (5, 1), (0, 10), (0, 5), (6, 2)] {
            let (address, length) = (page(first), pages * PAGE);
            assert_eq!(space.munmap(address, length), Err(EPERM));
            let over = space.mmap(address, length, RW, ANON | flags::FIXED);
            assert_eq!(over, Err(EPERM));
            let over = space.mmap(address, length, RW, ANON | flags::FIXED_NOREPLACE);
            assert_eq!(over, Err(Errno::EEXIST));
        }
        let remap = |first: u64, old: u64, new: u64, flags, to| {
            space.mremap(page(first), old * PAGE, new * PAGE, flags, to)
        };
        // From a sealed range, with any flags.
        assert_eq!(remap(4, 3, 3, FIXED, TO), Err(EPERM));
        assert_eq!(remap(4, 3, 2, 0, 0), Err(EPERM));
        assert_eq!(remap(4, 3, 4, remap_flags::MAYMOVE, 0), Err(EPERM));
        assert_eq!(remap(5, 1, 1, 0, 0), Err(EPERM));
        // Checked before the destination's errors.
        assert_eq!(remap(5, 1, 1, FIXED, TO + 1), Err(EPERM));
        // Onto a sealed range, or over it with the tail that is unmapped.
        assert_eq!(remap(0, 2, 2, FIXED, page(5)), Err(EPERM));
        assert_eq!(remap(3, 2, 1, 0, 0), Err(EPERM));
        assert_eq!(lines(space), before);
        for number in 0..10 {
            assert_eq!(cpu.load(page(number)), Ok(number));
        }
        // Beside it everything works as before.
        assert_eq!(space.munmap(page(7), PAGE), Ok(()));
        assert_eq!(remap(0, 4, 4, FIXED, TO), Ok(TO));
        cpu.store(page(5), 7).unwrap();
    });
}

#[test]
fn protection_changes_up_to_what_is_sealed() {
    each_policy(1, 64, |cpu, space, _| {
        sealed_within(cpu, space);
        assert_eq!(space.mprotect(page(4), PAGE, READ), Err(EPERM));
        assert_eq!(space.mprotect(page(5), PAGE, RW), Err(EPERM), "the same");
        assert_eq!(space.mprotect(page(2), 8 * PAGE, READ), Err(EPERM));
        let parts = [(0, 2, true), (2, 4, false), (4, 7, true), (7, 10, true)];
        assert_eq!(lines(space), parts);
        assert_eq!(cpu.store(page(5), 1), Ok(()));
        assert!(cpu.store(page(3), 1).is_err());
    });
}

#[test]
fn advice_takes_nothing_from_what_is_sealed_and_read_only() {
    const TAKE: [i32; 6] = [
        advice::DONTNEED,
        advice::DONTNEED_LOCKED,
        advice::FREE,
        advice::DONTFORK,
        advice::WIPEONFORK,
        advice::GUARD_INSTALL,
    ];
    each_policy(1, 64, |cpu, space, _| {
        map(space, AT, 10, RW);
        for number in 0..10 {
            cpu.store(page(number), number + 1).unwrap();
        }
        space.mprotect(page(4), 3 * PAGE, READ).unwrap();
        seal(space, 4, 3);
        for what in TAKE {
            assert_eq!(space.madvise(page(5), PAGE, what), Err(EPERM), "{what}");
        }
        for number in 4..7 {
            assert_eq!(cpu.load(page(number)), Ok(number + 1));
        }
        // Mappings before it are discarded, those behind it are not.
        assert_eq!(space.madvise(AT, 10 * PAGE, advice::DONTNEED), Err(EPERM));
        assert_eq!(cpu.load(page(3)), Ok(0));
        assert_eq!(cpu.load(page(7)), Ok(8));
        for what in [
            advice::NORMAL,
            advice::DONTDUMP,
            advice::COLD,
            advice::GUARD_REMOVE,
        ] {
            assert_eq!(space.madvise(page(4), 3 * PAGE, what), Ok(()), "{what}");
        }
        assert_eq!(space.madvise(page(4), PAGE, advice::REMOVE), Err(EPERM));
        // A writable mapping may be discarded.
        seal(space, 0, 2);
        assert_eq!(space.madvise(AT, 2 * PAGE, advice::DONTNEED), Ok(()));
        assert_eq!(cpu.load(page(0)), Ok(0));
    });
}

#[test]
fn sealing_is_all_or_nothing() {
    each_policy(1, 64, |_, space, _| {
        map(space, AT, 10, RW);
        space.munmap(page(6), PAGE).unwrap();
        let seal = |first: u64, length: u64, flags| space.mseal(page(first), length, flags);
        assert_eq!(seal(0, 10 * PAGE, 0), Err(Errno::ENOMEM));
        assert_eq!(seal(6, PAGE, 0), Err(Errno::ENOMEM));
        assert_eq!(seal(8, 3 * PAGE, 0), Err(Errno::ENOMEM));
        assert_eq!(seal(0, PAGE, 1), Err(Errno::EINVAL));
        assert_eq!(space.mseal(AT + 1, PAGE, 0), Err(Errno::EINVAL));
        assert_eq!(seal(0, u64::MAX, 0), Err(Errno::EINVAL));
        assert_eq!(seal(0, u64::MAX - 2 * PAGE, 0), Err(Errno::EINVAL));
        assert_eq!(seal(0, 0, 0), Ok(()));
        assert_eq!(space.munmap(page(0), PAGE), Ok(()), "nothing is sealed");
        // Up to a page, and again.
        assert_eq!(seal(1, PAGE + 1, 0), Ok(()));
        assert_eq!(seal(1, 3 * PAGE, 0), Ok(()));
        assert_eq!(lines(space), [(1, 4, true), (4, 6, true), (7, 10, true)]);
    });
}

#[test]
fn a_sealed_heap_grows_but_does_not_shrink() {
    each_policy(1, 64, |_, space, _| {
        space.set_brk(HEAP);
        assert_eq!(space.brk(HEAP + 4 * PAGE), HEAP + 4 * PAGE);
        assert_eq!(space.mseal(HEAP, 4 * PAGE, 0), Ok(()));
        assert_eq!(space.brk(HEAP + 2 * PAGE), HEAP + 4 * PAGE);
        assert_eq!(space.brk(HEAP + 6 * PAGE), HEAP + 6 * PAGE);
        assert_eq!(space.brk(HEAP + 4 * PAGE), HEAP + 4 * PAGE, "not sealed");
        assert_eq!(space.brk(HEAP + 3 * PAGE), HEAP + 4 * PAGE);
    });
}

#[test]
fn seals_are_inherited() {
    each_policy(1, 64, |cpu, space, _| {
        sealed_within(cpu, space);
        seal(space, 9, 1);
        // It is writable, so it may be withheld from a child, which is no unmapping.
        space.madvise(page(9), PAGE, advice::DONTFORK).unwrap();
        let child = space.fork().unwrap();
        AddressSpace::verify_together(&[space, &child]).unwrap();
        assert_eq!(child.munmap(page(5), PAGE), Err(EPERM));
        assert_eq!(child.lookup(page(9)), None);
        assert_eq!(child.munmap(page(7), PAGE), Ok(()));
        child.destroy();
    });
}
