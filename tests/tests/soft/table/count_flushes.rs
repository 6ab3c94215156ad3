//! Exactly one flush for each operation, and none where no TLB can hold anything:
//! counted under every policy, with and without another CPU in the space. That CPU has loaded
//! nothing, so it gets no request; `count_holders.rs` has one that has.

use faultless_mm::{Counter, Errno, advice, flags};
use faultless_tests::counting::{Case, cases, one};

const PAGE: u64 = 4096;
const RW: u32 = 3;
/// An address at which tables of every level begin.
const AT: u64 = 1 << 36;
/// Bytes that a table of the lowest level maps, and one of the next level.
const TABLE: u64 = 2 << 20;
const UPPER: u64 = 1 << 30;
/// The most pages of one batch of DONTNEED.
const DISCARD_BATCH: u64 = 16 * 512;

fn unmap(case: &Case<'_>, at: u64, pages: u64) {
    assert_eq!(case.cpu.space().munmap(at, pages * PAGE), Ok(()));
}

fn protect(case: &Case<'_>, pages: u64, prot: u32) {
    assert_eq!(case.cpu.space().mprotect(AT, pages * PAGE, prot), Ok(()));
}

fn discard(case: &Case<'_>, pages: u64) {
    let result = case.cpu.space().madvise(AT, pages * PAGE, advice::DONTNEED);
    assert_eq!(result, Ok(()));
}

/// Maps a table's range with a page at its end that stays, so that the table stays.
fn with_neighbour(case: &Case<'_>) {
    case.map(AT, 512, RW, 0);
    case.write(AT + 511 * PAGE, 1);
}

#[test]
fn munmap() {
    for pages in [1, 2, 128, 129, 300] {
        cases(|case| {
            with_neighbour(case);
            case.write(AT, pages);
            let unmapped = [one(Counter::Munmap), case.flush(pages)];
            case.counts("munmap", &unmapped, || unmap(case, AT, pages));
            case.counts("munmap again", &[], || unmap(case, AT, pages));
            case.counts("untouched", &[one(Counter::Munmap)], || {
                unmap(case, AT, 400)
            });
        });
    }
}

#[test]
fn munmap_of_what_no_tlb_holds() {
    cases(|case| {
        with_neighbour(case);
        case.write(AT, 40);
        protect(case, 40, 0);
        case.counts("without any access", &[one(Counter::Munmap)], || {
            unmap(case, AT, 40)
        });
    });
}

#[test]
fn mapping_over() {
    cases(|case| {
        with_neighbour(case);
        case.write(AT, 7);
        let mapped = [one(Counter::Mmap), case.flush(7)];
        case.counts("FIXED", &mapped, || case.map(AT, 100, 1, 0));
        case.counts("over untouched", &[one(Counter::Mmap)], || {
            case.map(AT, 100, RW, 0)
        });
    });
}

#[test]
fn mprotect() {
    cases(|case| {
        with_neighbour(case);
        let changed = || one(Counter::Mprotect);
        let steps = [
            ("untouched, lowered", 0, 1),
            ("untouched, raised", 0, RW),
            ("lowered to read", 40, 1),
            ("raised to write", 0, RW),
            ("raised to execute", 0, 7),
            ("lowered from execute", 40, RW),
            ("the same", 0, RW),
            ("lowered to nothing", 40, 0),
            ("raised to read", 0, 1),
            ("raised to all", 0, 7),
        ];
        for (what, flushed, prot) in steps {
            if what == "lowered to read" {
                case.write(AT, 40);
            }
            let counts = [changed(), case.flush(flushed)];
            case.counts(what, &counts, || protect(case, 40, prot));
        }
        // Exclusive pages can be written without a fault.
        case.counts("write", &[], || case.write(AT, 40));
    });
}

#[test]
fn mprotect_of_many_mappings() {
    cases(|case| {
        let parts = [RW, 7, 3 | 4, 1, RW];
        let map = || {
            for (at, prot) in (AT..).step_by(10 * PAGE as usize).zip(parts) {
                case.map(at, 10, RW, 0);
                case.write(at, 10);
                let result = case.cpu.space().mprotect(at, 10 * PAGE, prot);
                assert_eq!(result, Ok(()));
            }
        };
        map();
        let counts = [one(Counter::Mprotect), case.flush(50)];
        case.counts("lowered", &counts, || protect(case, 50, 0));
        map();
        // The mappings before a hole are changed and flushed nevertheless.
        unmap(case, AT + 30 * PAGE, 10);
        let counts = [one(Counter::Mprotect), case.flush(30)];
        case.counts("up to a hole", &counts, || {
            let result = case.cpu.space().mprotect(AT, 50 * PAGE, 1);
            assert_eq!(result, Err(Errno::ENOMEM));
        });
        case.counts("behind the hole", &[], || case.write(AT + 40 * PAGE, 10));
    });
}

#[test]
fn mprotect_of_the_zero_page() {
    cases(|case| {
        case.map(AT, 512, 1, 0);
        case.read(AT, 3);
        case.counts("raised", &[one(Counter::Mprotect)], || protect(case, 3, RW));
        let replaced = [case.faults(3), case.flush(1), case.flush(1), case.flush(1)];
        case.counts("write", &replaced, || case.write(AT, 3));
    });
}

