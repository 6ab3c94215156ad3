//! Huge pages of private anonymous memory: what faults map, exactly counted, and what every operation leaves when it
//! meets one.

use faultless_mm::{
    AddressSpace, Counter, Errno, HugeMode, Policy, Taken, advice, flags, remap_flags, userfault,
};
use faultless_soft::{SoftCpu, SoftMemory, SoftSpace};
use faultless_tests::counting::{counted, faults};
use faultless_tests::each_policy;
use faultless_tests::userfault::{Handled, PROTECTED, fault};

const PAGE: u64 = 4096;
const HUGE: u64 = 2 << 20;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS;
/// An address at which tables of every level begin.
const AT: u64 = 1 << 36;

/// Runs `work` under every policy, with huge pages for all mappings, and `huge` huge pages mapped at [`AT`].
fn with_huge(huge: u64, work: impl Fn(&SoftCpu, &SoftSpace, &'static SoftMemory, Policy)) {
    each_policy(2, 64, |cpu, space, memory| {
        memory.set_huge_mode(HugeMode::Always);
        assert_eq!(space.mmap(AT, huge * HUGE, RW, ANON | flags::FIXED), Ok(AT));
        work(cpu, space, memory, space.policy());
        space.verify().unwrap();
        assert_eq!(memory.huge_pages() * HUGE, huge_bytes(space));
    });
}

/// The bytes of huge pages at [`AT`], without the huge zero page.
fn huge_bytes(space: &SoftSpace) -> u64 {
    space.usage(AT..AT + (1 << 30)).huge
}

/// Every page of a huge page holds its number.
fn fill(cpu: &SoftCpu, at: u64) {
    (0..512).for_each(|page| cpu.store(at + page * PAGE, page + 1).unwrap());
}

fn check(cpu: &SoftCpu, at: u64) {
    (0..512).for_each(|page| assert_eq!(cpu.load(at + page * PAGE), Ok(page + 1), "{page}"));
}

#[test]
fn a_write_maps_a_huge_page() {
    with_huge(2, |cpu, space, memory, policy| {
        let mut expected = faults(policy, 1);
        // The tables of the two levels above.
        expected.extend([(Counter::ThpFaultAlloc, 1), (Counter::TableAlloc, 2)]);
        let (counts, ()) = counted(memory, || fill(cpu, AT));
        counts.are(&expected, "the first");
        check(cpu, AT);
        let mut expected = faults(policy, 1);
        expected.push((Counter::ThpFaultAlloc, 1));
        let (counts, ()) = counted(memory, || fill(cpu, AT + HUGE));
        counts.are(&expected, "the second");
        assert_eq!(huge_bytes(space), 2 * HUGE);
    });
}

#[test]
fn memory_that_is_read_first_takes_two_faults() {
    with_huge(1, |cpu, space, memory, _| {
        let allocator = memory.machine().allocator();
        cpu.load(AT).unwrap();
        let before = allocator.census().available();
        let (counts, ()) = counted(memory, || {
            (0..512).for_each(|page| assert_eq!(cpu.load(AT + page * PAGE), Ok(0)));
        });
        counts.are(&[], "the huge zero page is there");
        assert_eq!(allocator.census().available(), before);
        assert_eq!(huge_bytes(space), 0, "as Linux counts");
        assert_eq!(memory.huge_pages(), 0);
        let (counts, ()) = counted(memory, || fill(cpu, AT));
        assert_eq!(counts.get(Counter::Faults), 1);
        assert_eq!(counts.get(Counter::ThpFaultAlloc), 1);
        check(cpu, AT);
        assert_eq!(huge_bytes(space), HUGE);
    });
}

/// Whether a write to the huge page with this number finds no table, and maps a huge page.
fn gets_huge(cpu: &SoftCpu, memory: &'static SoftMemory, number: u64) -> bool {
    let (counts, ()) = counted(memory, || cpu.store(AT + number * HUGE, 1).unwrap());
    counts.get(Counter::ThpFaultAlloc) == 1
}

#[test]
fn only_a_mapping_of_the_whole_span_gets_one() {
    with_huge(6, |cpu, space, memory, _| {
        assert_eq!(space.mprotect(AT + 7 * PAGE, PAGE, 1), Ok(()));
        assert!(!gets_huge(cpu, memory, 0), "two mappings");
        let at = AT + HUGE;
        assert_eq!(space.madvise(at, HUGE, advice::NOHUGEPAGE), Ok(()));
        assert!(!gets_huge(cpu, memory, 1), "not wanted");
        space.set_huge_off(true);
        assert!(!gets_huge(cpu, memory, 2), "off");
        space.set_huge_off(false);
        memory.set_huge_mode(HugeMode::Advised);
        assert!(!gets_huge(cpu, memory, 3), "not asked for");
        let at = AT + 4 * HUGE;
        assert_eq!(space.madvise(at, HUGE, advice::HUGEPAGE), Ok(()));
        assert!(gets_huge(cpu, memory, 4), "asked for");
        memory.set_huge_mode(HugeMode::Always);
        assert!(gets_huge(cpu, memory, 5), "always");
    });
}

#[test]
fn without_a_free_block_pages_are_small() {
    with_huge(1, |cpu, _, memory, _| {
        let allocator = memory.machine().allocator();
        let mut taken = Vec::new();
        while let Ok(block) = allocator.allocate_block(9) {
            taken.push(block);
        }
        (0..100).for_each(|page| cpu.store(AT + page * PAGE, page).unwrap());
        (0..100).for_each(|page| assert_eq!(cpu.load(AT + page * PAGE), Ok(page)));
        let all = [
            Counter::ThpFaultAlloc,
            Counter::ThpFaultFallback,
            Counter::Faults,
        ];
        assert_eq!(all.map(|counter| memory.total(counter)), [0, 1, 100]);
        taken
            .into_iter()
            .for_each(|block| allocator.free_block(block, 9));
    });
}

#[test]
fn an_unmap_frees_huge_pages_whole() {
    with_huge(4, |cpu, space, memory, _| {
        let allocator = memory.machine().allocator();
        let before = allocator.census().available();
        (0..4).for_each(|number| cpu.store(AT + number * HUGE, 1).unwrap());
        let (counts, ()) = counted(memory, || {
            space.munmap(AT, 4 * HUGE).unwrap();
        });
        assert_eq!(counts.get(Counter::ThpSplit), 0);
        memory.expedite();
        assert_eq!(allocator.census().available(), before);
        assert!(cpu.load(AT).is_err());
    });
}

/// Whether each page of the huge page at [`AT`] still holds its number, but for those in `but`.
fn check_but(cpu: &SoftCpu, but: std::ops::Range<u64>) {
    (0..512)
        .filter(|page| !but.contains(page))
        .for_each(|page| assert_eq!(cpu.load(AT + page * PAGE), Ok(page + 1), "{page}"));
}

#[test]
fn an_operation_on_a_part_splits() {
    type Operation = fn(&SoftSpace);
    let operations: [(&str, Operation, std::ops::Range<u64>); 8] = [
        ("munmap", |s| s.munmap(AT + 7 * PAGE, PAGE).unwrap(), 7..8),
        (
            "mprotect",
            |s| s.mprotect(AT + 7 * PAGE, PAGE, 1).unwrap(),
            0..0,
        ),
        (
            "dontneed",
            |s| s.madvise(AT, 2 * PAGE, advice::DONTNEED).unwrap(),
            0..2,
        ),
        (
            "free",
            |s| s.madvise(AT, 2 * PAGE, advice::FREE).unwrap(),
            0..0,
        ),
        (
            "cold",
            |s| s.madvise(AT, 2 * PAGE, advice::COLD).unwrap(),
            0..0,
        ),
        (
            "guard",
            |s| {
                s.madvise(AT + 5 * PAGE, PAGE, advice::GUARD_INSTALL)
                    .unwrap()
            },
            5..6,
        ),
        (
            "map over",
            |s| {
                let flags = ANON | flags::FIXED;
                s.mmap(AT + 510 * PAGE, PAGE, RW, flags).unwrap();
            },
            510..511,
        ),
        (
            "mremap",
            |s| {
                s.mremap(
                    AT + 256 * PAGE,
                    PAGE,
                    PAGE,
                    remap_flags::MAYMOVE | remap_flags::FIXED,
                    AT + HUGE,
                )
                .unwrap();
            },
            256..257,
        ),
    ];
    for (what, operate, gone) in operations {
        with_huge(1, |cpu, space, memory, _| {
            fill(cpu, AT);
            let (counts, ()) = counted(memory, || operate(space));
            assert_eq!(counts.get(Counter::ThpSplit), 1, "{what}");
            assert_eq!(counts.get(Counter::Copies), 0, "{what}");
            check_but(cpu, gone.clone());
            space.verify().unwrap();
            assert_eq!(huge_bytes(space), 0, "{what}");
        });
    }
}

/// Runs `work` on another CPU, in a child.
fn in_child(child: &SoftSpace, work: impl Fn(&SoftCpu) + Sync) {
    std::thread::scope(|scope| {
        scope.spawn(|| SoftCpu::run(child, 1, |cpu| work(cpu)));
    });
}

#[test]
fn a_fork_shares_a_huge_page_by_one_entry_and_a_write_copies_one_page() {
    for writer_is_child in [false, true] {
        with_huge(1, |cpu, space, memory, _| {
            fill(cpu, AT);
            let allocator = memory.machine().allocator();
            let before = allocator.census().available();
            let (counts, child) = counted(memory, || space.fork().unwrap());
            assert_eq!(counts.get(Counter::ThpSplit), 0);
            let used = before - allocator.census().available();
            assert!(used < 64, "the child has tables alone: {used}");
            AddressSpace::verify_together(&[space, &child]).unwrap();
            let write = |cpu: &SoftCpu| {
                let store = || cpu.store(AT + 3 * PAGE, 1000).unwrap();
                let (counts, ()) = counted(memory, store);
                let split = [Counter::ThpSplit, Counter::Copies, Counter::Faults];
                assert_eq!(split.map(|counter| counts.get(counter)), [1, 1, 1]);
            };
            match writer_is_child {
                true => in_child(&child, write),
                false => write(cpu),
            }
            AddressSpace::verify_together(&[space, &child]).unwrap();
            assert_eq!(huge_bytes(&child) + huge_bytes(space), HUGE);
            let other = |cpu: &SoftCpu| check(cpu, AT);
            match writer_is_child {
                true => other(cpu),
                false => in_child(&child, other),
            }
            let of_both = |cpu: &SoftCpu| {
                cpu.store(AT + 9 * PAGE, 9).unwrap();
                cpu.store(AT + 10 * PAGE, 10).unwrap();
            };
            of_both(cpu);
            in_child(&child, of_both);
            AddressSpace::verify_together(&[space, &child]).unwrap();
            child.destroy();
            cpu.store(AT + 11 * PAGE, 12).unwrap();
        });
    }
}

#[test]
fn the_last_owner_reuses_a_huge_page_whole() {
    with_huge(1, |cpu, space, memory, _| {
        fill(cpu, AT);
        let child = space.fork().unwrap();
        let grandchild = child.fork().unwrap();
        AddressSpace::verify_together(&[space, &child, &grandchild]).unwrap();
        child.destroy();
        in_child(&grandchild, |cpu| check(cpu, AT));
        grandchild.destroy();
        let (counts, ()) = counted(memory, || fill(cpu, AT));
        let all = [
            Counter::Faults,
            Counter::Reuses,
            Counter::Copies,
            Counter::ThpSplit,
        ];
        assert_eq!(all.map(|counter| counts.get(counter)), [1, 1, 0, 0]);
        check(cpu, AT);
        assert_eq!(huge_bytes(space), HUGE);
    });
}

#[test]
fn a_huge_page_that_was_read_only_is_raised_as_a_whole() {
    with_huge(1, |cpu, space, memory, _| {
        cpu.load(AT).unwrap();
        assert_eq!(space.mprotect(AT, HUGE, 1), Ok(()));
        assert_eq!(space.mprotect(AT, HUGE, RW), Ok(()));
        let (counts, ()) = counted(memory, || fill(cpu, AT));
        assert_eq!(counts.get(Counter::Faults), 1);
        check(cpu, AT);
    });
}

#[test]
fn an_operation_on_whole_huge_pages_splits_none() {
    with_huge(4, |cpu, space, memory, _| {
        let allocator = memory.machine().allocator();
        (0..4).for_each(|number| fill(cpu, AT + number * HUGE));
        let (counts, ()) = counted(memory, || {
            assert_eq!(space.mprotect(AT, 2 * HUGE, 1), Ok(()));
            assert!(cpu.store(AT, 1).is_err());
            check(cpu, AT);
            assert_eq!(space.mprotect(AT, 2 * HUGE, RW), Ok(()));
            fill(cpu, AT);
            let to = AT + 16 * HUGE;
            let how = remap_flags::MAYMOVE | remap_flags::FIXED;
            assert_eq!(space.mremap(AT + HUGE, 2 * HUGE, 2 * HUGE, how, to), Ok(to));
            check(cpu, to);
            check(cpu, to + HUGE);
            assert!(cpu.load(AT + HUGE).is_err());
            space.verify().unwrap();
            fill(cpu, to);
            let before = allocator.census().available();
            assert_eq!(space.madvise(AT, HUGE, advice::DONTNEED), Ok(()));
            assert_eq!(allocator.census().available(), before + 513);
            assert_eq!(cpu.load(AT), Ok(0));
        });
        assert_eq!(counts.get(Counter::ThpSplit), 0);
        assert_eq!(counts.get(Counter::Copies), 0);
        assert_eq!(huge_bytes(space), 3 * HUGE, "one was only read");
    });
}

#[test]
fn a_split_huge_zero_page_stays_populated() {
    with_huge(1, |cpu, space, memory, _| {
        cpu.load(AT).unwrap();
        let (counts, ()) = counted(memory, || {
            space.madvise(AT, PAGE, advice::DONTNEED).unwrap();
        });
        assert_eq!(counts.get(Counter::ThpSplit), 1);
        let (counts, ()) = counted(memory, || {
            (1..512).for_each(|page| assert_eq!(cpu.load(AT + page * PAGE), Ok(0)));
        });
        assert_eq!(counts.get(Counter::Faults), 0);
        fill(cpu, AT);
        check(cpu, AT);
    });
}

#[test]
fn a_page_of_the_huge_zero_page_is_pinned() {
    with_huge(1, |cpu, space, _, _| {
        for how in [Taken::ToRead, Taken::ToReadForLong, Taken::ToWrite] {
            cpu.load(AT).unwrap();
            drop(space.pin(AT + 5 * PAGE, how).unwrap());
            space.madvise(AT, HUGE, advice::DONTNEED).unwrap();
        }
    });
}

/// What was read before it is write-protected is there: stores to it are reported, as those to small zero pages.
#[test]
fn stores_to_the_huge_zero_page_are_reported() {
    with_huge(1, |cpu, space, memory, _| {
        cpu.load(AT).unwrap();
        let handled = Handled::new(memory, space, 0);
        let modes = userfault::WRITE_PROTECT;
        assert_eq!(handled.register(AT, HUGE, modes), Ok(()));
        assert_eq!(handled.protect(AT, HUGE, true), Ok(()));
        let let_write = |to: &Handled<'_>, message| {
            let at = fault(message, PROTECTED);
            assert_eq!(to.protect(at, PAGE, false), Ok(()));
        };
        handled.beside(let_write, || fill(cpu, AT));
        assert_eq!(handled.take_messages(), 512);
        check(cpu, AT);
        space.close_userfault(&handled.to);
    });
}

