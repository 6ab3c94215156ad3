//! Huge entries of a guest, counted: where they are mapped, what takes them away, and what the dirty log makes of them.

use faultless_mm::{Counter, HugeMode, advice};
use faultless_soft::{SoftCpu, SoftVcpu};
use faultless_tdp::{Options, Slot, SlotFlags};
use faultless_tests::counting::counted;
use faultless_tests::guest::{BASE, OneSlot};
use faultless_tests::{available, machine};

const PAGE: u64 = 4096;
/// Pages of a huge page.
const SPAN: u64 = 512;
const HUGE: u64 = SPAN * PAGE;
/// Huge pages of the slot.
const SPANS: u64 = 4;
const PAGES: u64 = SPANS * SPAN;

fn with(options: Options, test: &impl Fn(&OneSlot, &SoftCpu<'_>, &SoftVcpu<'_>)) {
    let memory = machine(2, 32);
    memory.set_huge_mode(HugeMode::Always);
    let before = available(memory);
    let slot = OneSlot::aligned(memory, PAGES, options);
    slot.run(0, |cpu, vcpu| {
        test(&slot, cpu, vcpu);
        slot.guest.verify().unwrap_or_else(|v| panic!("{v}"));
    });
    slot.destroy();
    assert_eq!(available(memory), before, "frames are lost");
}

/// Runs a test with both MMUs.
fn both(more: Options, test: impl Fn(&OneSlot, &SoftCpu<'_>, &SoftVcpu<'_>)) {
    for tdp_mmu in [true, false] {
        with(Options { tdp_mmu, ..more }, &test);
    }
}

fn write(vcpu: &SoftVcpu<'_>, pages: impl IntoIterator<Item = u64>) {
    pages
        .into_iter()
        .for_each(|page| vcpu.store(BASE + page * PAGE, page + 1).unwrap());
}

fn read(vcpu: &SoftVcpu<'_>, pages: impl IntoIterator<Item = u64>) {
    pages
        .into_iter()
        .for_each(|page| assert_eq!(vcpu.load(BASE + page * PAGE), Ok(page + 1)));
}

/// Faults of the guest, and of these, those that the fast path repairs.
fn faults(test: &OneSlot, act: impl FnOnce()) -> [u64; 2] {
    let (counts, ()) = counted(test.space.memory(), act);
    [Counter::PfTaken, Counter::PfFast].map(|counter| counts.get(counter))
}

#[test]
fn a_huge_page_takes_one_fault() {
    both(Options::default(), |test, cpu, vcpu| {
        let memory = test.space.memory();
        let (counts, ()) = counted(memory, || write(vcpu, 0..PAGES));
        assert_eq!(counts.get(Counter::PfTaken), SPANS);
        assert_eq!(counts.get(Counter::Faults), SPANS, "the host's own");
        assert_eq!(test.guest.count_pages(), [0, SPANS]);
        for page in 0..PAGES {
            assert_eq!(cpu.load(test.host + page * PAGE), Ok(page + 1));
        }
        assert_eq!(faults(test, || read(vcpu, 0..PAGES)), [0, 0]);
    });
}

#[test]
fn the_huge_zero_page_is_shown_whole() {
    both(Options::default(), |test, _, vcpu| {
        let zeros = || (0..PAGES).for_each(|at| assert_eq!(vcpu.load(BASE + at * PAGE), Ok(0)));
        assert_eq!(faults(test, zeros), [SPANS, 0]);
        assert_eq!(test.guest.count_pages(), [0, SPANS]);
        assert_eq!(faults(test, || write(vcpu, SPAN..2 * SPAN)), [1, 0]);
        assert_eq!(test.guest.count_pages(), [0, SPANS]);
        test.guest.verify().unwrap();
        // Its parts are the small zero page.
        test.set(SlotFlags::LOG_DIRTY_PAGES);
        assert_eq!(test.guest.count_pages(), [PAGES, 0]);
        test.guest.verify().unwrap();
        assert_eq!(faults(test, || write(vcpu, [0])), [1, 0]);
        assert_eq!(vcpu.load(BASE + PAGE), Ok(0));
        assert_eq!(test.dirty(true), [0]);
        test.set(SlotFlags::empty());
        assert_eq!(test.guest.count_pages(), [0, SPANS]);
        // The host splits its own.
        let at = test.host + 3 * HUGE;
        test.space.madvise(at, PAGE, advice::COLD).unwrap();
        test.guest.verify().unwrap();
        assert_eq!(vcpu.load(BASE + 3 * HUGE), Ok(0));
    });
}

