//! Clearing soft-dirty bits beside stores, faults and writers of other CPUs: no store is missed.
//!
//! Each CPU owns a word on every shared page. For a store it notes the page and the round of clearing, if the store
//! lay within one round. After each round the clearing CPU reads `pagemap`: a store that began after the
//! clearing and ended before the next must be reported.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};

use faultless_mm::{PAGE_SIZE, Policy, advice, flags};
use faultless_soft::{SoftCpu, SoftSpace};
use faultless_tests::random::{Numbers, seed};
use faultless_tests::{Budget, available, budget, machine, verify_and_destroy};

const PAGE: u64 = PAGE_SIZE;
const CPUS: usize = 4;
const READ: u32 = 1;
const RW: u32 = 3;
const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
const SHARED: u32 = flags::SHARED | flags::ANONYMOUS | flags::FIXED;
/// Two mappings, one private, one shared, around the end of a table.
const AT: u64 = (1 << 36) - 32 * PAGE;
const HALF: u64 = 32;
const PAGES: u64 = 2 * HALF;
/// A range that other CPUs map and unmap meanwhile, in the same tables.
const BESIDE: u64 = AT + PAGES * PAGE;

struct Run {
    /// Counts starts and ends of clearings: odd during one.
    clearings: AtomicU64,
    /// For each page: the latest even count of clearings during which a store to it was completed.
    stored: Vec<AtomicU64>,
    over: AtomicBool,
    barrier: Barrier,
}

fn store(cpu: &SoftCpu<'_>, run: &Run, numbers: &mut Numbers) {
    let page = numbers.below(PAGES);
    let address = AT + page * PAGE + u64::from(cpu.number()) * 8;
    let before = run.clearings.load(SeqCst);
    cpu.store(address, numbers.draw()).unwrap();
    // The count has not changed, so the store lay within one round. A late note is harmless: its number is
    // that round's, and the check compares it with the round then current.
    if before.is_multiple_of(2) && run.clearings.load(SeqCst) == before {
        run.stored[page as usize].fetch_max(before, SeqCst);
    }
}

fn disturb(space: &SoftSpace, numbers: &mut Numbers) {
    let pages = 1 + numbers.below(8);
    let at = BESIDE + numbers.below(16) * PAGE;
    let length = pages * PAGE;
    match numbers.below(8) {
        0 => drop(space.mmap(at, length, RW, ANON | flags::POPULATE)),
        1 => drop(space.munmap(at, length)),
        2 => drop(space.madvise(at, length, advice::DONTNEED)),
        3 => {
            let at = AT + numbers.below(PAGES - 8) * PAGE;
            let _ = space.madvise(at, length, advice::POPULATE_READ);
        }
        4 => drop(space.madvise(BESIDE, 24 * PAGE, advice::FREE)),
        // Never less than the accesses of the other CPUs need.
        5 => {
            let at = AT + numbers.below(HALF - 8) * PAGE;
            space.mprotect(at, length, 7).unwrap();
            space.mprotect(at, length, RW).unwrap();
        }
        6 => space.clear_accessed(faultless_mm::AgingMode::All),
        _ => drop(space.mmap(at, length, READ, ANON)),
    }
}

/// In each epoch CPU 0 clears and checks while the others store and disturb; then the space is verified. Returns the
/// number of stores that were checked, and of pages that were found clean.
fn stress(policy: Policy, budget: &Budget) -> (u64, u64) {
    let memory = machine(CPUS, 64);
    let before = available(memory);
    let space = SoftCpu::attend(memory, 0, || faultless_soft::Soft::space(memory, policy)).unwrap();
    let (mut checked, mut unwritten) = (0, 0);
    SoftCpu::run(&space, 0, |_| {
        space.mmap(AT, HALF * PAGE, RW, ANON).unwrap();
        space
            .mmap(AT + HALF * PAGE, HALF * PAGE, RW, SHARED)
            .unwrap();
    });
    for epoch in budget.rounds() {
        let run = Run {
            clearings: AtomicU64::new(2),
            stored: (0..PAGES).map(|_| AtomicU64::new(0)).collect(),
            over: AtomicBool::new(false),
            barrier: Barrier::new(CPUS),
        };
        std::thread::scope(|scope| {
            for number in 1..CPUS as u32 {
                let (run, space) = (&run, &space);
                scope.spawn(move || {
                    let mut numbers = Numbers(seed() ^ (epoch << 8) ^ u64::from(number));
                    SoftCpu::run(space, number, |cpu| {
                        run.barrier.wait();
                        while !run.over.load(SeqCst) {
                            match numbers.below(8) {
                                0 => disturb(space, &mut numbers),
                                1 => {
                                    let page = AT + numbers.below(PAGES) * PAGE;
                                    cpu.load(page).unwrap();
                                }
                                _ => store(cpu, run, &mut numbers),
                            }
                        }
                    });
                });
            }
            SoftCpu::run(&space, 0, |cpu| {
                run.barrier.wait();
                let mut words = vec![0; PAGES as usize];
                for round in 0..40 {
                    run.clearings.fetch_add(1, SeqCst);
                    space.clear_soft_dirty();
                    let now = run.clearings.fetch_add(1, SeqCst) + 1;
                    // Lets the others run: they may share the host's CPU with this one.
                    for _ in 0..(epoch + round) % 7 {
                        std::thread::yield_now();
                    }
                    let said: Vec<u64> = run.stored.iter().map(|page| page.load(SeqCst)).collect();
                    space.pagemap(AT / PAGE, &mut words, false);
                    for (page, said) in said.iter().enumerate() {
                        let counts = words[page] >> 55 & 1 == 1;
                        if *said == now {
                            assert!(counts, "{policy:?}: a store to page {page} is missed");
                            checked += 1;
                        }
                        unwritten += u64::from(!counts);
                    }
                }
                run.over.store(true, SeqCst);
                let _ = cpu;
            });
        });
        SoftCpu::attend(memory, 0, || space.verify().unwrap());
    }
    verify_and_destroy(space, before);
    (checked, unwritten)
}

#[test]
fn no_store_is_missed() {
    for &policy in Policy::ALL {
        let (checked, unwritten) = stress(policy, &budget(6));
        // Stores were noticed, and clean pages were found.
        assert!(checked > 0 && unwritten > 0, "{checked} {unwritten}");
    }
}
