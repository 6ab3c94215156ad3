//! Exact counts of single operations (`docs/counters.md`), under every policy,
//! with and without another CPU that runs the space. A counter that is not listed
//! must not change.

use faultless_mm::{Counter, Outcome, Policy, advice, flags};
use faultless_soft::Trap;
use faultless_tests::counting::{cases, counted, one};

const PAGE: u64 = 4096;
const RW: u32 = 3;
/// An address at which tables of every level begin.
const AT: u64 = 1 << 36;
/// Bytes that a table of the lowest level maps.
const TABLE: u64 = 2 << 20;

#[test]
fn first_accesses() {
    cases(|case| {
        let tables = |n| vec![(Counter::TableAlloc, n)];
        case.counts("mmap", &[one(Counter::Mmap)], || case.map(AT, 1000, RW, 0));
        case.counts("first write", &[case.faults(1), tables(3)], || {
            case.write(AT, 1)
        });
        case.counts("write beside it", &[case.faults(1)], || {
            case.write(AT + PAGE, 1)
        });
        case.counts("write again", &[], || case.write(AT, 2));
        let other = AT + TABLE;
        case.counts(
            "write in another table",
            &[case.faults(1), tables(1)],
            || {
                case.write(other, 1);
            },
        );
        let zero = one(Counter::ZeroPageMaps);
        case.counts("read", &[case.faults(1), zero], || {
            case.read(AT + 2 * PAGE, 1)
        });
        case.counts("read again", &[], || case.read(AT + 2 * PAGE, 1));
        let replaced = [case.faults(1), case.flush(1)];
        case.counts("write after read", &replaced, || {
            case.write(AT + 2 * PAGE, 1)
        });
        case.counts("and again", &[], || case.write(AT + 2 * PAGE, 1));
    });
}

#[test]
fn frames_of_first_accesses() {
    cases(|case| {
        case.map(AT, 100, RW, 0);
        case.write(AT, 1);
        let allocator = case.cpu.space().memory().machine().allocator();
        let before = allocator.census().available();
        case.read(AT + PAGE, 20);
        assert_eq!(
            allocator.census().available(),
            before,
            "the zero page is no frame"
        );
        assert_eq!(case.cpu.space().verify().unwrap().zero_pages, 20);
        case.write(AT + PAGE, 20);
        assert_eq!(allocator.census().available(), before - 20);
        let census = case.cpu.space().verify().unwrap();
        assert_eq!((census.zero_pages, census.pages), (0, 21));
    });
}

#[test]
fn populate() {
    cases(|case| {
        let made = [
            one(Counter::Mmap),
            case.faults(20),
            vec![(Counter::TableAlloc, 3)],
        ];
        case.counts("mmap POPULATE", &made, || {
            case.map(AT, 20, RW, flags::POPULATE)
        });
        let at = AT + 100 * PAGE;
        let zero = |n| vec![(Counter::ZeroPageMaps, n)];
        let made = [one(Counter::Mmap), case.faults(20), zero(20)];
        case.counts("read-only", &made, || case.map(at, 20, 1, flags::POPULATE));
        case.counts("no access", &[one(Counter::Mmap)], || {
            case.map(at + 20 * PAGE, 20, 0, flags::POPULATE);
        });

        let at = AT + 200 * PAGE;
        let advise = |what| assert_eq!(case.cpu.space().madvise(at, 20 * PAGE, what), Ok(()));
        case.map(at, 20, RW, 0);
        case.write(at, 5);
        case.read(at + 5 * PAGE, 3);
        case.counts("POPULATE_READ", &[case.faults(12), zero(12)], || {
            advise(advice::POPULATE_READ);
        });
        case.counts("all there to read", &[], || advise(advice::POPULATE_READ));
        let flushes: Vec<_> = (0..15).map(|_| case.flush(1)).collect();
        case.counts(
            "POPULATE_WRITE",
            &[case.faults(15), flushes.concat()],
            || {
                advise(advice::POPULATE_WRITE);
            },
        );
        case.counts("all there to write", &[], || advise(advice::POPULATE_WRITE));
    });
}

#[test]
fn refusals() {
    cases(|case| {
        case.map(AT, 20, 1, 0);
        case.read(AT, 1);
        let segv = |result| assert!(matches!(result, Err(Trap::Segv { .. })));
        let refused = [case.refused(1)];
        case.counts("write to a present page", &refused, || {
            segv(case.cpu.store(AT, 1))
        });
        case.counts("write to an absent page", &refused, || {
            segv(case.cpu.store(AT + PAGE, 1))
        });
        case.counts("execute", &refused, || segv(case.cpu.execute(AT)));
        case.counts("unmapped", &refused, || segv(case.cpu.store(AT - PAGE, 1)));
        let beyond = case.cpu.space().layout().end;
        case.counts("beyond the end", &refused, || {
            segv(case.cpu.store(beyond, 1))
        });
        case.map(AT, 1, 0, 0);
        case.counts("no access", &refused, || segv(case.cpu.load(AT).map(drop)));
    });
}

#[test]
fn growth() {
    cases(|case| {
        case.map(AT, 1, 0, flags::NORESERVE);
        case.map(AT + 100 * PAGE, 1, RW, 0);
        case.write(AT + 100 * PAGE, 1);
        case.map(AT + 100 * PAGE, 1, RW, flags::GROWSDOWN);
        let retry = match case.policy {
            Policy::Speculative => one(Counter::SpfRetry),
            _ => Vec::new(),
        };
        // A neighbour without any access needs no guard gap.
        let grown = [case.faults(1), retry, one(Counter::Mmap)];
        case.counts("stack growth", &grown, || case.write(AT + 50 * PAGE, 1));
        case.counts("within", &[case.faults(1)], || {
            case.write(AT + 70 * PAGE, 1)
        });
    });
}

#[test]
fn out_of_memory() {
    cases(|case| {
        case.map(AT, 20, RW, 0);
        let memory = case.cpu.space().memory();
        for _ in 0..3 {
            let (counts, result) = counted(memory, || {
                memory.machine().fail_from(Some(0));
                let result = case.cpu.store(AT, 1);
                memory.machine().fail_from(None);
                result
            });
            assert_eq!(result, Err(Trap::OutOfMemory));
            counts.add_up(case.policy);
            assert_eq!((counts.get(Counter::Faults), counts.fallbacks()), (1, 0));
        }
        let made = [case.faults(1), vec![(Counter::TableAlloc, 3)]];
        case.counts("afterwards", &made, || case.write(AT, 1));
    });
}

#[test]
fn accesses_of_a_kernel() {
    cases(|case| {
        case.map(AT, 20, RW, 0);
        case.write(AT, 1);
        let fault = |page| {
            case.cpu
                .space()
                .fault(AT + page * PAGE, faultless_mm::Access::Write)
        };
        case.counts("fault", &[case.faults(1)], || {
            assert_eq!(fault(1), Outcome::Resolved)
        });
        // A fault that finds the page already present is counted as well.
        case.counts("fault again", &[case.faults(1)], || {
            assert_eq!(fault(1), Outcome::Resolved)
        });
    });
}
