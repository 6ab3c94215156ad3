//! Userfaultfds beside reclaim: what the handler has asked for holds for pages that leave, and come back.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use faultless_mm::{Policy, userfault};
use faultless_soft::{SoftCpu, Trap};
use faultless_tests::file_injection::{AT, File, OTHER, PAGE, SHARED};
use faultless_tests::userfault::Handled;
use faultless_tests::{available, verify_and_destroy};

use crate::reclaim::overcommit::{ANON, FRAMES, RW, machine, space};

/// A page of a file whose store the end of a protection has allowed is kept.
#[test]
fn a_store_after_the_protection_outlasts_reclaim() {
    for &policy in Policy::ALL {
        let (memory, _) = machine(1);
        let before = available(memory);
        let space = space(memory, policy);
        SoftCpu::run(&space, 0, |cpu| {
            let file = File::of_device(cpu, 4);
            file.map(cpu, AT, 4, SHARED).unwrap();
            // Read by a mapping that allows no stores, the page is clean.
            space.mprotect(AT, 4 * PAGE, 1).unwrap();
            assert_eq!(cpu.load(AT), Ok(file.fresh(0)));
            let handled = Handled::new(memory, &space, 0);
            let all = 4 * PAGE;
            handled.register(AT, all, userfault::WRITE_PROTECT).unwrap();
            handled.protect(AT, all, true).unwrap();
            space.mprotect(AT, all, RW).unwrap();
            handled.protect(AT, all, false).unwrap();
            space.verify().unwrap();
            cpu.store(AT, 77).unwrap();
            for _ in 0..4 {
                space.mmap(OTHER, 2 * FRAMES * PAGE, RW, ANON).unwrap();
                (0..2 * FRAMES).for_each(|page| cpu.store(OTHER + page * PAGE, page).unwrap());
                space.munmap(OTHER, 2 * FRAMES * PAGE).unwrap();
            }
            assert_eq!(cpu.load(AT), Ok(77), "the store is lost");
            space.close_userfault(&handled.to);
            space.munmap(AT, all).unwrap();
        });
        verify_and_destroy(space, before);
    }
}

/// Stores, perhaps after the other CPU has freed what it has taken out.
fn store(cpu: &SoftCpu<'_>, at: u64, word: u64) {
    loop {
        match cpu.store(at, word) {
            Err(Trap::OutOfMemory) => std::thread::yield_now(),
            stored => return stored.unwrap(),
        }
    }
}

/// Says so when it is dropped.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Pages are protected, all of them, while another CPU takes them out.
#[test]
fn every_page_is_protected_beside_reclaim() {
    const PAGES: u64 = 64;
    const ROUNDS: u64 = 200;
    let (memory, _) = machine(2);
    let before = available(memory);
    let space = space(memory, Policy::Speculative);
    let over = AtomicBool::new(false);
    let lost = AtomicU64::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                SoftCpu::attend(memory, 1, || memory.reclaim_some());
            }
        });
        let _over = Over(&over);
        SoftCpu::run(&space, 0, |cpu| {
            let file = File::of_zeroes(cpu, PAGES);
            file.map(cpu, AT, PAGES, SHARED).unwrap();
            // Above what there is: memory is always short.
            memory
                .machine()
                .allocator()
                .set_watermarks(faultless_frames::Watermarks {
                    min: 8,
                    low: 16,
                    high: 2 * FRAMES,
                });
            space.mmap(OTHER, FRAMES * PAGE, RW, ANON).unwrap();
            let handled = Handled::new(memory, &space, 0);
            let all = PAGES * PAGE;
            handled.register(AT, all, userfault::WRITE_PROTECT).unwrap();
            for round in 0..ROUNDS {
                for page in round * PAGES..(round + 1) * PAGES {
                    store(cpu, OTHER + page % FRAMES * PAGE, page);
                }
                (0..PAGES).for_each(|page| store(cpu, AT + page * PAGE, page));
                handled.protect(AT, all, true).unwrap();
                let is_protected = |page| space.page_state(AT + page * PAGE).reports_writes;
                let of_round = (0..PAGES).filter(|&page| !is_protected(page)).count();
                lost.fetch_add(of_round as u64, Ordering::Relaxed);
                handled.protect(AT, all, false).unwrap();
            }
            space.close_userfault(&handled.to);
            space.munmap(AT, all).unwrap();
        });
    });
    verify_and_destroy(space, before);
    // On no CPU: the other one waits for this one's flushes.
    assert_eq!(lost.into_inner(), 0, "pages are not protected");
}
