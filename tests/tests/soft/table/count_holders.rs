//! Which TLBs are flushed: those that may hold the unmapped pages, and no others. Counted exactly, with
//! three CPUs that run one after another.

use std::sync::mpsc::channel;

use faultless_mm::{AgingMode, Counter, Flush, Tlb as _, advice, flags};
use faultless_soft::SoftSpace;
use faultless_tests::counting::{Counts, counted};
use faultless_tests::cpus::{AT, Cpus, FIXED, with_cpus};

const PAGE: u64 = 4096;
const RW: u32 = 3;
const TABLE: u64 = 2 << 20;

fn unmap(space: &SoftSpace) {
    assert_eq!(space.munmap(AT, 2 * PAGE), Ok(()));
}

fn discard(space: &SoftSpace) {
    assert_eq!(space.madvise(AT, 2 * PAGE, advice::DONTNEED), Ok(()));
}

#[test]
fn ones_own_pages() {
    with_cpus(|cpus| {
        cpus.store(0, AT);
        cpus.asks("DONTNEED", &[], discard);
        cpus.store(0, AT);
        cpus.load(0, AT + PAGE);
        cpus.store(0, AT + PAGE);
        cpus.asks("lowered", &[], |space| {
            space.mprotect(AT, 2 * PAGE, 1).unwrap()
        });
        cpus.asks("raised", &[], |space| {
            space.mprotect(AT, 2 * PAGE, RW).unwrap()
        });
        cpus.asks("watched", &[], |space| space.clear_soft_dirty());
        cpus.asks("moved", &[], |space| {
            let to = AT + 100 * PAGE;
            let fixed = faultless_mm::remap_flags::MAYMOVE | faultless_mm::remap_flags::FIXED;
            assert_eq!(space.mremap(AT, 2 * PAGE, 2 * PAGE, fixed, to), Ok(to));
            assert_eq!(space.mremap(to, 2 * PAGE, 2 * PAGE, fixed, AT), Ok(AT));
        });
        cpus.asks("munmap", &[], unmap);
    });
}

#[test]
fn pages_that_another_cpu_has_loaded() {
    with_cpus(|cpus| {
        cpus.store(0, AT);
        cpus.load(1, AT);
        // The entry has lost its owner, so every CPU that may have loaded it is flushed.
        cpus.asks("DONTNEED", &[1, 2], discard);
        cpus.asks("and again", &[], discard);
        let each_its_own = |cpus: &Cpus| {
            cpus.store(0, AT);
            cpus.store(1, AT + PAGE);
        };
        each_its_own(cpus);
        cpus.asks("each its own, replaced", &[1], |space| {
            assert_eq!(space.mmap(AT, 2 * PAGE, RW, FIXED), Ok(AT));
        });
        each_its_own(cpus);
        cpus.asks("each its own", &[1], unmap);
    });
}

#[test]
fn pages_of_another_cpu() {
    with_cpus(|cpus| {
        cpus.store(2, AT);
        cpus.asks("DONTNEED", &[2], discard);
        // CPU 1 maps the zero page, and CPU 0 replaces it by a page that CPU 0 then owns.
        cpus.load(1, AT);
        cpus.asks("zero page replaced", &[1], |space| {
            let written = faultless_mm::Access::Write;
            assert_eq!(space.fault(AT, written), faultless_mm::Outcome::Resolved);
        });
        cpus.store(0, AT);
        cpus.asks("munmap", &[], unmap);
    });
}

#[test]
fn a_thread_that_changes_its_cpu() {
    with_cpus(|cpus| {
        cpus.store(2, AT);
        // The thread leaves CPU 2 and returns; that CPU's TLB is empty then.
        cpus.on(2, |cpu| cpu.pause(|| ()));
        cpus.asks("it may have loaded it since", &[2], discard);
        cpus.store(2, AT);
        let (leave, left) = channel::<()>();
        let (go, gone) = channel::<()>();
        cpus.work[2]
            .send(Box::new(move |cpu| {
                cpu.pause(|| {
                    leave.send(()).unwrap();
                    let _ = gone.recv();
                });
            }))
            .unwrap();
        left.recv().unwrap();
        let (counts, ()) = counted(cpus.memory, || cpus.on(0, |cpu| discard(cpu.space())));
        assert_eq!(counts.get(Counter::TlbRemoteFlush), 0, "it is away");
        drop(go);
        assert_eq!(cpus.done.recv(), Ok(true));
    });
}

