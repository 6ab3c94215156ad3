//! The flags of `mmap`, under every policy: the mappings they make, their placement, and droppable memory.

use faultless_mm::{Counter, Errno, Huge, HugeMode, Layout, Locked, advice, flags, lock_all_flags};
use faultless_soft::{SoftCpu, SoftSpace};
use faultless_tests::each_policy;

const PAGE: u64 = 4096;
const HUGE: u64 = 512 * PAGE;
const RW: u32 = 3;
const PRIVATE: u32 = flags::PRIVATE | flags::ANONYMOUS;
const SHARED: u32 = flags::SHARED | flags::ANONYMOUS;
const DROPPABLE: u32 = flags::DROPPABLE | flags::ANONYMOUS;
const AT: u64 = 1 << 36;
/// The address of a second mapping, which consumes memory.
const OTHER: u64 = AT + (1 << 30);
/// Memory of the small machine in MiB, and more pages than it has free.
const MIB: u64 = 8;
const PAGES: u64 = MIB * 256;
/// The range that `MAP_32BIT` searches.
const LOW: u64 = 1 << 30;
const LOW_END: u64 = 2 << 30;

fn map(space: &SoftSpace, at: u64, pages: u64, map_flags: u32) {
    let mapped = space.mmap(at, pages * PAGE, RW, map_flags | flags::FIXED);
    assert_eq!(mapped, Ok(at));
}

/// Where a mapping of `length` bytes is placed.
fn place(space: &SoftSpace, hint: u64, length: u64, map_flags: u32) -> Result<u64, Errno> {
    let at = space.mmap(hint, length, RW, map_flags | flags::NORESERVE)?;
    space.munmap(at, length)?;
    Ok(at)
}

fn fill(cpu: &SoftCpu<'_>, at: u64, pages: u64) {
    for number in 0..pages {
        cpu.store(at + number * PAGE, number + 1).unwrap();
    }
}

/// How many of the filled pages still hold their content; the others are empty.
fn left(cpu: &SoftCpu<'_>, at: u64, pages: u64) -> u64 {
    let holds = |number: &u64| {
        let word = cpu.load(at + number * PAGE).unwrap();
        assert!(word == 0 || word == number + 1, "page {number}: {word}");
        word != 0
    };
    (0..pages).filter(holds).count() as u64
}

#[test]
fn what_they_make() {
    each_policy(1, 64, |_, space, _| {
        let made = |map_flags| {
            map(space, AT, 1, map_flags);
            space.lookup(AT).unwrap().flags
        };
        assert_eq!(made(PRIVATE).huge, Huge::Unsaid);
        assert_eq!(made(PRIVATE | flags::STACK).huge, Huge::Unwanted);
        assert_eq!(made(SHARED | flags::STACK).huge, Huge::Unwanted);
        assert!(made(PRIVATE | flags::SYNC).sync && !made(PRIVATE).sync);
        let droppable = made(DROPPABLE);
        assert!(droppable.droppable && droppable.wipe_on_fork && droppable.dont_dump);
        assert!(droppable.no_reserve && !droppable.shared);
        space.mlockall(lock_all_flags::FUTURE).unwrap();
        assert_eq!(made(PRIVATE).locked, Locked::Yes);
        assert_eq!(made(DROPPABLE).locked, Locked::No);
        // As in Linux: populated nevertheless.
        assert_eq!(space.resident(), 1);
        space.munlockall();
    });
}

#[test]
fn what_does_not_go_together() {
    each_policy(1, 64, |_, space, _| {
        let refused = |map_flags| space.mmap(AT, PAGE, RW, map_flags) == Err(Errno::EINVAL);
        for with in [
            flags::LOCKED,
            flags::GROWSDOWN,
            flags::HUGETLB,
            flags::PRIVATE,
            flags::SHARED,
        ] {
            assert!(refused(DROPPABLE | with), "{with:#x}");
        }
        // A pool without pages, and one of gigabyte pages, which is not there.
        let at = space.mmap(AT, PAGE, RW, SHARED | flags::HUGETLB | 21 << 26);
        assert_eq!(at, Err(Errno::ENOMEM));
        assert!(refused(SHARED | flags::HUGETLB | 30 << 26));
        // Checked before the length.
        let beyond = space.mmap(AT, u64::MAX, RW, PRIVATE | flags::HUGETLB);
        assert_eq!(beyond, Err(Errno::EINVAL));

        map(space, AT, 4, DROPPABLE);
        for what in [advice::KEEPONFORK, advice::DODUMP] {
            assert_eq!(space.madvise(AT, PAGE, what), Err(Errno::EINVAL));
        }
        let before = space.lookup(AT);
        space.madvise(AT, PAGE, advice::MERGEABLE).unwrap();
        space.mlock(AT, PAGE, 0).unwrap();
        assert_eq!(space.lookup(AT), before);
        assert_eq!(space.totals().locked, 0);
    });
}

