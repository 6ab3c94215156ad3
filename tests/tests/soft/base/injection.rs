//! One allocation fails, or one and all that follow, at each place in an operation:
//! the operation either fails as a whole or succeeds, nothing leaks, and it succeeds
//! when repeated.

use faultless_mm::{Locked, advice, flags, lock_all_flags, remap_flags};
use faultless_soft::{SoftCpu, Trap};
use faultless_tests::inject::{Failing, inject};

const PAGE: u64 = 4096;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS;
/// Far from other mappings, so that tables of every level and nodes are missing.
const AT: u64 = 1 << 36;
const HEAP: u64 = 1 << 32;

fn map(cpu: &SoftCpu<'_>, pages: u64, prot: u32, more: u32) {
    let at = cpu
        .space()
        .mmap(AT, pages * PAGE, prot, ANON | flags::FIXED | more);
    assert_eq!(at, Ok(AT));
}

fn touch(cpu: &SoftCpu<'_>, pages: u64) {
    for page in 0..pages {
        assert_eq!(cpu.store(AT + page * PAGE, page + 1), Ok(()));
    }
}

fn expect(cpu: &SoftCpu<'_>, page: u64, value: u64) {
    assert_eq!(cpu.load(AT + page * PAGE), Ok(value), "page {page}");
}

fn is_gone(cpu: &SoftCpu<'_>, page: u64) {
    assert!(
        matches!(cpu.load(AT + page * PAGE), Err(Trap::Segv { .. })),
        "page {page}"
    );
}

#[test]
fn mapping_free_pages() {
    inject(
        "mmap",
        Failing::Whole,
        |_| {},
        |cpu| cpu.space().mmap(AT, 70 * PAGE, RW, ANON),
        |cpu| expect(cpu, 69, 0),
    );
    inject(
        "mmap anywhere",
        Failing::Whole,
        |cpu| map(cpu, 3, RW, 0),
        |cpu| cpu.space().mmap(0, 70 * PAGE, RW, ANON),
        |_| {},
    );
}

#[test]
fn mapping_over() {
    inject(
        "mmap FIXED",
        Failing::Whole,
        |cpu| {
            map(cpu, 200, RW, 0);
            touch(cpu, 200);
        },
        |cpu| {
            cpu.space()
                .mmap(AT + 3 * PAGE, 77 * PAGE, 1, ANON | flags::FIXED)
        },
        |cpu| {
            expect(cpu, 2, 3);
            expect(cpu, 3, 0);
            expect(cpu, 79, 0);
            expect(cpu, 80, 81);
        },
    );
}

#[test]
fn mapping_and_populating() {
    inject(
        "mmap POPULATE",
        Failing::Whole,
        |_| {},
        |cpu| cpu.space().mmap(AT, 70 * PAGE, RW, ANON | flags::POPULATE),
        |cpu| expect(cpu, 69, 0),
    );
}

#[test]
fn unmapping_the_middle() {
    inject(
        "munmap",
        Failing::Whole,
        |cpu| {
            map(cpu, 200, RW, 0);
            touch(cpu, 200);
        },
        |cpu| cpu.space().munmap(AT + 3 * PAGE, 77 * PAGE),
        |cpu| {
            expect(cpu, 2, 3);
            is_gone(cpu, 3);
            is_gone(cpu, 79);
            expect(cpu, 80, 81);
        },
    );
}

#[test]
fn protecting_the_middle() {
    inject(
        "mprotect",
        Failing::Whole,
        |cpu| {
            map(cpu, 200, RW, 0);
            touch(cpu, 200);
        },
        |cpu| cpu.space().mprotect(AT + 3 * PAGE, 77 * PAGE, 1),
        |cpu| {
            assert_eq!(cpu.store(AT + 2 * PAGE, 3), Ok(()));
            assert!(cpu.store(AT + 3 * PAGE, 1).is_err());
            expect(cpu, 3, 4);
        },
    );
    inject(
        "mprotect of several",
        Failing::Part,
        |cpu| {
            map(cpu, 200, RW, 0);
            assert_eq!(cpu.space().mprotect(AT + 10 * PAGE, 10 * PAGE, 1), Ok(()));
        },
        |cpu| cpu.space().mprotect(AT + 3 * PAGE, 77 * PAGE, 5),
        |cpu| assert_eq!(cpu.execute(AT + 40 * PAGE), Ok(())),
    );
}

