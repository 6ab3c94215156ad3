//! What `madvise` returns for advice on anonymous memory that has no effect yet, and in
//! which order it checks.

use faultless_mm::{Errno, advice, flags};
use faultless_soft::SoftSpace;
use faultless_tests::each_policy;

const PAGE: u64 = 4096;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS;
const AT: u64 = 1 << 36;

/// Two mapped ranges with a page between them.
fn map(space: &SoftSpace) {
    for first in [0, 5] {
        let at = AT + first * PAGE;
        let mapped = space.mmap(at, 4 * PAGE, RW, ANON | flags::FIXED);
        assert_eq!(mapped, Ok(at));
    }
}

#[test]
fn hints_are_accepted() {
    const HINTS: [i32; 7] = [
        advice::COLD,
        advice::PAGEOUT,
        advice::HUGEPAGE,
        advice::NOHUGEPAGE,
        advice::MERGEABLE,
        advice::UNMERGEABLE,
        advice::WILLNEED,
    ];
    each_policy(1, 64, |cpu, space, _| {
        map(space);
        cpu.store(AT, 7).unwrap();
        for what in HINTS {
            assert_eq!(space.madvise(AT, 4 * PAGE, what), Ok(()), "{what}");
            let over_a_hole = space.madvise(AT, 9 * PAGE, what);
            assert_eq!(over_a_hole, Err(Errno::ENOMEM), "{what}");
            assert_eq!(cpu.load(AT), Ok(7), "{what}");
        }
    });
}

#[test]
fn what_is_not_for_anonymous_memory_is_refused() {
    each_policy(1, 64, |_, space, _| {
        map(space);
        for what in [advice::REMOVE, advice::COLLAPSE] {
            assert_eq!(space.madvise(AT, 4 * PAGE, what), Err(Errno::EINVAL));
            // A mapping that does not support the advice ends the call, whatever holes came before.
            let late = space.madvise(AT + 4 * PAGE, 2 * PAGE, what);
            assert_eq!(late, Err(Errno::EINVAL));
            let hole = space.madvise(AT + 4 * PAGE, PAGE, what);
            assert_eq!(hole, Err(Errno::ENOMEM));
        }
        for what in [advice::HWPOISON, advice::SOFT_OFFLINE] {
            assert_eq!(space.madvise(AT, PAGE, what), Err(Errno::EPERM));
            assert_eq!(space.madvise(AT, 0, what), Ok(()));
            assert_eq!(space.madvise(AT + 1, PAGE, what), Err(Errno::EINVAL));
        }
    });
}

#[test]
fn what_is_unknown_is_so_whatever_the_range() {
    each_policy(1, 64, |_, space, _| {
        for what in [-1, 5, 6, 7, 26, 27, 99, 104, 1000, i32::MIN, i32::MAX] {
            for (address, length) in [(AT, PAGE), (AT, 0), (AT + 1, PAGE)] {
                let answer = space.madvise(address, length, what);
                assert_eq!(answer, Err(Errno::EINVAL), "{what}");
            }
        }
    });
}

#[test]
fn advice_keeps_mappings_apart_as_on_linux() {
    each_policy(1, 64, |_, space, _| {
        map(space);
        let count = |space: &SoftSpace| {
            let mut lines = 0;
            space.maps(&mut |_| lines += 1);
            lines
        };
        for (what, undone) in [
            (advice::HUGEPAGE, advice::NOHUGEPAGE),
            (advice::MERGEABLE, advice::UNMERGEABLE),
        ] {
            let before = count(space);
            space.madvise(AT + PAGE, PAGE, what).unwrap();
            assert_eq!(count(space), before + 2);
            space.madvise(AT, 4 * PAGE, undone).unwrap();
            assert_eq!(count(space), before);
        }
        // Shared mappings are not mergeable.
        let shared = flags::SHARED | flags::ANONYMOUS | flags::FIXED;
        let at = AT + 20 * PAGE;
        assert_eq!(space.mmap(at, 4 * PAGE, RW, shared), Ok(at));
        let before = count(space);
        space.madvise(at + PAGE, PAGE, advice::MERGEABLE).unwrap();
        assert_eq!(count(space), before);
    });
}