#[test]
fn what_the_host_changes_takes_all_away() {
    both(Options::default(), |test, cpu, vcpu| {
        write(vcpu, 0..PAGES);
        // Nothing is changed by a split alone.
        let at = test.host + HUGE;
        let (counts, ()) = counted(test.space.memory(), || {
            test.space.madvise(at, PAGE, advice::PAGEOUT).unwrap();
        });
        assert_eq!(counts.get(Counter::ThpSplit), 1);
        // Without a swap device the page stays.
        test.guest.verify().unwrap();
        let one = test.host + HUGE + 5 * PAGE;
        test.space.madvise(one, PAGE, advice::DONTNEED).unwrap();
        assert_eq!(test.guest.count_pages(), [0, SPANS - 1]);
        assert_eq!(vcpu.load(BASE + HUGE + 5 * PAGE), Ok(0));
        // Eight pages at once, as the host has them.
        let rest = (SPAN + 8)..2 * SPAN;
        assert_eq!(faults(test, || read(vcpu, rest)), [63, 0]);
        assert_eq!(test.guest.count_pages(), [SPAN, SPANS - 1]);
        // The whole huge page goes by one.
        test.space
            .madvise(test.host, HUGE, advice::DONTNEED)
            .unwrap();
        assert_eq!(test.guest.count_pages(), [SPAN, SPANS - 2]);
        assert_eq!(faults(test, || write(vcpu, 0..SPAN)), [1, 0]);
        // One that the host has written.
        cpu.store(test.host + 2 * HUGE, 9).unwrap();
        assert_eq!(vcpu.load(BASE + 2 * HUGE), Ok(9));
    });
}

#[test]
fn a_fork_takes_stores_away() {
    both(Options::default(), |test, _, vcpu| {
        write(vcpu, 0..PAGES);
        let child = test.space.fork().unwrap();
        assert_eq!(faults(test, || read(vcpu, 0..PAGES)), [0, 0]);
        assert_eq!(test.guest.count_pages(), [0, SPANS]);
        test.guest.verify().unwrap();
        // The write splits the host's page, and copies one.
        assert_eq!(faults(test, || write(vcpu, [3])), [1, 0]);
        test.guest.verify().unwrap();
        assert!(test.guest.count_pages()[1] == SPANS - 1);
        child.destroy();
        // Alone again, the host takes over the whole: the guest's entry stays, and allows stores.
        assert_eq!(faults(test, || write(vcpu, SPAN..2 * SPAN)), [1, 0]);
        assert!(test.guest.count_pages()[1] == SPANS - 1);
    });
}

#[test]
fn addresses_that_are_not_alike_take_small_entries() {
    both(Options::default(), |test, _, vcpu| {
        let slot = Slot {
            guest_address: 2 * BASE + PAGE,
            size: (PAGES - 1) * PAGE,
            host_address: test.host,
            flags: SlotFlags::empty(),
        };
        test.guest.set_slot(1, &slot).unwrap();
        for page in 0..SPAN {
            vcpu.store(2 * BASE + PAGE + page * PAGE, 1).unwrap();
        }
        assert_eq!(test.guest.count_pages(), [SPAN, 0]);
        // A slot that has a part of the huge page.
        let slot = Slot {
            guest_address: 3 * BASE + PAGE,
            size: (2 * SPAN - 1) * PAGE,
            host_address: test.host + PAGE,
            flags: SlotFlags::empty(),
        };
        test.guest.set_slot(2, &slot).unwrap();
        vcpu.store(3 * BASE + PAGE, 1).unwrap();
        vcpu.store(3 * BASE + HUGE, 1).unwrap();
        assert_eq!(test.guest.count_pages()[1], 1);
    });
}

#[test]
fn a_log_begins_with_small_entries() {
    both(Options::default(), |test, _, vcpu| {
        write(vcpu, 0..PAGES);
        test.set(SlotFlags::LOG_DIRTY_PAGES);
        assert_eq!(test.guest.count_pages(), [PAGES, 0], "split before a fault");
        test.guest.verify().unwrap();
        assert_eq!(test.dirty(false), []);
        assert_eq!(faults(test, || read(vcpu, 0..PAGES)), [0, 0]);
        assert_eq!(faults(test, || write(vcpu, [1, 2, SPAN + 7])), [3, 3]);
        assert_eq!(test.dirty(true), [1, 2, SPAN + 7]);
        assert_eq!(test.dirty(true), []);
        // Nothing huge is mapped meanwhile.
        test.space
            .madvise(test.host, HUGE, advice::DONTNEED)
            .unwrap();
        assert_eq!(faults(test, || write(vcpu, 0..SPAN))[0], 512);
        assert_eq!(test.dirty(true), Vec::from_iter(0..SPAN));
        // Then tables make way.
        test.set(SlotFlags::empty());
        assert_eq!(test.guest.count_pages(), [0, SPANS]);
        test.guest.verify().unwrap();
        assert_eq!(faults(test, || write(vcpu, 0..PAGES)), [0, 0]);
    });
}

#[test]
fn without_eager_splits_the_first_store_splits() {
    let lazy = Options {
        eager_page_split: false,
        ..Options::default()
    };
    both(lazy, |test, _, vcpu| {
        write(vcpu, 0..PAGES);
        test.set(SlotFlags::LOG_DIRTY_PAGES);
        assert_eq!(test.guest.count_pages(), [0, SPANS]);
        assert_eq!(test.dirty(false), []);
        assert_eq!(faults(test, || read(vcpu, 0..PAGES)), [0, 0]);
        // The entry allows no store, and says so for one page of it.
        assert_eq!(faults(test, || write(vcpu, [5])), [1, 0]);
        assert_eq!(test.guest.count_pages(), [SPAN, SPANS - 1]);
        assert_eq!(faults(test, || write(vcpu, [6, 7])), [2, 2]);
        assert_eq!(test.dirty(true), [5, 6, 7]);
        test.set(SlotFlags::empty());
        assert_eq!(test.guest.count_pages(), [0, SPANS]);
        // Those that no store has split get write access as they are.
        assert_eq!(faults(test, || write(vcpu, 0..PAGES)), [SPANS - 1, 0]);
    });
}