#[test]
fn low_addresses() {
    each_policy(1, 64, |_, space, memory| {
        memory.set_shared_huge_mode(HugeMode::Never);
        let low = |hint, length| place(space, hint, length, PRIVATE | flags::LOW_32BIT);
        assert_eq!(low(0, PAGE), Ok(LOW));
        assert_eq!(low(0, LOW_END - LOW), Ok(LOW));
        assert_eq!(low(0, LOW_END - LOW + PAGE), Err(Errno::ENOMEM));
        assert_eq!(low(0, HUGE), Ok(LOW + HUGE));
        let shared = place(space, 0, HUGE, SHARED | flags::LOW_32BIT);
        assert_eq!(shared, Ok(LOW));
        assert_eq!(low(AT, PAGE), Ok(LOW));
        assert_eq!(low(1 << 20, PAGE), Ok(1 << 20));
        assert_eq!(low(LOW_END - PAGE, PAGE), Ok(LOW_END - PAGE));
        assert_eq!(low(LOW_END - PAGE, 2 * PAGE), Ok(LOW));
        map(space, LOW + PAGE, 1, PRIVATE);
        assert_eq!(low(0, PAGE), Ok(LOW));
        assert_eq!(low(0, 2 * PAGE), Ok(LOW + 2 * PAGE));
        // A hole that is too small only because of the guard gap is skipped.
        let stack = LOW + 600 * PAGE;
        map(space, stack, 1, PRIVATE | flags::GROWSDOWN);
        assert_eq!(low(0, 342 * PAGE), Ok(LOW + 2 * PAGE));
        assert_eq!(low(0, 343 * PAGE), Ok(stack + PAGE));
    });
}

#[test]
fn high_addresses() {
    each_policy(1, 64, |_, space, memory| {
        memory.set_shared_huge_mode(HugeMode::Never);
        let base = Layout::LINUX_X86_64.mmap_base;
        let high = |length| place(space, 0, length, PRIVATE | flags::ABOVE4G);
        assert_eq!(high(PAGE), Ok(base - PAGE));
        let from_four = base - (4 << 30);
        assert_eq!(high(from_four), Ok(4 << 30));
        // Without `MAP_32BIT` there is room. The length is no multiple of a huge page.
        let below = place(space, 0, from_four + 2 * PAGE, PRIVATE);
        assert_eq!(below, Ok((4 << 30) - 2 * PAGE));
        assert_eq!(high(from_four + 2 * PAGE), Err(Errno::ENOMEM));
        assert_eq!(
            place(space, LOW, PAGE, PRIVATE | flags::ABOVE4G),
            Ok(LOW),
            "a hint counts for more"
        );
    });
}

#[test]
fn whole_huge_pages_are_aligned_if_they_are_private() {
    each_policy(1, 64, |_, space, _| {
        let base = Layout::LINUX_X86_64.mmap_base;
        assert!(!base.is_multiple_of(HUGE));
        let boundary = base / HUGE * HUGE;
        for map_flags in [PRIVATE, DROPPABLE, PRIVATE | flags::ABOVE4G] {
            let at = place(space, 0, HUGE, map_flags);
            assert_eq!(at, Ok(boundary - HUGE));
        }
        assert_eq!(place(space, 0, HUGE, SHARED), Ok(base - HUGE));
        let other = place(space, 0, HUGE + PAGE, PRIVATE);
        assert_eq!(other, Ok(base - HUGE - PAGE));
    });
}

#[test]
fn shared_memory_with_huge_pages_begins_at_a_boundary() {
    each_policy(1, 64, |_, space, memory| {
        memory.set_shared_huge_mode(HugeMode::Always);
        let boundary = Layout::LINUX_X86_64.mmap_base / HUGE * HUGE;
        assert_eq!(place(space, 0, HUGE, SHARED), Ok(boundary - HUGE));
        assert_eq!(place(space, 0, 2 * HUGE, SHARED), Ok(boundary - 2 * HUGE));
    });
}

#[test]
fn what_may_go_makes_room() {
    each_policy(1, MIB, |cpu, space, memory| {
        let half = PAGES / 2;
        map(space, AT, half, DROPPABLE);
        map(space, OTHER, PAGES, PRIVATE | flags::NORESERVE);
        fill(cpu, AT, half);
        assert_eq!(left(cpu, AT, half), half, "memory is not short");
        fill(cpu, OTHER, half + 200);
        let taken = memory.total(Counter::LazyFreed);
        assert!(taken > 0);
        assert_eq!(left(cpu, OTHER, half + 200), half + 200);
        assert_eq!(left(cpu, AT, half), half - memory.total(Counter::LazyFreed));
    });
}

/// Writes more droppable pages than there is memory for, one after the other.
#[test]
fn what_may_go_makes_room_for_itself() {
    each_policy(1, MIB, |cpu, space, memory| {
        map(space, AT, 2 * PAGES, DROPPABLE);
        fill(cpu, AT, 2 * PAGES);
        assert!(memory.total(Counter::LazyFreed) >= PAGES);
        space.verify().unwrap();
    });
}

/// Reclaim of droppable memory spares pages of ordinary mappings, in a child or beside it.
#[test]
fn a_child_and_a_neighbour() {
    each_policy(2, MIB, |cpu, space, memory| {
        map(space, AT, 100, PRIVATE);
        map(space, AT + 100 * PAGE, 100, DROPPABLE);
        fill(cpu, AT, 200);
        let child = space.fork().unwrap();
        assert_eq!(child.resident(), 100, "it finds its own empty");
        child.destroy();
        map(space, OTHER, PAGES, PRIVATE | flags::NORESERVE);
        let full = (0..PAGES).find(|number| cpu.store(OTHER + number * PAGE, 1).is_err());
        assert!(full.is_some());
        assert_eq!(memory.total(Counter::LazyFreed), 100);
        space.munmap(OTHER, PAGES * PAGE).unwrap();
        assert_eq!(left(cpu, AT, 100), 100);
        assert_eq!(left(cpu, AT + 100 * PAGE, 100), 0);
    });
}