#[test]
fn remapping() {
    const MAYMOVE: u32 = remap_flags::MAYMOVE;
    const FIXED: u32 = MAYMOVE | remap_flags::FIXED;
    const TO: u64 = AT + (3 << 30) + 5 * PAGE;
    let touched = |cpu: &SoftCpu<'_>| {
        map(cpu, 600, RW, 0);
        touch(cpu, 600);
    };
    inject(
        "mremap FIXED",
        Failing::Whole,
        touched,
        |cpu| {
            let space = cpu.space();
            space.mremap(AT + 3 * PAGE, 590 * PAGE, 700 * PAGE, FIXED, TO)
        },
        |cpu| {
            expect(cpu, 2, 3);
            is_gone(cpu, 3);
            is_gone(cpu, 592);
            expect(cpu, 593, 594);
            assert_eq!(cpu.load(TO), Ok(4));
            assert_eq!(cpu.load(TO + 589 * PAGE), Ok(593));
            assert_eq!(cpu.load(TO + 699 * PAGE), Ok(0));
        },
    );
    // The unmapped tail ends far behind the moved part.
    inject(
        "mremap that shrinks",
        Failing::Whole,
        |cpu| {
            map(cpu, 100_000, RW, flags::NORESERVE);
            touch(cpu, 600);
            assert_eq!(cpu.store(AT + 90_003 * PAGE, 5), Ok(()));
        },
        |cpu| {
            let space = cpu.space();
            space.mremap(AT + 3 * PAGE, 90_000 * PAGE, 70 * PAGE, FIXED, TO)
        },
        |cpu| {
            expect(cpu, 2, 3);
            is_gone(cpu, 3);
            is_gone(cpu, 90_002);
            expect(cpu, 90_003, 5);
            assert_eq!(cpu.load(TO + 69 * PAGE), Ok(73));
        },
    );
    inject(
        "mremap over something",
        Failing::Whole,
        |cpu| {
            touched(cpu);
            let over = cpu.space().mmap(TO, 90 * PAGE, RW, ANON | flags::FIXED);
            assert_eq!(over, Ok(TO));
            assert_eq!(cpu.store(TO + PAGE, 99), Ok(()));
        },
        |cpu| {
            let space = cpu.space();
            space.mremap(AT + 3 * PAGE, 70 * PAGE, 70 * PAGE, FIXED, TO)
        },
        |cpu| assert_eq!(cpu.load(TO + PAGE), Ok(5)),
    );
    inject(
        "mremap in place",
        Failing::Whole,
        touched,
        |cpu| cpu.space().mremap(AT, 600 * PAGE, 5000 * PAGE, 0, 0),
        |cpu| expect(cpu, 599, 600),
    );
    inject(
        "mremap DONTUNMAP",
        Failing::Whole,
        touched,
        |cpu| {
            let flags = MAYMOVE | remap_flags::DONTUNMAP;
            cpu.space().mremap(AT, 600 * PAGE, 600 * PAGE, flags, TO)
        },
        |cpu| {
            expect(cpu, 5, 0);
            assert_eq!(cpu.load(TO + 5 * PAGE), Ok(6));
        },
    );
}

fn locked(cpu: &SoftCpu<'_>, page: u64) -> Option<Locked> {
    let attributes = cpu.space().lookup(AT + page * PAGE);
    attributes.map(|attributes| attributes.flags.locked)
}

