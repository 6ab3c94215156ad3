//! The memory usage of a range, in numbers, under every policy.

use faultless_mm::{AgingMode, MemoryObject, Opened, PAGE_SIZE, Usage, advice, flags};
use faultless_soft::{SoftCpu, SoftSpace};
use faultless_tests::each_policy;

const PAGE: u64 = PAGE_SIZE;
const NONE: u32 = 0;
const READ: u32 = 1;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
const SHARED: u32 = flags::SHARED | flags::ANONYMOUS | flags::FIXED;
const AT: u64 = (1 << 36) - 4 * PAGE;
const PAGES: u64 = 16;

fn page(number: u64) -> u64 {
    AT + number * PAGE
}

fn map(space: &SoftSpace, kind: u32) {
    assert_eq!(space.mmap(AT, PAGES * PAGE, RW, kind), Ok(AT));
}

fn fill(cpu: &SoftCpu<'_>, pages: u64) {
    for number in 0..pages {
        cpu.store(page(number), number + 1).unwrap();
    }
}

fn usage(space: &SoftSpace) -> Usage {
    space.usage(AT..page(PAGES))
}

/// Pages that are shared clean, shared dirty, private clean, private dirty.
fn kinds(usage: &Usage) -> [u64; 4] {
    let all = [
        usage.shared_clean,
        usage.shared_dirty,
        usage.private_clean,
        usage.private_dirty,
    ];
    assert_eq!(all.iter().sum::<u64>(), usage.resident);
    all.map(|bytes| bytes / PAGE)
}

#[test]
fn private_memory() {
    each_policy(1, 64, |cpu, space, _| {
        map(space, ANON);
        assert_eq!(usage(space), Usage::default());
        // The zero page is not counted.
        cpu.load(page(12)).unwrap();
        assert_eq!(usage(space), Usage::default());
        fill(cpu, 8);
        let all = usage(space);
        assert_eq!(kinds(&all), [0, 0, 0, 8]);
        assert_eq!((all.anonymous, all.referenced), (8 * PAGE, 8 * PAGE));
        assert_eq!(all.share.bytes(), 8 * PAGE);
        assert_eq!(all.share_dirty, all.share);
        assert_eq!(all.share_anonymous, all.share);
        assert_eq!(space.resident(), 8);
        // A part of the range.
        assert_eq!(space.usage(page(3)..page(6)).resident, 3 * PAGE);
        // Pages that no access may reach stay counted.
        space.mprotect(AT, PAGES * PAGE, NONE).unwrap();
        assert_eq!(usage(space), all);
        assert_eq!(space.resident(), 8);
        space.mprotect(AT, PAGES * PAGE, RW).unwrap();
        space.clear_accessed(AgingMode::All);
        assert_eq!(usage(space).referenced, 0);
        cpu.load(page(1)).unwrap();
        assert_eq!(usage(space).referenced, PAGE);
        // Advice does the same to pages that no other space maps.
        space.madvise(AT, PAGES * PAGE, advice::COLD).unwrap();
        assert_eq!(usage(space).referenced, 0);
        cpu.load(page(2)).unwrap();
        assert_eq!(usage(space).referenced, PAGE);
        let child = space.fork().unwrap();
        let shared = usage(space).referenced;
        space.madvise(AT, PAGES * PAGE, advice::COLD).unwrap();
        assert_eq!((usage(space).referenced, shared), (PAGE, PAGE));
        child.destroy();
        // Nor does clearing soft-dirty bits make a page clean.
        space.clear_soft_dirty();
        assert_eq!(kinds(&usage(space)), [0, 0, 0, 8]);
        space.madvise(AT, 2 * PAGE, advice::FREE).unwrap();
        cpu.store(page(1), 7).unwrap();
        let all = usage(space);
        assert_eq!(kinds(&all), [0, 0, 1, 7]);
        assert_eq!(all.lazily_free, PAGE);
        space.madvise(page(4), PAGE, advice::GUARD_INSTALL).unwrap();
        assert_eq!(usage(space).resident, 7 * PAGE);
        assert_eq!(space.resident(), 7);
    });
}

#[test]
fn what_is_shared_is_divided() {
    each_policy(3, 64, |cpu, space, _| {
        map(space, ANON);
        fill(cpu, 6);
        let one = space.fork().unwrap();
        let two = space.fork().unwrap();
        cpu.store(page(0), 9).unwrap();
        let all = usage(space);
        assert_eq!(kinds(&all), [0, 5, 0, 1]);
        assert_eq!(all.share.bytes(), PAGE + 5 * PAGE / 3);
        // Each page's share is rounded to a fraction of a byte.
        let share = usage(&one).share.bytes();
        assert_eq!(share, PAGE / 2 + 5 * PAGE / 3);
        assert_eq!(usage(&two), usage(&one));
        one.destroy();
        assert_eq!(usage(space).share.bytes(), PAGE + 5 * PAGE / 2);
        two.destroy();
        assert_eq!(kinds(&usage(space)), [0, 0, 0, 6]);
    });
}

#[test]
fn stores() {
    each_policy(1, 64, |cpu, space, memory| {
        let store = MemoryObject::new(memory, PAGES * PAGE, None, 0).unwrap();
        for index in 0..PAGES {
            drop(store.page_to_write(index).unwrap());
        }
        let opened = Opened {
            store: Ok(&store),
            offset: 0,
            file: 1,
            writable: true,
        };
        let map = |at: u64, prot, kind: u32| {
            let kind = kind | flags::FIXED;
            let mapped = space.mmap_object(at, PAGES * PAGE, prot, kind, &opened);
            assert_eq!(mapped, Ok(at));
        };
        map(AT, RW, flags::PRIVATE);
        cpu.load(AT).unwrap();
        let there = usage(space).resident / PAGE;
        assert!(there > 1, "{there} pages around the first");
        assert_eq!(kinds(&usage(space)), [0, 0, there, 0]);
        assert_eq!(usage(space).anonymous, 0);
        cpu.store(AT, 1).unwrap();
        assert_eq!(kinds(&usage(space)), [0, 0, there - 1, 1]);
        assert_eq!(usage(space).anonymous, PAGE);
        // The same pages at another address.
        let other = AT + (1 << 30);
        map(other, READ, flags::SHARED);
        cpu.load(other + PAGE).unwrap();
        assert_eq!(cpu.load(other), Ok(0));
        let all = usage(space);
        let shared = kinds(&all)[0];
        assert!(shared > 0);
        let elsewhere = space.usage(other..other + PAGES * PAGE);
        assert_eq!(kinds(&elsewhere)[0], shared);
        assert!(elsewhere.share.bytes() < elsewhere.resident);
    });
}

#[test]
fn memory_that_processes_share() {
    each_policy(2, 64, |cpu, space, _| {
        map(space, SHARED);
        fill(cpu, 4);
        let all = usage(space);
        assert_eq!((kinds(&all), all.anonymous), ([0, 0, 0, 4], 0));
        let child = space.fork().unwrap();
        assert_eq!(usage(&child).resident, 0);
        std::thread::scope(|scope| {
            scope.spawn(|| SoftCpu::run(&child, 1, |cpu| cpu.store(AT, 7).unwrap()));
        });
        assert_eq!(kinds(&usage(&child)), [0, 1, 0, 0]);
        assert_eq!(kinds(&usage(space)), [0, 1, 0, 3]);
        child.destroy();
        assert_eq!(kinds(&usage(space)), [0, 0, 0, 4]);
    });
}
