//! Mappings of the pool of huge pages: faults, reservations and blocks, exactly counted, and beside each other.

use std::sync::atomic::{AtomicU64, Ordering};

use faultless_mm::{Counter, Errno, Outcome, Policy, advice, flags};
use faultless_soft::{SoftCpu, SoftMemory, SoftSpace};
use faultless_tests::counting::{counted, faults};
use faultless_tests::each_policy;

const PAGE: u64 = 4096;
const HUGE: u64 = 2 << 20;
const RW: u32 = 3;
const PRIVATE: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::HUGETLB;
const SHARED: u32 = flags::SHARED | flags::ANONYMOUS | flags::HUGETLB;
/// An address at which tables of every level begin.
const AT: u64 = 1 << 36;

/// Runs `work` under every policy, with a pool of four huge pages. All are free at the end.
fn with_pool(work: impl Fn(&SoftCpu, &SoftSpace, &'static SoftMemory, Policy)) {
    each_policy(2, 64, |cpu, space, memory| {
        assert_eq!(memory.resize_pool(4), 4);
        work(cpu, space, memory, space.policy());
        space.verify().unwrap();
        let _ = space.munmap(AT, 1 << 30);
        are(memory, [4, 4, 0]);
        assert_eq!(memory.resize_pool(0), 0);
    });
}

/// The pool has so many huge pages, so many are free, and so many are reserved.
#[track_caller]
fn are(memory: &SoftMemory, expected: [u64; 3]) {
    (0..3).for_each(|_| memory.expedite());
    let sizes = memory.pool_sizes();
    assert_eq!([sizes.total, sizes.free, sizes.reserved], expected);
}

fn map(space: &SoftSpace, huge: u64, how: u32) -> Result<u64, Errno> {
    space.mmap(AT, huge * HUGE, RW, how | flags::FIXED)
}

#[test]
fn a_fault_maps_one() {
    with_pool(|cpu, space, memory, policy| {
        map(space, 2, PRIVATE).unwrap();
        are(memory, [4, 4, 2]);
        let mut expected = faults(policy, 1);
        // The tables of the two levels above.
        expected.push((Counter::TableAlloc, 2));
        let (counts, ()) = counted(memory, || {
            (0..512).for_each(|page| cpu.store(AT + page * PAGE, page).unwrap());
        });
        counts.are(&expected, "private");
        are(memory, [4, 3, 1]);
        assert_eq!(memory.huge_pages(), 0);
        let usage = space.usage(AT..AT + HUGE);
        assert_eq!([usage.private_pooled, usage.resident], [HUGE, 0]);
        map(space, 2, SHARED).unwrap();
        are(memory, [4, 4, 2]);
        let (counts, ()) = counted(memory, || {
            assert_eq!(cpu.load(AT), Ok(0));
            (0..512).for_each(|page| cpu.store(AT + page * PAGE, page).unwrap());
        });
        let mut expected = faults(policy, 1);
        expected.push((Counter::ThpFileMapped, 1));
        counts.are(&expected, "shared");
        are(memory, [4, 3, 1]);
        assert_eq!(memory.object_huge_pages(), (0, 0));
    });
}

#[test]
fn what_is_not_reserved_is_what_is_left_over() {
    with_pool(|cpu, space, memory, _| {
        map(space, 3, PRIVATE).unwrap();
        let at = space.mmap(0, 2 * HUGE, RW, PRIVATE);
        assert_eq!(at, Err(Errno::ENOMEM));
        let at = space.mmap(0, 2 * HUGE, RW, PRIVATE | flags::NORESERVE);
        let at = at.unwrap();
        assert!(at.is_multiple_of(HUGE));
        cpu.store(at, 1).unwrap();
        are(memory, [4, 3, 3]);
        assert_eq!(
            space.fault(at + HUGE, faultless_mm::Access::Write),
            Outcome::Bus
        );
        // Whatever was reserved is there.
        (0..3).for_each(|huge| cpu.store(AT + huge * HUGE, 1).unwrap());
        are(memory, [4, 0, 0]);
        // More than are wanted leave when they are free.
        assert_eq!(memory.resize_pool(2), 4);
        space.munmap(AT, 3 * HUGE).unwrap();
        are(memory, [2, 1, 0]);
        assert_eq!(memory.resize_pool(4), 4);
        space.munmap(at, 2 * HUGE).unwrap();
    });
}

#[test]
fn no_operation_cuts_one() {
    with_pool(|cpu, space, memory, _| {
        map(space, 2, PRIVATE).unwrap();
        cpu.store(AT, 1).unwrap();
        let inside = AT + PAGE;
        assert_eq!(space.munmap(AT, PAGE), Err(Errno::EINVAL));
        assert_eq!(space.munmap(inside, HUGE), Err(Errno::EINVAL));
        assert_eq!(space.mprotect(inside, PAGE, 1), Err(Errno::EINVAL));
        assert_eq!(
            space.madvise(inside, PAGE, advice::DONTFORK),
            Err(Errno::EINVAL)
        );
        assert_eq!(
            space.madvise(inside, HUGE, advice::DONTNEED),
            Err(Errno::EINVAL)
        );
        assert_eq!(space.mremap(AT, PAGE, 3 * HUGE, 1, 0), Err(Errno::EINVAL));
        let over = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
        assert_eq!(space.mmap(inside, PAGE, RW, over), Err(Errno::EINVAL));
        assert_eq!(space.madvise(AT, PAGE, advice::PAGEOUT), Err(Errno::EINVAL));
        assert_eq!(cpu.load(AT), Ok(1));
        are(memory, [4, 3, 1]);
        space.munmap(AT + HUGE, HUGE).unwrap();
        are(memory, [4, 3, 0]);
    });
}

#[test]
fn a_child_copies_small_pages() {
    with_pool(|cpu, space, memory, _| {
        map(space, 1, PRIVATE).unwrap();
        cpu.store(AT, 1).unwrap();
        let child = space.fork().unwrap();
        are(memory, [4, 3, 0]);
        cpu.store(AT, 2).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                SoftCpu::run(&child, 1, |cpu| {
                    assert_eq!(cpu.load(AT), Ok(1));
                    cpu.store(AT + PAGE, 3).unwrap();
                });
            });
        });
        assert_eq!(cpu.load(AT + PAGE), Ok(0));
        child.verify().unwrap();
        child.destroy();
        are(memory, [4, 3, 0]);
        space.munmap(AT, HUGE).unwrap();
    });
}