/// A missing page is reported, and one of the huge zero page is not missing.
#[test]
fn a_page_of_the_huge_zero_page_is_not_missing() {
    with_huge(1, |cpu, space, memory, _| {
        cpu.load(AT).unwrap();
        let handled = Handled::new(memory, space, userfault::SIGBUS);
        assert_eq!(handled.register(AT, HUGE, userfault::MISSING), Ok(()));
        let there = handled.copy(AT + 7 * PAGE, 7, false);
        assert_eq!(there.error, Some(Errno::EEXIST));
        assert_eq!(cpu.load(AT + 7 * PAGE), Ok(0));
        fill(cpu, AT);
        check(cpu, AT);
        space.close_userfault(&handled.to);
    });
}

/// Maps one span in small pages, of which `count` are written.
fn with_small(count: u64, work: impl Fn(&SoftCpu, &SoftSpace, &'static SoftMemory)) {
    with_huge(1, |cpu, space, memory, _| {
        memory.set_huge_mode(HugeMode::Never);
        (0..count).for_each(|page| cpu.store(AT + page * PAGE, page + 1).unwrap());
        assert_eq!(huge_bytes(space), 0);
        work(cpu, space, memory);
    });
}

#[test]
fn small_pages_collapse() {
    for count in [1, 100, 512] {
        with_small(count, |cpu, space, memory| {
            // Holes, zero pages, and pages that were not written.
            if count < 512 {
                (500..512).for_each(|page| assert_eq!(cpu.load(AT + page * PAGE), Ok(0)));
            }
            let allocator = memory.machine().allocator();
            let before = allocator.census().available();
            let (counts, ()) = counted(memory, || {
                assert_eq!(space.madvise(AT, HUGE, advice::COLLAPSE), Ok(()));
            });
            assert_eq!(counts.get(Counter::ThpCollapse), 1);
            memory.expedite();
            // The old table waits for readers; the new one is kept for a split.
            let taken = before as i64 - allocator.census().available() as i64;
            assert!(
                (taken - (512 - count as i64)).abs() <= 1,
                "{count}: {taken}"
            );
            assert_eq!(huge_bytes(space), HUGE);
            space.verify().unwrap();
            let (counts, ()) = counted(memory, || {
                for page in 0..512 {
                    let value = if page < count { page + 1 } else { 0 };
                    assert_eq!(cpu.load(AT + page * PAGE), Ok(value), "{page}");
                }
                fill(cpu, AT);
            });
            assert_eq!(counts.get(Counter::Faults), 0);
            check(cpu, AT);
            // Again: there is one already.
            assert_eq!(space.madvise(AT, HUGE, advice::COLLAPSE), Ok(()));
            space.madvise(AT + PAGE, PAGE, advice::DONTNEED).unwrap();
            assert_eq!(huge_bytes(space), 0);
            assert_eq!(space.madvise(AT, HUGE, advice::COLLAPSE), Ok(()));
            assert_eq!(huge_bytes(space), HUGE);
            check_but(cpu, 1..2);
            assert_eq!(cpu.load(AT + PAGE), Ok(0));
        });
    }
}

#[test]
fn shared_pages_collapse_into_copies() {
    with_small(512, |cpu, space, _| {
        let child = space.fork().unwrap();
        // As on Linux: not while nothing in the table can be written.
        let result = space.madvise(AT, HUGE, advice::COLLAPSE);
        assert_eq!(result, Err(Errno::EINVAL));
        cpu.store(AT, 1000).unwrap();
        assert_eq!(space.madvise(AT, HUGE, advice::COLLAPSE), Ok(()));
        AddressSpace::verify_together(&[space, &child]).unwrap();
        in_child(&child, |cpu| check(cpu, AT));
        child.destroy();
        check_but(cpu, 0..1);
    });
}

#[test]
fn what_cannot_be_in_a_huge_page_does_not_collapse() {
    with_small(512, |cpu, space, memory| {
        let collapse = || space.madvise(AT, HUGE, advice::COLLAPSE);
        let pinned = space.pin(AT + 3 * PAGE, Taken::ToWrite).ok().unwrap();
        assert_eq!(collapse(), Err(Errno::EINVAL));
        drop(pinned);
        space
            .madvise(AT + 5 * PAGE, PAGE, advice::GUARD_INSTALL)
            .unwrap();
        assert_eq!(collapse(), Err(Errno::EINVAL));
        space
            .madvise(AT + 5 * PAGE, PAGE, advice::GUARD_REMOVE)
            .unwrap();
        space.madvise(AT, HUGE, advice::NOHUGEPAGE).unwrap();
        assert_eq!(collapse(), Err(Errno::EINVAL));
        space.madvise(AT, HUGE, advice::HUGEPAGE).unwrap();
        space.set_huge_off(true);
        assert_eq!(collapse(), Err(Errno::EINVAL));
        space.set_huge_off(false);
        space.mprotect(AT, PAGE, 1).unwrap();
        assert_eq!(collapse(), Err(Errno::EINVAL), "two mappings");
        space.mprotect(AT, PAGE, RW).unwrap();
        let part = space.madvise(AT, PAGE, advice::COLLAPSE);
        assert_eq!(part, Ok(()), "no span is asked for");
        let across = space.madvise(AT + PAGE, HUGE - 2 * PAGE, advice::COLLAPSE);
        assert_eq!(across, Err(Errno::EINVAL), "as on Linux");
        check_but(cpu, 5..6);
        let allocator = memory.machine().allocator();
        let mut taken = Vec::new();
        while let Ok(block) = allocator.allocate_block(9) {
            taken.push(block);
        }
        assert_eq!(collapse(), Err(Errno::ENOMEM));
        for block in taken {
            allocator.free_block(block, 9);
        }
        assert_eq!(collapse(), Ok(()));
        check_but(cpu, 5..6);
        space.munmap(AT, HUGE).unwrap();
        assert_eq!(collapse(), Err(Errno::ENOMEM));
        assert_eq!(
            space.mmap(AT, HUGE, RW, ANON | flags::FIXED),
            Ok(AT),
            "mapped again"
        );
        assert_eq!(collapse(), Err(Errno::EINVAL), "nothing there");
    });
}

#[test]
fn a_mapping_that_ends_inside_a_huge_page_splits_it() {
    type Operation = fn(&SoftSpace);
    let operations: [(Operation, u64); 3] = [
        (|s| s.madvise(AT, PAGE, advice::NOHUGEPAGE).unwrap(), 1),
        (|s| s.mlock(AT, HUGE, 0).unwrap(), 0),
        (|s| s.mlock(AT + PAGE, HUGE, 0).unwrap(), 2),
    ];
    for (operate, splits) in operations {
        with_huge(3, |cpu, space, memory, _| {
            (0..3).for_each(|number| fill(cpu, AT + number * HUGE));
            let (counts, ()) = counted(memory, || operate(space));
            assert_eq!(counts.get(Counter::ThpSplit), splits);
            check(cpu, AT);
            space.munlockall();
        });
    }
}

/// Cold as a whole, without a split; a part of it is split.
#[test]
fn cold_memory_stays_huge() {
    with_huge(1, |cpu, space, memory, _| {
        fill(cpu, AT);
        let (counts, ()) = counted(memory, || space.madvise(AT, HUGE, advice::COLD).unwrap());
        assert_eq!(counts.get(Counter::ThpSplit), 0);
        assert_eq!(huge_bytes(space), HUGE);
        assert_eq!(space.usage(AT..AT + HUGE).referenced, 0);
        check(cpu, AT);
        assert_eq!(space.usage(AT..AT + HUGE).referenced, HUGE, "used again");
        let (counts, ()) = counted(memory, || space.madvise(AT, PAGE, advice::COLD).unwrap());
        assert_eq!(counts.get(Counter::ThpSplit), 1);
        check(cpu, AT);
    });
}
