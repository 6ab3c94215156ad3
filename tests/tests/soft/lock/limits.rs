//! Limits of what a process may map, and the counts they are compared with, as on Linux 6.12.

use faultless_mm::{Errno, Layout, Limits, VmStats, advice, flags, remap_flags};
use faultless_soft::{SoftCpu, SoftSpace};

const PAGE: u64 = 4096;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS;
const FIXED: u32 = ANON | flags::FIXED;
const AT: u64 = 1 << 36;
const HEAP: u64 = 1 << 32;
const MOVE: u32 = remap_flags::MAYMOVE | remap_flags::FIXED;

fn each_policy(test: impl Fn(&SoftCpu<'_>)) {
    faultless_tests::each_policy(2, 64, |cpu, _, _| test(cpu));
}

fn at(page: u64) -> u64 {
    AT + page * PAGE
}

fn map(space: &SoftSpace, page: u64, pages: u64, prot: u32, more: u32) -> Result<(), Errno> {
    let mapped = space.mmap(at(page), pages * PAGE, prot, FIXED | more);
    mapped.map(|to| assert_eq!(to, at(page)))
}

#[test]
fn what_is_counted() {
    each_policy(|cpu| {
        let space = cpu.space();
        map(space, 0, 10, RW, 0).unwrap();
        map(space, 10, 5, 5, 0).unwrap();
        map(space, 1020, 4, RW, flags::GROWSDOWN).unwrap();
        map(space, 30, 3, 0, 0).unwrap();
        map(space, 40, 2, RW, flags::NORESERVE).unwrap();
        map(space, 42, 1, 7, 0).unwrap();
        let expected = VmStats {
            mapped: 25,
            data: 13,
            stack: 4,
            code: 5,
            locked: 0,
            committed: 15,
            mappings: 6,
            peak: 25,
        };
        assert_eq!(space.totals(), expected);
        assert_eq!(space.memory().committed(), 15);
        // A stack that grows.
        assert_eq!(cpu.store(at(1019), 1), Ok(()));
        assert_eq!(space.totals().stack, 5);
        assert_eq!(space.memory().committed(), 16);
        let child = space.fork().expect("memory suffices");
        assert_eq!(space.memory().committed(), 32);
        assert_eq!(child.totals(), space.totals());
        child.destroy();
        assert_eq!(space.memory().committed(), 16);
        space.munmap(AT, 2000 * PAGE).unwrap();
        let left = VmStats {
            peak: 26,
            ..VmStats::default()
        };
        assert_eq!(space.totals(), left);
        assert_eq!(space.memory().committed(), 0);
    });
}

/// The peak does not include the moment of a move at which both places are mapped.
#[test]
fn the_most_that_was_mapped() {
    each_policy(|cpu| {
        let space = cpu.space();
        map(space, 0, 10, RW, 0).unwrap();
        let moved = space.mremap(AT, 10 * PAGE, 10 * PAGE, MOVE, at(100));
        assert_eq!(moved, Ok(at(100)));
        map(space, 100, 10, 1, 0).unwrap();
        assert_eq!(space.totals().peak, 10);
        space.munmap(at(100), 5 * PAGE).unwrap();
        assert_eq!((space.totals().mapped, space.totals().peak), (5, 10));
        let child = space.fork().expect("memory suffices");
        assert_eq!(child.totals().peak, 5);
        child.destroy();
    });
}

#[test]
fn what_a_child_does_not_get_is_not_counted() {
    each_policy(|cpu| {
        let space = cpu.space();
        map(space, 0, 10, RW, 0).unwrap();
        space.madvise(at(3), 2 * PAGE, advice::DONTFORK).unwrap();
        space.mlock(at(6), PAGE, 0).unwrap();
        assert_eq!(space.totals().mappings, 5);
        let child = space.fork().expect("memory suffices");
        let totals = child.totals();
        assert_eq!((totals.mapped, totals.peak), (8, 8));
        // Without the lock, the range that was locked merges with its neighbours.
        assert_eq!(totals.mappings, 2);
        assert_eq!(child.verify().map(|census| census.mappings), Ok(2));
        assert_eq!(space.memory().committed(), 18);
        child.destroy();
    });
}

#[test]
fn the_address_space() {
    each_policy(|cpu| {
        let space = cpu.space();
        space.set_limits(&Limits {
            address_space: 20 * PAGE + 4095,
            ..Limits::NONE
        });
        assert_eq!(map(space, 0, 21, 0, 0), Err(Errno::ENOMEM));
        map(space, 0, 20, RW, 0).unwrap();
        assert_eq!(space.mmap(0, 1, 0, ANON), Err(Errno::ENOMEM));
        // A replaced mapping counts as free; its neighbours do not.
        map(space, 5, 10, 1, 0).unwrap();
        assert_eq!(map(space, 15, 6, 1, 0), Err(Errno::ENOMEM));
        assert_eq!(space.totals().mapped, 20);
        assert_eq!(space.totals().mappings, 3);
        space.set_brk(HEAP);
        assert_eq!(space.brk(HEAP + 1), HEAP);
        let grown = space.mremap(at(15), 5 * PAGE, 6 * PAGE, 1, 0);
        assert_eq!(grown, Err(Errno::ENOMEM));
        let stays = MOVE | remap_flags::DONTUNMAP;
        let stayed = space.mremap(at(15), PAGE, PAGE, stays, at(50));
        assert_eq!(stayed, Err(Errno::ENOMEM));
        // A move of the same size is no growth. A mapping at a fixed target is unmapped before the limit
        // is checked.
        assert_eq!(
            space.mremap(at(15), 5 * PAGE, 5 * PAGE, MOVE, at(50)),
            Ok(at(50))
        );
        let grown = space.mremap(at(50), 5 * PAGE, 8 * PAGE, MOVE, at(0));
        assert_eq!(grown, Ok(AT));
        assert_eq!(space.totals().mapped, 8 + 7);
        let grown = space.mremap(at(0), 8 * PAGE, 22 * PAGE, MOVE, at(9));
        assert_eq!(grown, Err(Errno::ENOMEM));
        assert_eq!(space.totals().mapped, 8 + 1);
        // Protection and advice do not depend on the limit, and shrinking is always possible.
        space.set_limits(&Limits {
            address_space: 0,
            ..Limits::NONE
        });
        space.mprotect(AT, 3 * PAGE, 7).unwrap();
        space.munmap(at(1), PAGE).unwrap();
        assert_eq!(space.totals().mapped, 8);
        assert_eq!(space.mmap(0, PAGE, 0, ANON), Err(Errno::ENOMEM));
        // Even a replacement of the same size fails.
        assert_eq!(map(space, 0, 1, 0, 0), Err(Errno::ENOMEM));
    });
}

#[test]
fn data() {
    each_policy(|cpu| {
        let space = cpu.space();
        let limit = |data: u64, most_data: u64| {
            space.set_limits(&Limits {
                data: data * PAGE,
                most_data: most_data * PAGE,
                ..Limits::NONE
            });
        };
        limit(10, 10);
        map(space, 0, 30, 5, 0).unwrap();
        map(space, 30, 30, RW, flags::GROWSDOWN).unwrap();
        map(space, 70, 8, RW, 0).unwrap();
        assert_eq!(map(space, 100, 3, RW, 0), Err(Errno::ENOMEM));
        map(space, 100, 2, RW, 0).unwrap();
        // Pages that become data count; existing data may change.
        assert_eq!(space.mprotect(AT, PAGE, RW), Err(Errno::ENOMEM));
        space.mprotect(at(70), 8 * PAGE, 7).unwrap();
        space.mprotect(at(70), PAGE, 1).unwrap();
        space.mprotect(AT, PAGE, RW).unwrap();
        // A replacement counts in full, whatever it replaces.
        map(space, 1, 5, RW, 0).unwrap();
        assert_eq!(space.totals().data, 15);
        assert_eq!(map(space, 200, 1, RW, 0), Err(Errno::ENOMEM));
        // If the soft limit is 0, the hard limit applies to mappings.
        limit(0, 20);
        map(space, 200, 5, RW, 0).unwrap();
        assert_eq!(map(space, 300, 1, RW, 0), Err(Errno::ENOMEM));
        space.set_brk(HEAP);
        assert_eq!(space.brk(HEAP + 1), HEAP);
        limit(1, 1);
        assert_eq!(map(space, 300, 1, RW, 0), Err(Errno::ENOMEM));
    });
}

/// The heap's limit is in bytes, and includes the program's data.
#[test]
fn the_heap() {
    each_policy(|cpu| {
        let space = cpu.space();
        space.set_limits(&Limits {
            data: 10 * PAGE + 100,
            ..Limits::NONE
        });
        space.set_brk(HEAP);
        assert_eq!(space.brk(HEAP + 10 * PAGE + 101), HEAP);
        // In whole pages it exceeds the limit.
        assert_eq!(space.brk(HEAP + 10 * PAGE + 100), HEAP);
        assert_eq!(space.brk(HEAP + 10 * PAGE), HEAP + 10 * PAGE);
        assert_eq!(space.brk(HEAP + 100), HEAP + 100);
        space.set_data_size(10 * PAGE);
        assert_eq!(space.brk(HEAP + 101), HEAP + 100);
        assert_eq!(space.brk(HEAP + 99), HEAP + 99);
        assert_eq!(space.totals().data, 1);
    });
}

#[test]
fn a_stack() {
    each_policy(|cpu| {
        let space = cpu.space();
        let limit = |stack: u64, address_space: u64| {
            space.set_limits(&Limits {
                stack: stack * PAGE,
                address_space: address_space * PAGE,
                ..Limits::NONE
            });
        };
        map(space, 0, 4, RW, flags::GROWSDOWN).unwrap();
        limit(10, 20);
        assert!(cpu.store(at(0) - 7 * PAGE, 1).is_err());
        assert_eq!(cpu.store(at(0) - 6 * PAGE, 1), Ok(()));
        // A changed limit applies immediately, raised or lowered.
        limit(9, 20);
        assert_eq!(cpu.store(at(0) - 5 * PAGE, 1), Ok(()));
        assert!(cpu.store(at(0) - 7 * PAGE, 1).is_err());
        limit(100, 12);
        assert!(cpu.store(at(0) - 9 * PAGE, 1).is_err());
        assert_eq!(cpu.store(at(0) - 8 * PAGE, 1), Ok(()));
        assert_eq!(space.totals().stack, 12);
    });
}

/// As Linux, permits one mapping above the limit, but no split at the limit.
#[test]
fn the_number_of_mappings() {
    const MOST: u64 = 40;
    each_policy(|cpu| {
        let space = cpu.space();
        space.set_limits(&Limits {
            mappings: MOST,
            ..Limits::NONE
        });
        let far = 1000;
        map(space, far, 20, RW, 0).unwrap();
        crowd_to(space, MOST);
        let whole = |space: &SoftSpace| assert_eq!(space.totals().mappings, MOST);
        // The middle of a mapping can be neither unmapped nor changed; its ends can.
        assert_eq!(space.munmap(at(far + 5), PAGE), Err(Errno::ENOMEM));
        assert_eq!(map(space, far + 5, 1, 1, 0), Err(Errno::ENOMEM));
        assert_eq!(space.mprotect(at(far + 5), PAGE, 1), Err(Errno::ENOMEM));
        assert_eq!(space.mprotect(at(far), PAGE, 1), Err(Errno::ENOMEM));
        assert_eq!(space.mlock(at(far), PAGE, 0), Err(Errno::ENOMEM));
        let advised = space.madvise(at(far), PAGE, advice::DONTFORK);
        assert_eq!(advised, Err(Errno::EAGAIN));
        let moved = |page| space.mremap(at(page), PAGE, PAGE, MOVE, at(2000));
        assert_eq!(moved(far), Err(Errno::ENOMEM));
        whole(space);
        space.mprotect(at(far), 20 * PAGE, 1).unwrap();
        space.mprotect(at(far), 20 * PAGE, RW).unwrap();
        space.munmap(at(far + 19), PAGE).unwrap();
        space.munmap(at(far), PAGE).unwrap();
        whole(space);
        // A mapping that merges with a neighbour adds none.
        map(space, far + 19, 1, RW, 0).unwrap();
        let grown = space.mremap(at(far + 10), 10 * PAGE, 11 * PAGE, 0, 0);
        assert_eq!(grown, Ok(at(far + 10)));
        map(space, 1, 1, 1, 0).unwrap();
        assert_eq!(space.totals().mappings, MOST - 1);
        // One split is possible, two are not.
        assert_eq!(space.mprotect(at(far + 5), PAGE, 1), Err(Errno::ENOMEM));
        space.mprotect(at(far + 1), PAGE, 1).unwrap();
        whole(space);
        space.mprotect(at(far + 2), PAGE, 1).unwrap();
        whole(space);

        // One mapping above the limit, and then no more, not even a replacement.
        map(space, far + 500, 1, RW, 0).unwrap();
        assert_eq!(space.totals().mappings, MOST + 1);
        assert_eq!(space.mmap(0, PAGE, RW, ANON), Err(Errno::ENOMEM));
        assert_eq!(map(space, far + 501, 1, RW, 0), Err(Errno::ENOMEM));
        assert_eq!(map(space, far + 500, 1, RW, 0), Err(Errno::ENOMEM));
        space.set_brk(HEAP);
        assert_eq!(space.brk(HEAP + 1), HEAP);
        space.munmap(at(far + 500), PAGE).unwrap();
        assert_eq!(space.brk(HEAP + 1), HEAP + 1);
        assert_eq!(space.brk(HEAP), HEAP);
        // Moves require spare mappings.
        space.munmap(at(0), 3 * PAGE).unwrap();
        for page in [4, 6, 8] {
            space.munmap(at(page), PAGE).unwrap();
        }
        assert_eq!(space.totals().mappings, MOST - 4);
        assert_eq!(moved(far + 3), Err(Errno::ENOMEM));
        let away = space.mremap(at(far + 3), PAGE, 100 * PAGE, remap_flags::MAYMOVE, 0);
        assert!(away.is_ok(), "{away:?}");
    });
}

/// Maps single pages until there are `most` mappings.
fn crowd_to(space: &SoftSpace, most: u64) {
    let missing = most - space.totals().mappings;
    for page in 0..missing {
        map(space, 2 * page, 1, 1, 0).unwrap();
    }
    assert_eq!(space.totals().mappings, most);
}

/// One request above the machine's memory is refused; a sum above it is not.
#[test]
fn overcommit() {
    each_policy(|cpu: &SoftCpu<'_>| {
        let space = cpu.space();
        let pages = space.layout().commit_pages;
        assert!(pages < Layout::LINUX_X86_64.commit_pages);
        let big = pages + 1;
        assert_eq!(map(space, 0, big, RW, 0), Err(Errno::ENOMEM));
        map(space, 0, big, RW, flags::NORESERVE).unwrap();
        // Committed pages that are replaced are not charged again.
        map(space, 0, big, 1, 0).unwrap();
        assert_eq!(space.mprotect(AT, big * PAGE, RW), Err(Errno::ENOMEM));
        space.mprotect(AT, pages * PAGE, RW).unwrap();
        assert_eq!(space.totals().committed, pages);
        map(space, 0, big, RW, 0).unwrap();
        assert_eq!(space.totals().committed, big);
        // A fork charges each mapping as a whole.
        assert!(matches!(space.fork(), Err(Errno::ENOMEM)));
        space.mprotect(at(100), PAGE, 1).unwrap();
        let child = space.fork().expect("memory suffices");
        assert_eq!(space.memory().committed(), 2 * (big - 1));
        child.destroy();
    });
}