#[test]
fn an_empty_table_makes_way() {
    with_pool(|cpu, space, memory, _| {
        for how in [PRIVATE, SHARED] {
            space
                .mmap(
                    AT,
                    HUGE,
                    RW,
                    flags::PRIVATE | flags::ANONYMOUS | flags::FIXED,
                )
                .unwrap();
            cpu.store(AT + 7 * PAGE, 1).unwrap();
            map(space, 1, how).unwrap();
            (0..512).for_each(|page| cpu.store(AT + page * PAGE, page + 1).unwrap());
            (0..512).for_each(|page| assert_eq!(cpu.load(AT + page * PAGE), Ok(page + 1)));
            are(memory, [4, 3, 0]);
            space.verify().unwrap();
            space.munmap(AT, HUGE).unwrap();
            are(memory, [4, 4, 0]);
        }
    });
}

#[test]
fn a_reservation_is_used_once() {
    each_policy(4, 64, |_, space, memory| {
        for how in [PRIVATE, SHARED] {
            memory.resize_pool(2);
            map(space, 1, how).unwrap();
            let other = space.mmap(0, HUGE, RW, how).unwrap();
            are(memory, [2, 2, 2]);
            std::thread::scope(|scope| {
                for cpu in 1..4 {
                    scope.spawn(move || {
                        SoftCpu::run(space, cpu, |cpu| {
                            cpu.store(AT + u64::from(cpu.number()) * PAGE, 1).unwrap();
                        });
                    });
                }
            });
            are(memory, [2, 1, 1]);
            assert_eq!(
                space.fault(other, faultless_mm::Access::Write),
                Outcome::Resolved
            );
            space.munmap(AT, HUGE).unwrap();
            space.munmap(other, HUGE).unwrap();
            are(memory, [2, 2, 0]);
        }
        memory.resize_pool(0);
    });
}

