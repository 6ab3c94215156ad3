//! Locking memory: what is populated, what counts as locked, how other operations treat locked
//! mappings, and which errors there are, as on Linux 6.12.

use faultless_mm::{
    Attributes, Counter, Errno, Limits, Locked, advice, flags, lock_all_flags, lock_flags,
    remap_flags,
};
use faultless_soft::{SoftCpu, SoftSpace, Trap};

const PAGE: u64 = 4096;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS;
const AT: u64 = 1 << 36;

fn each_policy(test: impl Fn(&SoftCpu<'_>)) {
    faultless_tests::each_policy(2, 64, |cpu, _, _| test(cpu));
}

fn map(space: &SoftSpace, page: u64, pages: u64, prot: u32, more: u32) {
    let at = AT + page * PAGE;
    let mapped = space.mmap(at, pages * PAGE, prot, ANON | flags::FIXED | more);
    assert_eq!(mapped, Ok(at));
}

/// A bitmap of the pages that are present.
fn present(space: &SoftSpace, pages: u64) -> u64 {
    let there = |page: &u64| space.translate(AT + page * PAGE).is_some();
    (0..pages).filter(there).map(|page| 1 << page).sum()
}

fn attributes(space: &SoftSpace, page: u64) -> Attributes {
    space.lookup(AT + page * PAGE).expect("it is mapped")
}

fn is_locked(space: &SoftSpace, page: u64) -> Locked {
    attributes(space, page).flags.locked
}

/// The numbers of locked pages and of mappings.
fn counts(space: &SoftSpace) -> (u64, u64) {
    let totals = space.totals();
    (totals.locked, totals.mappings)
}

#[test]
fn what_is_locked_is_there() {
    each_policy(|cpu| {
        let space = cpu.space();
        map(space, 0, 10, RW, 0);
        let faults = space.memory().total(Counter::Faults);
        // From the middle of one page to the middle of another.
        assert_eq!(space.mlock(AT + 2 * PAGE + 5, 3 * PAGE, 0), Ok(()));
        assert_eq!(present(space, 10), 0b00_0011_1100);
        assert_eq!(space.memory().total(Counter::Faults), faults + 4);
        assert_eq!(counts(space), (4, 3));
        assert_eq!(is_locked(space, 2), Locked::Yes);
        assert_eq!(is_locked(space, 6), Locked::No);
        // Pages that are present take no fault, and are not locked twice.
        assert_eq!(space.mlock(AT + PAGE, 5 * PAGE, 0), Ok(()));
        assert_eq!(space.memory().total(Counter::Faults), faults + 5);
        assert_eq!(counts(space), (5, 3));
        // They can be written without a fault.
        assert_eq!(cpu.store(AT + PAGE, 7), Ok(()));
        assert_eq!(space.memory().total(Counter::Faults), faults + 5);

        assert_eq!(space.munlock(AT + 3 * PAGE, 1), Ok(()));
        assert_eq!(counts(space), (4, 5));
        assert_eq!(space.munlock(AT, 10 * PAGE), Ok(()));
        assert_eq!(counts(space), (0, 1));
        assert_eq!(present(space, 10), 0b00_0011_1110);
    });
}

#[test]
fn on_fault_nothing_is_populated() {
    each_policy(|cpu| {
        let space = cpu.space();
        map(space, 0, 4, RW, 0);
        assert_eq!(space.mlock(AT, 2 * PAGE, lock_flags::ONFAULT), Ok(()));
        assert_eq!((present(space, 4), counts(space)), (0, (2, 2)));
        assert_eq!(is_locked(space, 0), Locked::OnFault);
        // The two kinds of lock are different mappings.
        assert_eq!(space.mlock(AT + PAGE, PAGE, 0), Ok(()));
        assert_eq!((present(space, 4), counts(space)), (2, (2, 3)));
        // `MAP_POPULATE` does nothing under lock on fault either, but advice does.
        assert_eq!(
            space.mlockall(lock_all_flags::FUTURE | lock_all_flags::ONFAULT),
            Ok(())
        );
        map(space, 2, 2, RW, flags::POPULATE);
        assert_eq!(present(space, 4), 2);
        assert_eq!(
            space.madvise(AT + 2 * PAGE, PAGE, advice::POPULATE_WRITE),
            Ok(())
        );
        assert_eq!(present(space, 4), 0b110);
        assert_eq!(space.mlock(AT, PAGE, 2), Err(Errno::EINVAL));
        assert_eq!(space.mlock(AT, PAGE, u32::MAX), Err(Errno::EINVAL));
    });
}

#[test]
fn holes_and_ends() {
    each_policy(|cpu| {
        let space = cpu.space();
        map(space, 0, 2, RW, 0);
        map(space, 3, 2, RW, 0);
        // The pages before a hole are locked, and nothing is populated.
        assert_eq!(space.mlock(AT, 5 * PAGE, 0), Err(Errno::ENOMEM));
        assert_eq!((counts(space), present(space, 5)), ((2, 2), 0));
        assert_eq!(space.mlock(AT + 2 * PAGE, 3 * PAGE, 0), Err(Errno::ENOMEM));
        assert_eq!(counts(space), (2, 2));
        assert_eq!(space.mlock(AT + 3 * PAGE, 3 * PAGE, 0), Err(Errno::ENOMEM));
        assert_eq!(counts(space), (4, 2));
        assert_eq!(space.munlock(AT + PAGE, 9 * PAGE), Err(Errno::ENOMEM));
        assert_eq!(counts(space), (3, 3));
        // An empty range, mapped or not; lengths that wrap to zero; ranges that wrap.
        assert_eq!(space.mlock(AT + 2 * PAGE, 0, 0), Ok(()));
        assert_eq!(space.mlock(AT, u64::MAX, 0), Ok(()));
        assert_eq!(space.munlock(AT + 100 * PAGE, u64::MAX), Ok(()));
        assert_eq!(space.mlock(AT, u64::MAX - PAGE, 0), Err(Errno::EINVAL));
        assert_eq!(space.munlock(u64::MAX - PAGE, PAGE), Err(Errno::EINVAL));
        assert_eq!(space.mlock(1 << 60, PAGE, 0), Err(Errno::ENOMEM));
        let end = space.layout().end;
        assert_eq!(space.mlock(end, PAGE, 0), Err(Errno::ENOMEM));
        assert_eq!(space.mlock(AT, end - AT, 0), Err(Errno::ENOMEM));
        assert_eq!(counts(space), (4, 2));
    });
}

#[test]
fn what_allows_nothing_is_locked_all_the_same() {
    each_policy(|cpu| {
        let space = cpu.space();
        map(space, 0, 3, 1, 0);
        map(space, 3, 2, 0, 0);
        map(space, 5, 1, RW, 0);
        assert_eq!(space.mlock(AT, 6 * PAGE, 0), Err(Errno::ENOMEM));
        // It is populated up to the mapping without access, by the zero page.
        assert_eq!((counts(space), present(space, 6)), ((6, 3), 0b111));
        // Made writable, it is populated immediately, pages that were only read included.
        assert_eq!(space.mprotect(AT + 2 * PAGE, 2 * PAGE, RW), Ok(()));
        assert_eq!((counts(space), present(space, 6)), ((6, 4), 0b1111));
        assert_eq!(space.verify().map(|census| census.zero_pages), Ok(2));
        // `MAP_LOCKED` locks like `mlock`, and populates as far as the mapping allows.
        map(space, 0, 6, 0, flags::LOCKED);
        assert_eq!((counts(space), present(space, 6)), ((6, 1), 0));
    });
}

#[test]
fn the_future() {
    const CURRENT: u32 = lock_all_flags::CURRENT;
    const FUTURE: u32 = lock_all_flags::FUTURE;
    const ONFAULT: u32 = lock_all_flags::ONFAULT;
    each_policy(|cpu| {
        let space = cpu.space();
        for wrong in [0, ONFAULT, 8, CURRENT | 8] {
            assert_eq!(space.mlockall(wrong), Err(Errno::EINVAL));
        }
        map(space, 0, 2, RW, 0);
        map(space, 4, 1, 0, 0);
        assert_eq!(space.mlockall(FUTURE), Ok(()));
        assert_eq!((counts(space), present(space, 5)), ((0, 2), 0));
        map(space, 2, 1, RW, 0);
        assert_eq!((counts(space), present(space, 5)), ((1, 3), 0b100));
        // All mapped pages are locked; a failure to populate is no error.
        assert_eq!(space.mlockall(CURRENT), Ok(()));
        assert_eq!((counts(space), present(space, 5)), ((4, 2), 0b111));
        map(space, 3, 1, RW, 0);
        assert_eq!((counts(space), present(space, 5)), ((4, 3), 0b111));
        assert_eq!(space.mlockall(CURRENT | FUTURE | ONFAULT), Ok(()));
        assert_eq!(is_locked(space, 0), Locked::OnFault);
        assert_eq!((counts(space), present(space, 5)), ((5, 2), 0b111));
        // The heap, too.
        assert_eq!(space.mlockall(FUTURE), Ok(()));
        space.set_brk(1 << 32);
        let heap = (1 << 32) + 3 * PAGE;
        assert_eq!(space.brk(heap), heap);
        assert_eq!(space.totals().locked, 8);
        assert!(space.translate(1 << 32).is_some());
        // A child inherits no locks.
        let child = space.fork().expect("memory suffices");
        let totals = child.totals();
        assert_eq!((totals.locked, totals.mapped), (0, 8));
        assert_eq!(child.mmap(0, PAGE, RW, ANON).map(drop), Ok(()));
        assert_eq!(child.totals().locked, 0);
        assert_eq!(child.verify().map(|census| census.mapped), Ok(9));
        child.destroy();

        space.munlockall();
        assert_eq!(space.totals().locked, 0);
        assert_eq!(space.mmap(0, PAGE, RW, ANON).map(drop), Ok(()));
        assert_eq!(space.totals().locked, 0);
    });
}

#[test]
fn other_operations_know() {
    each_policy(|cpu| {
        let space = cpu.space();
        map(space, 0, 8, RW, flags::LOCKED);
        assert_eq!(present(space, 8), 0xff);
        for page in 0..8 {
            assert_eq!(cpu.store(AT + page * PAGE, page + 1), Ok(()));
        }
        assert_eq!(space.munlock(AT, PAGE), Ok(()));
        // The pages before the locked mapping are discarded.
        assert_eq!(
            space.madvise(AT, 9 * PAGE, advice::DONTNEED),
            Err(Errno::EINVAL)
        );
        assert_eq!(present(space, 8), 0xfe);
        assert_eq!(
            space.madvise(AT + PAGE, PAGE, advice::DONTNEED_LOCKED),
            Ok(())
        );
        assert_eq!(present(space, 8), 0xfc);
        assert_eq!(cpu.load(AT + PAGE), Ok(0));

        // Unmapping parts, by `munmap` and by `MAP_FIXED`, subtracts their locked pages.
        assert_eq!(space.munmap(AT + 3 * PAGE, PAGE), Ok(()));
        assert_eq!(counts(space), (6, 3));
        map(space, 2, 1, RW, 0);
        assert_eq!(counts(space), (5, 4));
        assert_eq!(space.mprotect(AT + 5 * PAGE, PAGE, 1), Ok(()));
        assert_eq!(counts(space), (5, 6));

        // A move keeps the lock; the mapping that stays behind is not locked.
        let to = AT + 100 * PAGE;
        let fixed = remap_flags::MAYMOVE | remap_flags::FIXED;
        let moved = space.mremap(AT + 6 * PAGE, 2 * PAGE, 4 * PAGE, fixed, to);
        assert_eq!(moved, Ok(to));
        assert_eq!(space.totals().locked, 7);
        // And the added pages are populated.
        assert!(space.translate(to + 3 * PAGE).is_some());
        let stays = fixed | remap_flags::DONTUNMAP;
        let again = AT + 200 * PAGE;
        assert_eq!(
            space.mremap(to, 2 * PAGE, 2 * PAGE, stays, again),
            Ok(again)
        );
        assert_eq!(space.totals().locked, 7);
        assert_eq!(is_locked(space, 100), Locked::No);
        assert_eq!(is_locked(space, 102), Locked::Yes);
        assert_eq!(is_locked(space, 200), Locked::Yes);
        assert_eq!(cpu.load(again), Ok(7));
        assert_eq!(cpu.load(to), Ok(0));
        assert!(matches!(cpu.load(AT + 6 * PAGE), Err(Trap::Segv { .. })));
        assert_eq!(space.munmap(AT, 300 * PAGE), Ok(()));
        assert_eq!(counts(space), (0, 0));
    });
}

/// Locks a page that was written and then shared with a child, and one that was only read.
#[test]
fn locking_copies_what_is_shared() {
    each_policy(|cpu| {
        let space = cpu.space();
        map(space, 0, 3, RW, 0);
        assert_eq!(cpu.store(AT, 5), Ok(()));
        assert_eq!(cpu.load(AT + PAGE), Ok(0));
        let child = space.fork().expect("memory suffices");
        assert_eq!(space.mlock(AT, 3 * PAGE, 0), Ok(()));
        let faults = space.memory().total(Counter::Faults);
        for page in 0..3 {
            assert_eq!(cpu.store(AT + page * PAGE, 6), Ok(()));
        }
        assert_eq!(space.memory().total(Counter::Faults), faults);
        assert_ne!(child.translate(AT), space.translate(AT));
        child.destroy();
    });
}

#[test]
fn the_limit() {
    each_policy(|cpu| {
        let space = cpu.space();
        let limit = |pages: u64| {
            space.set_limits(&Limits {
                locked: pages * PAGE,
                ..Limits::LINUX
            });
        };
        map(space, 0, 20, RW, 0);
        limit(0);
        assert_eq!(space.mlock(AT, 0, 2), Err(Errno::EINVAL));
        assert_eq!(space.mlock(AT, 0, 0), Err(Errno::EPERM));
        assert_eq!(space.mlockall(1), Err(Errno::EPERM));
        assert_eq!(
            space.mmap(0, PAGE, RW, ANON | flags::LOCKED),
            Err(Errno::EPERM)
        );
        limit(10);
        assert_eq!(space.mlock(AT, 11 * PAGE, 0), Err(Errno::ENOMEM));
        assert_eq!(space.mlock(AT, 10 * PAGE, 0), Ok(()));
        assert_eq!(space.mlock(AT + 10 * PAGE, PAGE, 0), Err(Errno::ENOMEM));
        // Locked pages are not counted again.
        assert_eq!(space.mlock(AT, 10 * PAGE, lock_flags::ONFAULT), Ok(()));
        assert_eq!(space.munlock(AT, 2 * PAGE), Ok(()));
        assert_eq!(space.mlock(AT + 5 * PAGE, 7 * PAGE, 0), Ok(()));
        assert_eq!(space.totals().locked, 10);
        // The limit is checked before the range.
        assert_eq!(space.mlock(AT, u64::MAX - PAGE, 0), Err(Errno::ENOMEM));
        assert_eq!(
            space.mmap(0, PAGE, RW, ANON | flags::LOCKED),
            Err(Errno::EAGAIN)
        );
        let grown = |flags| space.mremap(AT + 5 * PAGE, 7 * PAGE, 8 * PAGE, flags, 0);
        assert_eq!(grown(0), Err(Errno::EAGAIN));
        assert_eq!(grown(remap_flags::MAYMOVE), Err(Errno::EAGAIN));
        // `mlockall` compares all mapped pages with the limit.
        assert_eq!(space.mlockall(lock_all_flags::CURRENT), Err(Errno::ENOMEM));
        assert_eq!(space.mlockall(lock_all_flags::FUTURE), Ok(()));
        assert_eq!(space.mmap(0, PAGE, RW, ANON), Err(Errno::EAGAIN));
        space.set_brk(1 << 32);
        assert_eq!(space.brk((1 << 32) + 5), 1 << 32);
        // Locked pages stay locked under a lower limit; unlocking is always possible.
        limit(3);
        assert_eq!(space.totals().locked, 10);
        assert_eq!(space.munlock(AT, 12 * PAGE), Ok(()));
        assert_eq!(space.totals().locked, 0);
        limit(20);
        assert_eq!(space.mlockall(lock_all_flags::CURRENT), Ok(()));
        assert_eq!(space.totals().locked, 20);
    });
}

/// A locked stack grows within the limit.
#[test]
fn a_locked_stack() {
    each_policy(|cpu: &SoftCpu<'_>| {
        let space = cpu.space();
        map(space, 0, 2, RW, flags::GROWSDOWN | flags::LOCKED);
        space.set_limits(&Limits {
            locked: 5 * PAGE,
            ..Limits::LINUX
        });
        assert_eq!(cpu.store(AT - 3 * PAGE, 1), Ok(()));
        assert_eq!(space.totals().locked, 5);
        // Only the touched page is populated.
        assert!(space.translate(AT - PAGE).is_none());
        assert!(cpu.store(AT - 4 * PAGE, 1).is_err());
        assert_eq!(space.totals().stack, 5);
    });
}