#[test]
fn locking() {
    const BOTH: u32 = lock_all_flags::CURRENT | lock_all_flags::FUTURE;
    inject(
        "mlock",
        // It stays locked if populating fails.
        Failing::Part,
        |cpu| map(cpu, 200, RW, 0),
        |cpu| cpu.space().mlock(AT + 3 * PAGE, 77 * PAGE, 0),
        |cpu| {
            assert_eq!(cpu.space().totals().locked, 77);
            assert!((3..80).all(|page| cpu.space().translate(AT + page * PAGE).is_some()));
        },
    );
    inject(
        "munlock",
        Failing::Whole,
        |cpu| map(cpu, 200, RW, flags::LOCKED),
        |cpu| cpu.space().munlock(AT + 3 * PAGE, 77 * PAGE),
        |cpu| assert_eq!(cpu.space().totals().locked, 123),
    );
    inject(
        "mlockall",
        // `mlockall` reports no failure to populate.
        Failing::Part,
        |cpu| {
            map(cpu, 200, RW, 0);
            assert_eq!(cpu.space().mprotect(AT + 10 * PAGE, PAGE, 1), Ok(()));
        },
        |cpu| {
            let all = cpu.space().mlockall(BOTH);
            let more = cpu.space().mmap(0, 70 * PAGE, RW, ANON);
            all.and(more)
        },
        |cpu| expect(cpu, 199, 0),
    );
    inject(
        "mmap LOCKED",
        Failing::Whole,
        |_| {},
        |cpu| cpu.space().mmap(AT, 70 * PAGE, RW, ANON | flags::LOCKED),
        |cpu| assert_eq!(locked(cpu, 69), Some(Locked::Yes)),
    );
    inject(
        "mprotect of what is locked",
        Failing::Whole,
        |cpu| map(cpu, 70, 1, flags::LOCKED),
        |cpu| cpu.space().mprotect(AT + 3 * PAGE, 60 * PAGE, RW),
        |cpu| assert_eq!(cpu.store(AT + 3 * PAGE, 1), Ok(())),
    );
    inject(
        "mremap DONTUNMAP of what is locked",
        Failing::Whole,
        |cpu| map(cpu, 70, RW, flags::LOCKED),
        |cpu| {
            let flags = remap_flags::MAYMOVE | remap_flags::DONTUNMAP;
            let to = AT + (1 << 30);
            cpu.space().mremap(AT, 70 * PAGE, 70 * PAGE, flags, to)
        },
        |cpu| {
            assert_eq!(locked(cpu, 0), Some(Locked::No));
            assert_eq!(cpu.space().totals().locked, 70);
        },
    );
}

#[test]
fn moving_the_heap() {
    let moved = |cpu: &SoftCpu<'_>, to: u64| match cpu.space().brk(to) {
        end if end == to => Ok(end),
        end => Err(end),
    };
    inject(
        "brk up",
        Failing::Whole,
        |cpu| cpu.space().set_brk(HEAP),
        |cpu| moved(cpu, HEAP + 70 * PAGE + 5),
        |cpu| assert_eq!(cpu.store(HEAP + 70 * PAGE, 1), Ok(())),
    );
    inject(
        "brk down",
        Failing::Whole,
        |cpu| {
            cpu.space().set_brk(HEAP);
            assert_eq!(cpu.space().brk(HEAP + 4099 * PAGE), HEAP + 4099 * PAGE);
            assert_eq!(cpu.store(HEAP + 4096 * PAGE, 1), Ok(()));
        },
        |cpu| moved(cpu, HEAP + 70 * PAGE + 5),
        |cpu| assert!(cpu.load(HEAP + 71 * PAGE).is_err()),
    );
}

#[test]
fn populating() {
    for what in [advice::POPULATE_READ, advice::POPULATE_WRITE] {
        inject(
            "madvise POPULATE",
            Failing::Whole,
            |cpu| map(cpu, 70, RW, 0),
            |cpu| cpu.space().madvise(AT, 70 * PAGE, what),
            |cpu| expect(cpu, 69, 0),
        );
    }
}

#[test]
fn discarding() {
    inject(
        "madvise DONTNEED",
        Failing::Whole,
        |cpu| {
            map(cpu, 70, RW, 0);
            touch(cpu, 70);
        },
        |cpu| cpu.space().madvise(AT + PAGE, 60 * PAGE, advice::DONTNEED),
        |cpu| expect(cpu, 1, 0),
    );
}