#[test]
fn dont_need() {
    cases(|case| {
        case.map(AT, 3 * DISCARD_BATCH, RW, flags::NORESERVE);
        case.counts("untouched", &[], || discard(case, 3 * DISCARD_BATCH));
        case.write(AT, 20);
        case.counts("pages", &[case.flush(20)], || {
            discard(case, 3 * DISCARD_BATCH)
        });
        case.counts("again", &[], || discard(case, 3 * DISCARD_BATCH));
        case.write(AT, 200);
        case.counts("many", &[case.flush(200)], || {
            discard(case, 3 * DISCARD_BATCH)
        });
        // Of three batches one finds nothing.
        case.write(AT + PAGE, 2);
        case.write(AT + 2 * DISCARD_BATCH * PAGE, 3);
        let batches = [case.flush(2), case.flush(3)];
        case.counts("batches", &batches, || discard(case, 3 * DISCARD_BATCH));
        let zeroes = [case.faults(20), vec![(Counter::ZeroPageMaps, 20)]];
        case.counts("read", &zeroes, || case.read(AT, 20));
    });
}

fn discard_at(case: &Case<'_>, at: u64) {
    let done = case.cpu.space().madvise(at, PAGE, advice::DONTNEED);
    assert_eq!(done, Ok(()));
}

#[test]
fn tables() {
    cases(|case| {
        let freed = |count| vec![(Counter::TableFree, count)];
        let all = || case.flush(512);
        with_neighbour(case);
        case.map(AT + 512 * PAGE, 63 * 512, RW, flags::NORESERVE);
        let other = AT + UPPER - PAGE;
        case.map(other, 1, RW, 0);
        case.write(other, 1);

        // Half a table: the table stays, and its pages are flushed one by one.
        case.write(AT + TABLE, 2);
        let half = [one(Counter::Munmap), case.flush(2)];
        case.counts("half", &half, || unmap(case, AT + TABLE, 256));
        let rest = [one(Counter::Munmap), all(), freed(1)];
        case.counts("the rest", &rest, || {
            unmap(case, AT + TABLE + 256 * PAGE, 256)
        });

        // Up to 63 tables are freed with one flush, wherever the range begins.
        (2..64).for_each(|table| case.write(AT + table * TABLE, 1));
        let many = [one(Counter::Munmap), all(), freed(62)];
        let start = AT + TABLE;
        case.counts("62 tables", &many, || unmap(case, start, 63 * 512));
        case.counts("nothing", &[], || unmap(case, start, 63 * 512));

        // Upper tables are freed with the last table below them.
        let (at, pages) = (AT + 4 * UPPER, 2 * UPPER / PAGE);
        case.map(at, pages, RW, flags::NORESERVE);
        case.write(at, 1);
        case.write(at + UPPER, 1);
        let two = [one(Counter::Munmap), all(), all(), freed(4)];
        case.counts("two levels", &two, || unmap(case, at, pages));
    });
}

#[test]
fn what_was_never_used() {
    cases(|case| {
        let freed = |count| vec![(Counter::TableFree, count)];
        let (at, pages) = (AT + 4 * UPPER, 20 * 512);
        case.map(at, pages, RW, flags::NORESERVE);
        // Beside it, under the same upper table.
        let beside = at + 40 * TABLE;
        case.map(beside, 1, RW, 0);
        case.write(beside, 1);

        // No page and no table is present: nothing is flushed.
        let nothing = [one(Counter::Munmap)];
        case.counts("a part", &nothing, || unmap(case, at + TABLE, 512));
        case.counts("the rest", &nothing, || unmap(case, at, pages));
        case.map(at, pages, RW, flags::NORESERVE);

        // An empty table is freed, though no page is in it.
        case.write(at + TABLE, 1);
        discard_at(case, at + TABLE);
        let empty = [one(Counter::Munmap), case.flush(512), freed(1)];
        case.counts("an empty table", &empty, || unmap(case, at, 2 * 512));

        // The last unmap below upper tables frees them, whether or not its own range was used.
        let last = [one(Counter::Munmap), case.flush(512), freed(1)];
        case.counts("the neighbour", &last, || unmap(case, beside, 1));
        let upper = [one(Counter::Munmap), case.flush(512), freed(2)];
        case.counts("the last", &upper, || unmap(case, at, pages));

        // In another part of the address space, with an upper table that both ranges share.
        let far = AT + (1 << 40);
        case.map(far, 1, RW, 0);
        case.write(far, 1);
        case.map(far + 2 * UPPER, pages, RW, flags::NORESERVE);
        let first = [one(Counter::Munmap), case.flush(512), freed(2)];
        case.counts("the used range", &first, || unmap(case, far, 1));
        let second = [one(Counter::Munmap), case.flush(512), freed(1)];
        let rest = || unmap(case, far + 2 * UPPER, pages);
        case.counts("the unused range", &second, rest);
    });
}
