//! More threads change one address space than the list of ranges has slots at first.

use std::sync::atomic::{AtomicBool, Ordering};

use faultless_mm::{AddressSpace, Policy};
use faultless_soft::SoftCpu;
use faultless_tests::cpus::FIXED;
use faultless_tests::{available, budget, space};

const PAGE: u64 = 4096;
const RW: u32 = 3;
const CPUS: u32 = 41;
/// Low addresses, where no shard is created, so that all threads use the space's own list.
const LOW: u64 = 0x1000_0000;
const PAGES: u64 = 96;

/// Each thread maps, uses and unmaps its own pages, and all of them lock and unlock the same range; one forks.
/// Each finds what it has written, and nothing else.
fn crowd(policy: Policy) {
    let (memory, space) = space(CPUS as usize, 128, policy);
    SoftCpu::run(&space, 0, |cpu| {
        space.mmap(LOW, PAGE, RW, FIXED).unwrap();
        cpu.store(LOW, 7).unwrap();
    });
    let is_over = AtomicBool::new(false);
    let budget = budget(30);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (1..CPUS)
            .map(|number| {
                let (space, budget) = (&space, &budget);
                scope.spawn(move || {
                    SoftCpu::run(space, number, |cpu| {
                        let at = LOW + u64::from(number) * 4 * PAGES * PAGE;
                        for round in budget.rounds().map(|done| done + 1) {
                            space.mmap(at, PAGES * PAGE, RW, FIXED).unwrap();
                            for page in (0..PAGES).step_by(7) {
                                assert_eq!(cpu.load(at + page * PAGE), Ok(0), "a stale page");
                                cpu.store(at + page * PAGE, round).unwrap();
                            }
                            assert_eq!(cpu.load(at), Ok(round));
                            space.mlock(LOW, PAGE, 1).unwrap();
                            space.munlock(LOW, PAGE).unwrap();
                            // First replaces some of it.
                            space.mmap(at, 4 * PAGE, RW, FIXED).unwrap();
                            assert_eq!(cpu.load(at), Ok(0), "an old page");
                            space.munmap(at, PAGES * PAGE).unwrap();
                            assert!(cpu.load(at + PAGE).is_err(), "what was unmapped is there");
                        }
                    });
                })
            })
            .collect();
        let forker = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                let child = SoftCpu::run(&space, 0, |_| space.fork().unwrap());
                SoftCpu::run(&child, 0, |cpu| assert_eq!(cpu.load(LOW), Ok(7)));
                SoftCpu::attend(memory, 0, || child.destroy());
            }
        });
        let done: Vec<_> = workers.into_iter().map(|worker| worker.join()).collect();
        is_over.store(true, Ordering::Relaxed);
        forker.join().unwrap();
        done.into_iter().for_each(|done| done.unwrap());
    });
    let census = SoftCpu::attend(memory, 0, || AddressSpace::verify_together(&[&space]));
    assert_eq!(census.unwrap_or_else(|v| panic!("{v}")).mapped, 1);
    let before = available(memory);
    SoftCpu::attend(memory, 0, || space.destroy());
    assert!(available(memory) > before, "nothing came back");
}

#[test]
fn all_of_many_go_on() {
    Policy::ALL.iter().for_each(|&policy| crowd(policy));
}