#[test]
fn guarding() {
    inject(
        "madvise GUARD_INSTALL",
        // Guards before the table that could not be allocated stay; the mappings do not show them.
        Failing::Whole,
        |cpu| {
            map(cpu, 1200, RW, 0);
            for page in (0..500).step_by(7) {
                assert_eq!(cpu.store(AT + page * PAGE, page + 1), Ok(()));
            }
        },
        |cpu| {
            let space = cpu.space();
            space.madvise(AT + PAGE, 1100 * PAGE, advice::GUARD_INSTALL)
        },
        |cpu| {
            expect(cpu, 0, 1);
            for page in [1, 7, 511, 512, 1024, 1100] {
                is_gone(cpu, page);
            }
            assert_eq!(cpu.store(AT + 1101 * PAGE, 7), Ok(()));
        },
    );
}

#[test]
fn letting_go() {
    inject(
        "madvise FREE",
        Failing::Whole,
        |cpu| {
            map(cpu, 70, RW, 0);
            touch(cpu, 70);
        },
        |cpu| cpu.space().madvise(AT, 60 * PAGE, advice::FREE),
        |cpu| expect(cpu, 65, 66),
    );
    inject(
        "write beside pages let go of",
        Failing::Whole,
        |cpu| {
            map(cpu, 700, RW, 0);
            touch(cpu, 70);
            let let_go = cpu.space().madvise(AT, 60 * PAGE, advice::FREE);
            assert_eq!(let_go, Ok(()));
        },
        |cpu| cpu.store(AT + 600 * PAGE, 7),
        |cpu| {
            expect(cpu, 65, 66);
            expect(cpu, 600, 7);
            for page in 0..60 {
                let value = cpu.load(AT + page * PAGE);
                assert!([Ok(0), Ok(page + 1)].contains(&value), "page {page}");
            }
        },
    );
}

#[test]
fn advising() {
    for what in [advice::DONTFORK, advice::HUGEPAGE, advice::MERGEABLE] {
        inject(
            "madvise, an attribute",
            Failing::Part,
            |cpu| {
                map(cpu, 200, RW, 0);
                assert_eq!(cpu.space().mprotect(AT + 10 * PAGE, PAGE, 1), Ok(()));
            },
            |cpu| cpu.space().madvise(AT + 3 * PAGE, 77 * PAGE, what),
            |_| {},
        );
    }
}

#[test]
fn sealing() {
    inject(
        "mseal",
        Failing::Part,
        |cpu| {
            map(cpu, 200, RW, 0);
            assert_eq!(cpu.space().mprotect(AT + 10 * PAGE, PAGE, 1), Ok(()));
        },
        |cpu| cpu.space().mseal(AT + 3 * PAGE, 77 * PAGE, 0),
        |cpu| {
            assert!(cpu.space().munmap(AT + 10 * PAGE, PAGE).is_err());
            assert!(cpu.space().munmap(AT + 79 * PAGE, PAGE).is_err());
            assert_eq!(cpu.space().munmap(AT + 80 * PAGE, PAGE), Ok(()));
        },
    );
}

#[test]
fn faulting() {
    inject(
        "read",
        Failing::Whole,
        |cpu| map(cpu, 9, RW, 0),
        |cpu| cpu.load(AT),
        |_| {},
    );
    inject(
        "write",
        Failing::Whole,
        |cpu| map(cpu, 9, RW, 0),
        |cpu| cpu.store(AT, 7),
        |cpu| expect(cpu, 0, 7),
    );
    inject(
        "write after read",
        Failing::Whole,
        |cpu| {
            map(cpu, 9, RW, 0);
            expect(cpu, 0, 0);
        },
        |cpu| cpu.store(AT, 7),
        |cpu| expect(cpu, 0, 7),
    );
    inject(
        "stack growth",
        // A stack that has grown stays so if no memory is left for the page.
        Failing::Part,
        |cpu| map(cpu, 9, RW, flags::GROWSDOWN),
        |cpu| cpu.store(AT - 100 * PAGE, 7),
        |cpu| assert_eq!(cpu.load(AT - 100 * PAGE), Ok(7)),
    );
}
