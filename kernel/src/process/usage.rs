//! Resource usage of processes and threads: time, faults, switches.
//!
//! Nothing is counted per fault or per call. When a thread leaves its CPU, it is charged with what the CPU's
//! clock and counters have added since the thread came. So all time counts as the program's own.

use core::sync::atomic::{AtomicU64, Ordering};

use super::{Process, UserSpace};
use crate::arch::percpu::{self, MAX_CPUS};
use crate::arch::time;
use crate::memory::{self, Counter, Counters};
use crate::sched::thread::Thread;

/// Sums of what was used.
#[derive(Clone, Copy, Default)]
pub struct Usage {
    /// Nanoseconds on a CPU.
    pub ran: u64,
    pub minor_faults: u64,
    pub major_faults: u64,
    /// Context switches because it slept, and because its slice was over.
    pub slept: u64,
    pub preempted: u64,
    /// The most pages it had in memory at once.
    pub most_pages: u64,
}

impl Usage {
    /// Adds another sum.
    pub fn add(&mut self, other: &Usage) {
        self.ran += other.ran;
        self.minor_faults += other.minor_faults;
        self.major_faults += other.major_faults;
        self.slept += other.slept;
        self.preempted += other.preempted;
        self.most_pages = self.most_pages.max(other.most_pages);
    }
}

/// Usage of a thread; written by the CPU that runs it, read by any CPU.
#[derive(Default)]
pub struct ThreadUsage {
    ran: AtomicU64,
    /// Resolved faults, major ones included.
    faults: AtomicU64,
    major_faults: AtomicU64,
    pub slept: AtomicU64,
    pub preempted: AtomicU64,
}

impl ThreadUsage {
    pub const fn new() -> Self {
        Self {
            ran: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            major_faults: AtomicU64::new(0),
            slept: AtomicU64::new(0),
            preempted: AtomicU64::new(0),
        }
    }

    /// The usage charged so far.
    pub fn get(&self) -> Usage {
        let major_faults = self.major_faults.load(Ordering::Relaxed);
        Usage {
            ran: self.ran.load(Ordering::Relaxed),
            // A charge to another thread may be in progress.
            minor_faults: self
                .faults
                .load(Ordering::Relaxed)
                .saturating_sub(major_faults),
            major_faults,
            slept: self.slept.load(Ordering::Relaxed),
            preempted: self.preempted.load(Ordering::Relaxed),
            most_pages: 0,
        }
    }
}

/// A CPU's clock and counters when its thread was last charged.
struct Since {
    time: AtomicU64,
    faults: AtomicU64,
    major_faults: AtomicU64,
}

static SINCE: [Since; MAX_CPUS] = [const {
    Since {
        time: AtomicU64::new(0),
        faults: AtomicU64::new(0),
        major_faults: AtomicU64::new(0),
    }
}; MAX_CPUS];

/// Adds without a locked instruction, because only this CPU writes. `more` may be negative: a fault that
/// slept may have begun on another CPU, the thread of which was charged with it.
fn add(to: &AtomicU64, more: u64) {
    let sum = to.load(Ordering::Relaxed).wrapping_add(more);
    to.store(sum, Ordering::Relaxed);
}

/// Faults that were resolved on a CPU. As on Linux, other faults are not charged.
fn resolved(counters: &Counters) -> u64 {
    let [refused, failed] = [Counter::FaultsRefused, Counter::FaultsFailed];
    counters
        .get(Counter::Faults)
        .wrapping_sub(counters.get(refused))
        .wrapping_sub(counters.get(failed))
}

/// Charges the thread that runs on this CPU with the usage since the last call here.
pub fn charge(thread: &Thread) {
    let since = &SINCE[percpu::cpu_number() as usize];
    let counters = memory::this_cpu_counters();
    let move_on = |mark: &AtomicU64, now: u64| {
        let before = mark.load(Ordering::Relaxed);
        mark.store(now, Ordering::Relaxed);
        now.wrapping_sub(before)
    };
    add(&thread.usage.ran, move_on(&since.time, time::now()));
    add(
        &thread.usage.faults,
        move_on(&since.faults, resolved(counters)),
    );
    add(
        &thread.usage.major_faults,
        move_on(&since.major_faults, counters.get(Counter::MajorFaults)),
    );
}

/// Nanoseconds that a thread has run, up to now if it runs on a CPU.
pub fn time_of(thread: &Thread) -> u64 {
    loop {
        let charged = thread.usage.ran.load(Ordering::Acquire);
        let cpu = thread.cpu.load(Ordering::Relaxed);
        let runs = || core::ptr::eq(percpu::of(cpu).current.load(Ordering::Acquire), thread);
        let since = SINCE[cpu as usize].time.load(Ordering::Acquire);
        let more = if runs() {
            time::now().saturating_sub(since)
        } else {
            0
        };
        // If it was charged meanwhile, `since` may be from before or after that.
        if thread.usage.ran.load(Ordering::Acquire) == charged {
            return charged + more;
        }
    }
}

/// Nanoseconds that a process's threads have run.
pub fn of_time(process: &Process) -> u64 {
    let threads = process.threads.lock();
    let ended = process.usage.lock().ran;
    threads.iter().map(|thread| time_of(thread)).sum::<u64>() + ended
}

/// Keeps the peak of an address space that a process leaves.
pub fn leave_memory(process: &Process, space: &UserSpace) {
    let mut usage = process.usage.lock();
    usage.most_pages = usage.most_pages.max(space.rss().peak);
}

/// Usage of a thread; memory is that of its whole process.
pub fn of_thread(process: &Process, thread: &Thread) -> Usage {
    let before = process.usage.lock().most_pages;
    let now = process.space().map_or(0, |space| space.rss().peak);
    Usage {
        most_pages: before.max(now),
        ..thread.usage.get()
    }
}

/// Usage of a process, its ended threads included. Running threads count up to when they last left a CPU.
pub fn of(process: &Process) -> Usage {
    let mut sum = *process.usage.lock();
    process.for_each_thread(&mut |thread| sum.add(&thread.usage.get()));
    if let Some(space) = process.space() {
        sum.most_pages = sum.most_pages.max(space.rss().peak);
    }
    sum
}
