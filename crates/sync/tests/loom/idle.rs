//! Loom models of a CPU that becomes idle and halts while another CPU queues work.
//!
//! * The idle CPU runs the work: it sees the work, or is interrupted. A halt that nothing ends is a deadlock.
//! * A CPU that was taken for work that another CPU then ran is found again for later work.
//!
//! All interleavings with at most four preemptions.

use crate::model::explore;
use faultless_sync::atomic::{AtomicU32, Ordering};
use faultless_sync::{Cpu, IdleCpus, Mutant, with_flaw};
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;

const IDLE: Cpu = Cpu(0);
const BUSY: Cpu = Cpu(1);

/// Work that either CPU may run.
const FIRST: u32 = 1;
/// The work for which the idle CPU waits.
const LAST: u32 = 2;

#[derive(Default)]
struct Shared {
    cpus: IdleCpus,
    /// The work in the queues.
    queued: AtomicU32,
    /// Whether an interrupt is pending.
    interrupt: Mutex<bool>,
    comes: Condvar,
}

impl Shared {
    fn finds_work(&self) -> bool {
        self.queued.load(Ordering::Relaxed) != 0
    }

    /// Takes work out of the queues. Returns whether it was there.
    fn run(&self, work: u32) -> bool {
        self.queued.fetch_and(!work, Ordering::Relaxed) & work != 0
    }

    fn halt(&self) {
        let mut interrupt = self.interrupt.lock().unwrap();
        while !core::mem::take(&mut *interrupt) {
            interrupt = self.comes.wait(interrupt).unwrap();
        }
    }

    fn interrupt(&self) {
        *self.interrupt.lock().unwrap() = true;
        self.comes.notify_all();
    }

    /// Acts as the idle loop, until it has run the last work.
    fn idle(&self) {
        while !self.run(LAST) {
            self.run(FIRST);
            self.cpus.begin(IDLE);
            self.cpus.begin_polling(IDLE);
            if self.cpus.may_halt(IDLE, || self.finds_work()) {
                self.halt();
            }
            self.cpus.end(IDLE);
        }
    }

    fn queue(&self, work: u32) {
        self.queued.fetch_or(work, Ordering::Relaxed);
    }

    /// Queues work where the busy CPU waits for it, and takes the idle one.
    fn queue_here(&self, work: u32) {
        self.queue(work);
        let taken = self.cpus.take_for(BUSY, 1 << IDLE.0);
        if taken.is_some_and(|taken| taken.needs_interrupt) {
            self.interrupt();
        }
    }

    /// Queues work for the idle CPU, by a choice that was made before.
    fn queue_there(&self, work: u32) {
        self.queue(work);
        if !self.cpus.is_polling(IDLE) {
            self.interrupt();
        }
    }
}

fn idle_beside(busy: fn(&Shared)) {
    explore(Some(4), move || {
        let shared = Arc::new(Shared::default());
        let busy = {
            let shared = shared.clone();
            thread::spawn(move || busy(&shared))
        };
        shared.idle();
        busy.join().unwrap();
    });
}

fn work_for_any() {
    idle_beside(|shared| shared.queue_here(LAST));
}

fn work_for_this() {
    idle_beside(|shared| shared.queue_there(LAST));
}

/// The CPU that queues work runs it itself, and then queues more.
fn work_that_is_gone() {
    idle_beside(|shared| {
        shared.queue_here(FIRST);
        shared.run(FIRST);
        shared.queue_here(LAST);
    });
}

#[test]
fn no_cpu_halts_beside_work() {
    work_for_any();
}

#[test]
fn no_cpu_halts_beside_its_own_work() {
    work_for_this();
}

#[test]
fn a_cpu_that_was_taken_is_found_again() {
    work_that_is_gone();
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_halt_without_fence() {
    with_flaw(Mutant::HaltWithoutFence, work_for_any);
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_halt_beside_own_work_without_fence() {
    with_flaw(Mutant::HaltWithoutFence, work_for_this);
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_queued_without_fence() {
    with_flaw(Mutant::QueuedWithoutFence, work_for_any);
}

#[test]
#[should_panic(expected = "deadlock")]
fn broken_halt_though_taken() {
    with_flaw(Mutant::HaltThoughTaken, work_that_is_gone);
}