#[test]
fn what_counts_as_not_used() {
    with_cpus(|cpus| {
        cpus.store(0, AT);
        cpus.load(1, AT);
        cpus.asks("cleared", &[1, 2], |space| {
            space.clear_accessed(AgingMode::All)
        });
        // A clear accessed bit does not show which CPUs have loaded the page since.
        cpus.load(1, AT);
        cpus.asks("DONTNEED", &[1, 2], discard);
    });
}

#[test]
fn tables() {
    with_cpus(|cpus| {
        let unmap = |space: &SoftSpace| assert_eq!(space.munmap(AT + 512 * PAGE, TABLE), Ok(()));
        let map = |cpus: &Cpus| {
            cpus.on(0, |cpu| {
                let at = AT + 512 * PAGE;
                assert_eq!(cpu.space().mmap(at, TABLE, RW, FIXED), Ok(at));
            });
        };
        // Only CPU 0 has walked the table.
        cpus.asks("one's own", &[], unmap);
        map(cpus);
        cpus.store(0, AT + 512 * PAGE);
        cpus.load(1, AT + 513 * PAGE);
        cpus.asks("walked", &[1, 2], unmap);
        map(cpus);
        cpus.store(1, AT + 512 * PAGE);
        cpus.asks("another's", &[1], unmap);
    });
}

#[test]
fn mapping_and_unmapping_interrupts_no_cpu() {
    with_cpus(|cpus| {
        cpus.on(1, |_| ());
        let work = || {
            cpus.on(0, |cpu| {
                for _ in 0..100 {
                    let anywhere = flags::PRIVATE | flags::ANONYMOUS;
                    let at = cpu.space().mmap(0, 16 * PAGE, RW, anywhere).unwrap();
                    (0..16).for_each(|page| cpu.store(at + page * PAGE, 1).unwrap());
                    cpu.space().munmap(at, 16 * PAGE).unwrap();
                }
            });
        };
        let (counts, ()): (Counts, ()) = counted(cpus.memory, work);
        assert_eq!(counts.get(Counter::TlbRemoteFlush), 0);
        assert_eq!(counts.get(Counter::Munmap), 100);
    });
}

/// CPU 1 answers late, once: it flushes the requested pages, each once, and not everything.
#[test]
fn gathers_that_meet_do_not_add_up_to_everything() {
    let flushed = |ranges: &'static [(u64, u64)], expected: [u64; 2]| {
        with_cpus(|cpus| {
            cpus.on(0, move |cpu| {
                let (space, machine) = (cpu.space(), cpu.space().memory().machine());
                for &(first, end) in ranges {
                    let (start, end) = (AT + first * PAGE, AT + end * PAGE);
                    let tables = false;
                    machine.flush(space.cpus(), space.id(), Flush { start, end, tables });
                }
            });
            let own = |counter| cpus.memory.cpus()[1].counters().get(counter);
            cpus.load(1, AT - TABLE);
            assert_eq!(own(Counter::TlbRemoteFlushReceived), ranges.len() as u64);
            let pages = [Counter::TlbLocalFlushOne, Counter::TlbLocalFlushAll].map(own);
            assert_eq!(pages, expected, "{ranges:?}");
        });
    };
    // Twelve that overlap, twelve that adjoin, twelve apart.
    flushed(&[(0, 30); 12], [30, 0]);
    const SLIDING: [(u64, u64); 12] = ranges(2, 5);
    flushed(&SLIDING, [27, 0]);
    const ADJOINING: [(u64, u64); 12] = ranges(5, 5);
    flushed(&ADJOINING, [60, 0]);
    const APART: [(u64, u64); 12] = ranges(10, 5);
    flushed(&APART, [60, 0]);
    // Too many pages to flush one by one.
    const MORE: [(u64, u64); 12] = ranges(12, 11);
    flushed(&MORE, [0, 1]);
}

/// Ranges of `pages`, each beginning `step` pages after the one before.
const fn ranges(step: u64, pages: u64) -> [(u64, u64); 12] {
    let mut ranges = [(0, 0); 12];
    let mut number = 0;
    while number < 12 {
        let first = number as u64 * step;
        ranges[number] = (first, first + pages);
        number += 1;
    }
    ranges
}
