//! Programs that use more memory than there is, with and without a thread that reclaims in the background. Each page
//! has a value that only its writer changes, so that a lost or stale page is seen.

use std::sync::atomic::{AtomicBool, Ordering};

use faultless_mm::{Counter, Errno, Policy, flags};
use faultless_soft::{Options, Soft, SoftCpu, SoftMemory, SoftSpace};
use faultless_sync::Wait;
use faultless_tests::random::{Numbers, seed};
use faultless_tests::{available, verify_and_destroy};

use super::swap::{Store, swap_on};

const PAGE: u64 = 4096;
const AT: u64 = 1 << 36;
pub const RW: u32 = 3;
pub const ANON: u32 = flags::PRIVATE | flags::ANONYMOUS | flags::FIXED | flags::NORESERVE;
/// Frames of the machine.
pub const FRAMES: u64 = 2048;

/// A machine of 8 MiB that reclaims.
pub fn machine(cpus: usize) -> (&'static SoftMemory, &'static Store) {
    let memory = Soft::start(Options {
        cpus,
        memory: FRAMES * PAGE,
        check: true,
        reclaims: true,
        ..Options::default()
    })
    .unwrap();
    let store = swap_on(memory);
    (memory, store)
}

pub fn space(memory: &'static SoftMemory, policy: Policy) -> SoftSpace {
    SoftCpu::attend(memory, 0, || Soft::space(memory, policy)).unwrap()
}

/// Reclaims on the machine's last CPU, whenever frames are short, until `stop`.
fn in_background(memory: &'static SoftMemory, stop: &AtomicBool) {
    let frames = memory.machine().allocator();
    let cpu = memory.cpus().len() as u32 - 1;
    while !stop.load(Ordering::Relaxed) {
        let seen = frames.shortage().load(Ordering::Relaxed);
        if seen != 1 {
            memory.machine().park(frames.shortage(), seen);
            continue;
        }
        let is_enough = SoftCpu::attend(memory, cpu, || memory.reclaim_in_background());
        frames.end_shortage(is_enough);
    }
}

/// Runs `work` with a thread that reclaims.
fn with_background(memory: &'static SoftMemory, work: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reclaiming = scope.spawn(|| in_background(memory, &stop));
        work();
        stop.store(true, Ordering::Relaxed);
        let word = memory.machine().allocator().shortage();
        // Again and again: the thread may be about to clear the word.
        while !reclaiming.is_finished() {
            word.store(1, Ordering::Relaxed);
            memory.machine().wake(word, 1);
            std::thread::yield_now();
        }
    });
}

fn word(page: u64) -> u64 {
    AT + page * PAGE
}

/// Writes twice as many pages as there is memory, and reads them again, in order.
fn twice_the_memory(cpu: &SoftCpu<'_>) {
    let pages = 2 * FRAMES;
    assert_eq!(cpu.space().mmap(AT, pages * PAGE, RW, ANON), Ok(AT));
    (0..pages).for_each(|page| cpu.store(word(page), page + 1).unwrap());
    for _ in 0..2 {
        (0..pages).for_each(|page| assert_eq!(cpu.load(word(page)), Ok(page + 1)));
    }
}

#[test]
fn twice_the_memory_runs_to_the_end() {
    for &policy in Policy::ALL {
        let (memory, store) = machine(1);
        let before = available(memory);
        let space = space(memory, policy);
        SoftCpu::run(&space, 0, twice_the_memory);
        assert!(memory.total(Counter::SwapOut) >= 3 * FRAMES);
        assert_eq!(
            memory.total(Counter::StealDirect),
            memory.total(Counter::SwapOut)
        );
        verify_and_destroy(space, before);
        assert_eq!(store.used(), 0, "slots were lost");
    }
}

