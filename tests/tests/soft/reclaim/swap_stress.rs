//! Threads that access pages while others swap them out, fork, discard and unmap. Each page has a value that only
//! its writer changes, so that a lost or stale page is seen.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use faultless_mm::{Policy, advice, flags};
use faultless_soft::{Soft, SoftCpu};
use faultless_tests::random::{Numbers, seed};
use faultless_tests::{budget, machine};

use super::swap::{SLOTS, new_device};

const PAGE: u64 = 4096;
const AT: u64 = 1 << 36;
const PAGES: u64 = 64;
const WRITERS: u64 = 2;

/// Writers count up in pages of their own, beside a thread that swaps everything out, one that forks, and one that
/// ends the use of the device and begins it again.
fn counts_go_up(policy: Policy) {
    let memory = machine(5, 32);
    let (store, caches) = new_device(memory, SLOTS);
    SoftCpu::attend(memory, 0, || {
        assert_eq!(memory.swap_on(store, caches, None), Ok(0));
    });
    let flags = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED;
    let space = SoftCpu::attend(memory, 0, || {
        let space = Soft::space(memory, policy).unwrap();
        assert_eq!(space.mmap(AT, PAGES * PAGE, 3, flags), Ok(AT));
        space
    });
    let stop = AtomicBool::new(false);
    let done = AtomicU64::new(0);
    let seed = seed();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (space, stop, done) = (&space, &stop, &done);
            scope.spawn(move || {
                SoftCpu::run(space, writer as u32, |cpu| {
                    let mut numbers = Numbers(seed ^ writer);
                    let mut counts = [0; PAGES as usize];
                    while !stop.load(Ordering::Relaxed) {
                        let page = numbers.below(PAGES / WRITERS) * WRITERS + writer;
                        let count = &mut counts[page as usize];
                        assert_eq!(cpu.load(AT + page * PAGE), Ok(*count), "page {page}");
                        *count += 1;
                        cpu.store(AT + page * PAGE, *count).unwrap();
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            });
        }
        let (space, stop) = (&space, &stop);
        scope.spawn(move || {
            SoftCpu::run(space, WRITERS as u32, |cpu| {
                while !stop.load(Ordering::Relaxed) {
                    cpu.space()
                        .madvise(AT, PAGES * PAGE, advice::PAGEOUT)
                        .unwrap();
                }
            });
        });
        scope.spawn(move || {
            SoftCpu::run(space, WRITERS as u32 + 1, |cpu| {
                while !stop.load(Ordering::Relaxed) {
                    let child = cpu.space().fork().unwrap();
                    child.madvise(AT, PAGES * PAGE, advice::PAGEOUT).unwrap();
                    child.destroy();
                }
            });
        });
        scope.spawn(move || {
            SoftCpu::attend(memory, WRITERS as u32 + 2, || {
                while !stop.load(Ordering::Relaxed) {
                    assert_eq!(memory.swap_off(0, &|| Ok(())), Ok(()));
                    assert_eq!(store.used(), 0);
                    assert_eq!(memory.swap_on(store, caches, None), Ok(0));
                }
            });
        });
        for _ in budget(3).rounds() {
            std::thread::sleep(Duration::from_millis(200));
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert!(done.load(Ordering::Relaxed) > 100);
    SoftCpu::attend(memory, 0, || {
        space
            .verify()
            .unwrap_or_else(|violation| panic!("{violation}"));
        space.destroy();
    });
    assert_eq!(store.used(), 0);
}

#[test]
fn counts_go_up_speculative() {
    counts_go_up(Policy::Speculative);
}

#[test]
fn counts_go_up_vma_lock() {
    counts_go_up(Policy::VmaLock);
}

#[test]
fn counts_go_up_classic() {
    counts_go_up(Policy::Classic);
}
