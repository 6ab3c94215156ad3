//! The scan that makes huge pages in the background: what it collapses, and what it leaves, exactly counted.

use faultless_mm::{Counter, HugeMode, HugeScan, HugeScanSetting, advice, flags};
use faultless_soft::{SoftCpu, SoftMemory, SoftSpace};
use faultless_tests::counting::counted;
use faultless_tests::each_policy;

const PAGE: u64 = 4096;
const HUGE: u64 = 2 << 20;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
const AT: u64 = 1 << 36;

/// Runs `work` with `spans` huge pages mapped, in small pages of which the first `written` of each span are written.
fn with_small(spans: u64, written: u64, work: impl Fn(&SoftCpu, &SoftSpace, &'static SoftMemory)) {
    each_policy(2, 64, |cpu, space, memory| {
        memory.set_huge_mode(HugeMode::Never);
        space.mmap(AT, spans * HUGE, RW, ANON).unwrap();
        for page in (0..spans * 512).filter(|page| page % 512 < written) {
            cpu.store(AT + page * PAGE, page + 1).unwrap();
        }
        memory.set_huge_mode(HugeMode::Advised);
        work(cpu, space, memory);
        for page in 0..spans * 512 {
            let value = if page % 512 < written { page + 1 } else { 0 };
            assert_eq!(cpu.load(AT + page * PAGE), Ok(value), "{page}");
        }
        space.verify().unwrap();
        memory.set_huge_mode(HugeMode::Never);
    });
}

fn huge_bytes(space: &SoftSpace) -> u64 {
    space.usage(AT..AT + (1 << 30)).huge
}

fn want(space: &SoftSpace, spans: u64) {
    space.madvise(AT, spans * HUGE, advice::HUGEPAGE).unwrap();
}

#[test]
fn small_pages_are_collapsed() {
    with_small(3, 512, |_, space, memory| {
        assert_eq!(memory.scan_huge(), HugeScan::Idle, "no space is registered");
        want(space, 3);
        let (counts, result) = counted(memory, || memory.scan_huge());
        assert_eq!(result, HugeScan::Done);
        assert_eq!(counts.get(Counter::ThpCollapse), 3);
        assert_eq!(huge_bytes(space), 3 * HUGE);
        assert_eq!(memory.huge_scanned(), (3, 2));
        let (counts, _) = counted(memory, || memory.scan_huge());
        assert_eq!(counts.get(Counter::ThpCollapse), 0, "all are huge");
    });
}

/// A step looks at as many tables as the setting says, and the next one goes on there.
#[test]
fn steps_are_bounded() {
    with_small(3, 512, |_, space, memory| {
        want(space, 3);
        assert!(memory.set_huge_scan(HugeScanSetting::PagesToScan, 512));
        for step in 1..=3 {
            assert_eq!(memory.scan_huge(), HugeScan::Done);
            assert_eq!(huge_bytes(space), step * HUGE);
        }
        assert_eq!(memory.huge_scanned(), (3, 0));
        memory.scan_huge();
        assert!(memory.huge_scanned().1 > 0, "a round is complete");
    });
}

#[test]
fn what_is_empty_is_bounded() {
    with_small(1, 100, |_, space, memory| {
        want(space, 1);
        assert!(memory.set_huge_scan(HugeScanSetting::MaxNone, 411));
        let (counts, _) = counted(memory, || memory.scan_huge());
        assert!(counts.get(Counter::ThpScanExceedNone) > 0);
        assert_eq!(huge_bytes(space), 0);
        assert!(memory.set_huge_scan(HugeScanSetting::MaxNone, 412));
        memory.scan_huge();
        assert_eq!(huge_bytes(space), HUGE);
    });
}

#[test]
fn what_is_shared_is_bounded() {
    with_small(1, 512, |cpu, space, memory| {
        want(space, 1);
        let child = space.fork().unwrap();
        (0..10).for_each(|page| cpu.store(AT + page * PAGE, page + 1).unwrap());
        assert!(memory.set_huge_scan(HugeScanSetting::MaxShared, 501));
        let (counts, _) = counted(memory, || memory.scan_huge());
        assert!(counts.get(Counter::ThpScanExceedShared) > 0);
        assert_eq!(huge_bytes(space), 0);
        assert!(memory.set_huge_scan(HugeScanSetting::MaxShared, 502));
        memory.scan_huge();
        assert_eq!(huge_bytes(space), HUGE);
        assert_eq!(huge_bytes(&child), 0, "nothing in it can be written");
        child.destroy();
    });
}

/// Pages that were not used since the last look are left alone, and so is a mapping that wants no huge pages.
#[test]
fn what_is_not_used_stays() {
    with_small(2, 512, |_, space, memory| {
        want(space, 2);
        space.madvise(AT, HUGE, advice::COLD).unwrap();
        space.madvise(AT + HUGE, HUGE, advice::NOHUGEPAGE).unwrap();
        memory.scan_huge();
        assert_eq!(huge_bytes(space), 0);
        want(space, 2);
        space.set_huge_off(true);
        memory.scan_huge();
        assert_eq!(huge_bytes(space), 0);
        space.set_huge_off(false);
        memory.scan_huge();
        assert_eq!(huge_bytes(space), HUGE, "the first is cold");
    });
}

#[test]
fn settings_have_bounds() {
    with_small(1, 1, |_, _, memory| {
        let of = |which| memory.huge_scan_setting(which);
        let all = HugeScanSetting::ALL.map(of);
        assert_eq!(all, [60_000, 1, 511, 256, 64, 4096, 10_000]);
        for which in [
            HugeScanSetting::MaxNone,
            HugeScanSetting::MaxShared,
            HugeScanSetting::MaxSwap,
        ] {
            assert!(memory.set_huge_scan(which, 0));
            assert!(!memory.set_huge_scan(which, 512));
            assert_eq!(of(which), 0);
        }
        assert!(!memory.set_huge_scan(HugeScanSetting::Defrag, 2));
        assert!(!memory.set_huge_scan(HugeScanSetting::PagesToScan, 0));
    });
}

/// Without a free block, pages are moved to make one; not if that is switched off.
#[test]
fn a_block_is_made() {
    with_small(1, 512, |cpu, space, memory| {
        want(space, 1);
        let allocator = memory.machine().allocator();
        let other = AT + (1 << 30);
        let all = allocator.census().available() - 64;
        space.mmap(other, all * PAGE, RW, ANON).unwrap();
        // The tables first: they do not move, and one in each block would keep all.
        let tables = (0..all).step_by(512);
        tables.for_each(|page| cpu.store(other + page * PAGE, page).unwrap());
        (0..all).for_each(|page| cpu.store(other + page * PAGE, page).unwrap());
        // Three of four frames are free then, and no block is.
        for page in (0..all).filter(|page| page % 4 != 0) {
            space
                .madvise(other + page * PAGE, PAGE, advice::DONTNEED)
                .unwrap();
        }
        assert!(memory.set_huge_scan(HugeScanSetting::Defrag, 0));
        let (counts, result) = counted(memory, || memory.scan_huge());
        assert_eq!(result, HugeScan::NoBlock);
        assert_eq!(counts.get(Counter::ThpCollapseFailed), 1);
        assert!(memory.set_huge_scan(HugeScanSetting::Defrag, 1));
        // The scan goes on behind the table.
        memory.scan_huge();
        memory.scan_huge();
        assert_eq!(huge_bytes(space), HUGE);
        assert!(memory.total(Counter::Migrations) > 0);
        for page in (0..all).filter(|page| page % 4 == 0) {
            assert_eq!(cpu.load(other + page * PAGE), Ok(page));
        }
    });
}

/// A space that ends leaves nothing to scan.
#[test]
fn spaces_end() {
    with_small(1, 512, |_, space, memory| {
        want(space, 1);
        let child = space.fork().unwrap();
        child.destroy();
        assert_eq!(memory.scan_huge(), HugeScan::Done);
    });
}