#[test]
fn a_log_that_begins_full_splits_as_it_is_cleared() {
    for eager_page_split in [true, false] {
        let options = Options {
            eager_page_split,
            ..Options::default()
        };
        both(options, |test, _, vcpu| {
            write(vcpu, 0..PAGES);
            test.set(SlotFlags::LOG_DIRTY_PAGES | SlotFlags::LOG_BEGINS_FULL);
            assert_eq!(test.guest.count_pages(), [0, SPANS]);
            assert_eq!(test.dirty(false), Vec::from_iter(0..PAGES));
            assert_eq!(faults(test, || write(vcpu, 0..PAGES)), [0, 0]);
            test.clear(SPAN + 64, &[0b110]);
            let kept = (0..PAGES).filter(|&page| page != SPAN + 65 && page != SPAN + 66);
            assert_eq!(test.dirty(false), Vec::from_iter(kept));
            let split = if eager_page_split { 1 } else { 0 };
            assert_eq!(test.guest.count_pages(), [split * SPAN, SPANS - split]);
            let fast = split;
            assert_eq!(faults(test, || write(vcpu, [SPAN + 66])), [1, fast]);
            test.clear(0, &vec![u64::MAX; PAGES as usize / 64]);
            assert_eq!(test.dirty(false), []);
            write(vcpu, [0, 64, SPAN, PAGES - 1]);
            assert_eq!(test.dirty(true), [0, 64, SPAN, PAGES - 1]);
            test.guest.verify().unwrap();
        });
    }
}

#[test]
fn what_leaves_a_full_log_is_dirty() {
    both(Options::default(), |test, _, vcpu| {
        write(vcpu, 0..PAGES);
        let full = SlotFlags::LOG_DIRTY_PAGES | SlotFlags::LOG_BEGINS_FULL;
        test.set(full);
        test.space
            .madvise(test.host, PAGE, advice::DONTNEED)
            .unwrap();
        assert_eq!(test.dirty(true), Vec::from_iter(0..PAGES));
        assert_eq!(test.dirty(true), []);
        // A slot that moves takes its log along.
        let moved = Slot {
            guest_address: 2 * BASE,
            size: PAGES * PAGE,
            host_address: test.host,
            flags: full,
        };
        write(vcpu, [7]);
        test.guest.set_slot(0, &moved).unwrap();
        assert_eq!(test.guest.count_pages(), [0, 0]);
        assert_eq!(test.dirty(true), [7]);
    });
}

#[test]
fn access_tracking_of_huge_pages() {
    for accessed_bits in [true, false] {
        let options = Options {
            accessed_bits,
            ..Options::default()
        };
        both(options, |test, _, vcpu| {
            let memory = test.space.memory();
            write(vcpu, 0..PAGES);
            let frame = |page: u64| test.space.translate(test.host + page * PAGE).unwrap();
            let idle = |page: u64| {
                memory.set_idle(frame(page));
                memory.is_idle(frame(page))
            };
            assert!(idle(3));
            assert_eq!(test.guest.count_pages(), [0, SPANS]);
            test.guest.verify().unwrap();
            let fast = u64::from(!accessed_bits);
            assert_eq!(faults(test, || read(vcpu, 0..SPAN)), [fast; 2]);
            assert!(!memory.is_idle(frame(3)));
            // Where the host has split its own, the guest's pages are aged one by one.
            let one = test.host + SPAN * PAGE;
            test.space.madvise(one, PAGE, advice::PAGEOUT).unwrap();
            idle(SPAN + 9);
            assert_eq!(test.guest.count_pages(), [SPAN, SPANS - 1]);
            let used = faults(test, || read(vcpu, SPAN..2 * SPAN));
            assert_eq!(used, [fast; 2]);
            test.guest.verify().unwrap();
        });
    }
}

/// What the host collapses, the guest shows by one entry, too.
#[test]
fn a_collapse_of_the_host() {
    both(Options::default(), |test, _, vcpu| {
        test.space.memory().set_huge_mode(HugeMode::Never);
        write(vcpu, 0..SPAN);
        assert_eq!(test.guest.count_pages(), [SPAN, 0]);
        test.space
            .madvise(test.host, HUGE, advice::COLLAPSE)
            .unwrap();
        assert_eq!(test.guest.count_pages(), [0, 0]);
        assert_eq!(faults(test, || read(vcpu, 0..SPAN)), [1, 0]);
        assert_eq!(test.guest.count_pages(), [0, 1]);
        test.space.memory().set_huge_mode(HugeMode::Always);
    });
}