#[test]
fn a_thread_in_the_background_reclaims_first() {
    let (memory, store) = machine(2);
    let before = available(memory);
    let space = space(memory, Policy::Speculative);
    with_background(memory, || SoftCpu::run(&space, 0, twice_the_memory));
    assert!(memory.total(Counter::StealBackground) > 0);
    let faults = memory.total(Counter::Faults);
    let speculative = memory.total(Counter::Spf);
    assert_eq!(faults, speculative, "a fault has fallen back");
    verify_and_destroy(space, before);
    assert_eq!(store.used(), 0, "slots were lost");
}

/// Pages that are used stay, beside ones that are not.
#[test]
fn pages_in_use_stay() {
    let (memory, _) = machine(1);
    let before = available(memory);
    let space = space(memory, Policy::Speculative);
    SoftCpu::run(&space, 0, |cpu| {
        let (hot, pages) = (FRAMES / 4, 5 * FRAMES / 2);
        cpu.space().mmap(AT, pages * PAGE, RW, ANON).unwrap();
        (0..hot).for_each(|page| cpu.store(word(page), 1).unwrap());
        assert_eq!(memory.total(Counter::SwapIn), 0);
        for page in hot..pages {
            cpu.store(word(page), 1).unwrap();
            // Each hot page is used several times in a generation.
            cpu.load(word(page * 7 % hot)).unwrap();
            cpu.load(word(page * 13 % hot)).unwrap();
        }
        let came_back = memory.total(Counter::SwapIn);
        assert!(came_back < hot, "{came_back} swap-ins of {hot} hot pages");
    });
    verify_and_destroy(space, before);
}

/// Threads count up in pages of their own, in twice the memory, beside the sweep.
fn counts_go_up(policy: Policy) {
    const WRITERS: u64 = 3;
    let (memory, store) = machine(WRITERS as usize + 1);
    let before = available(memory);
    let space = space(memory, policy);
    let pages = FRAMES * 3 / 2;
    SoftCpu::attend(memory, 0, || space.mmap(AT, pages * PAGE, RW, ANON)).unwrap();
    let seed = seed();
    with_background(memory, || {
        std::thread::scope(|scope| {
            for writer in 0..WRITERS {
                let space = &space;
                scope.spawn(move || {
                    SoftCpu::run(space, writer as u32, |cpu| {
                        let mut numbers = Numbers(seed ^ writer);
                        let mut counts = vec![0; (pages / WRITERS) as usize];
                        for _ in 0..20_000 {
                            let own = numbers.below(pages / WRITERS);
                            let at = word(own * WRITERS + writer);
                            let count = &mut counts[own as usize];
                            assert_eq!(cpu.load(at), Ok(*count), "page {own} of {writer}");
                            *count += 1;
                            cpu.store(at, *count).unwrap();
                        }
                    });
                });
            }
        });
    });
    assert!(memory.total(Counter::SwapIn) > 0);
    verify_and_destroy(space, before);
    assert_eq!(store.used(), 0, "slots were lost");
}

#[test]
fn threads_beside_the_sweep_lose_nothing() {
    Policy::ALL.iter().for_each(|&policy| counts_go_up(policy));
}

/// Operations on mappings need memory for the core's own objects. They do not take what reclaim needs to go on.
#[test]
fn operations_at_the_watermark_leave_reclaim_what_it_needs() {
    let (memory, _) = machine(1);
    let before = available(memory);
    let space = space(memory, Policy::Speculative);
    SoftCpu::run(&space, 0, |cpu| {
        let pages = 2 * FRAMES;
        cpu.space().mmap(AT, pages * PAGE, RW, ANON).unwrap();
        (0..pages).for_each(|page| cpu.store(word(page), page).unwrap());
        let mut failures = 0;
        for page in (0..pages).step_by(2) {
            // As a port does.
            while let Err(error) = cpu.space().mprotect(word(page), PAGE, 1) {
                assert_eq!(error, Errno::ENOMEM);
                assert!(memory.reclaim_some(), "nothing can be reclaimed");
                failures += 1;
            }
        }
        assert!(failures > 0, "memory was not short");
        (0..pages).for_each(|page| assert_eq!(cpu.load(word(page)), Ok(page)));
    });
    verify_and_destroy(space, before);
}