#[test]
fn reservations_end_with_what_has_them() {
    with_pool(|cpu, space, memory, _| {
        map(space, 2, PRIVATE).unwrap();
        are(memory, [4, 4, 2]);
        // What fails ends none.
        let over = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED_NOREPLACE;
        assert_eq!(space.mmap(AT, HUGE, RW, over), Err(Errno::EEXIST));
        are(memory, [4, 4, 2]);
        let dontunmap = faultless_mm::remap_flags::DONTUNMAP | faultless_mm::remap_flags::MAYMOVE;
        let moved = space.mremap(AT, HUGE, HUGE, dontunmap, 0);
        assert_eq!(moved, Err(Errno::EINVAL));
        // A child has none, and its parent's end with that.
        let child = space.fork().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                SoftCpu::run(&child, 1, |_| {
                    let child: &SoftSpace = &child;
                    let at = child.mmap(0, HUGE, RW, PRIVATE).unwrap();
                    assert!(at.is_multiple_of(HUGE));
                });
            });
        });
        are(memory, [4, 4, 3]);
        child.destroy();
        are(memory, [4, 4, 2]);
        // What is not wanted leaves when its reservation ends.
        assert_eq!(memory.resize_pool(1), 2);
        are(memory, [2, 2, 2]);
        space.munmap(AT, 2 * HUGE).unwrap();
        are(memory, [1, 1, 0]);
        assert_eq!(memory.resize_pool(4), 4);
        // More than there can be needs no memory to be refused.
        let before = memory.slab_frames();
        let at = space.mmap(0, 1 << 46, RW, PRIVATE);
        assert_eq!(at, Err(Errno::ENOMEM));
        assert!(memory.slab_frames() <= before + 1);
        let at = space.mmap(u64::MAX - 1, HUGE, RW, PRIVATE).unwrap();
        assert!(at.is_multiple_of(HUGE));
        space.munmap(at, HUGE).unwrap();
        assert!(cpu.load(AT).is_err());
    });
}

/// Threads map, store, fork, discard and unmap. The pool has all of its pages at the end, and no store was lost.
#[test]
fn stress() {
    each_policy(4, 128, |_, space, memory| {
        assert_eq!(memory.resize_pool(6), 6);
        let served = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for cpu in 1..4 {
                let served = &served;
                scope.spawn(move || {
                    SoftCpu::run(space, cpu, |cpu| {
                        for round in 0..150u64 {
                            let how = if round % 2 == 0 { PRIVATE } else { SHARED };
                            // The other threads may have all, or a reader keeps what they have unmapped.
                            let at = loop {
                                match space.mmap(0, 2 * HUGE, RW, how) {
                                    Ok(at) => break at,
                                    Err(error) => assert_eq!(error, Errno::ENOMEM),
                                }
                                std::thread::yield_now();
                            };
                            served.fetch_add(1, Ordering::Relaxed);
                            // What was reserved is there.
                            cpu.store(at, round).unwrap();
                            cpu.store(at + HUGE, round + 1).unwrap();
                            let mut left = at..at + 2 * HUGE;
                            match round % 5 {
                                0 => space.madvise(at, HUGE, advice::DONTNEED).unwrap(),
                                1 => {
                                    space.munmap(at, HUGE).unwrap();
                                    left.start += HUGE;
                                }
                                _ => {}
                            }
                            if round % 7 == 0 {
                                let child = space.fork().unwrap();
                                cpu.store(at + HUGE + PAGE, 5).unwrap();
                                child.destroy();
                            }
                            assert_eq!(cpu.load(at + HUGE), Ok(round + 1));
                            space.munmap(left.start, left.end - left.start).unwrap();
                        }
                    });
                });
            }
        });
        assert_eq!(served.load(Ordering::Relaxed), 3 * 150);
        space.verify().unwrap();
        are(memory, [6, 6, 0]);
        memory.resize_pool(0);
    });
}
