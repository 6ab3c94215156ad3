//! Timed sleeps, and the end of a slice.
//!
//! Each CPU keeps the threads that began a timed sleep there, in the order of their deadlines, under a lock.
//! Its timer is set for the first deadline or for the end of the slice, whichever is sooner. Without either
//! it is not set: a CPU with one computing thread is not interrupted.

use core::cell::Cell;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::thread::{Thread, Work};
use super::{SLICE, queue, wake};
use crate::arch::percpu::{self, MAX_CPUS};
use crate::arch::{self, time};
use crate::sync::SpinLock;

/// A thread's entry in a list of sleepers; written under the list's lock.
pub struct Timer {
    deadline: Cell<u64>,
    next: Cell<*const Thread>,
    armed: Cell<bool>,
    /// The CPU of the list that it is in; written by the thread itself.
    cpu: AtomicU32,
}

impl Timer {
    pub const fn new() -> Self {
        Self {
            deadline: Cell::new(0),
            next: Cell::new(core::ptr::null()),
            armed: Cell::new(false),
            cpu: AtomicU32::new(0),
        }
    }
}

struct Sleepers {
    first: *const Thread,
}

// SAFETY: Threads are static; links are used under the lock only.
unsafe impl Send for Sleepers {}

struct PerCpuTimer {
    sleepers: SpinLock<Sleepers>,
    /// The first deadline; `u64::MAX` for none.
    first: AtomicU64,
    /// When the running thread's slice ends; 0 if no other thread waits for the CPU.
    slice_end: AtomicU64,
    /// The time that the hardware is set for; `u64::MAX` for none.
    programmed: AtomicU64,
}

static TIMERS: [PerCpuTimer; MAX_CPUS] = [const {
    PerCpuTimer {
        sleepers: SpinLock::new(Sleepers {
            first: core::ptr::null(),
        }),
        first: AtomicU64::new(u64::MAX),
        slice_end: AtomicU64::new(0),
        programmed: AtomicU64::new(u64::MAX),
    }
}; MAX_CPUS];

/// Adds the current thread to the sleepers, before it sleeps.
pub fn arm(thread: &'static Thread, deadline: u64) {
    let cpu = percpu::cpu_number();
    let timer = &TIMERS[cpu as usize];
    let mut sleepers = timer.sleepers.lock();
    thread.timer.cpu.store(cpu, Ordering::Relaxed);
    thread.timer.deadline.set(deadline);
    thread.timer.armed.set(true);
    let mut previous: Option<&Thread> = None;
    let mut at = sleepers.first;
    // SAFETY: Listed threads are alive; the lock is held.
    while let Some(other) = unsafe { at.as_ref() } {
        if other.timer.deadline.get() > deadline {
            break;
        }
        (previous, at) = (Some(other), other.timer.next.get());
    }
    thread.timer.next.set(at);
    match previous {
        Some(previous) => previous.timer.next.set(thread),
        None => {
            sleepers.first = thread;
            timer.first.store(deadline, Ordering::Relaxed);
        }
    }
}

/// Removes the thread from the sleepers, if it is still there.
pub fn disarm(thread: &'static Thread) {
    let timer = &TIMERS[thread.timer.cpu.load(Ordering::Relaxed) as usize];
    let mut sleepers = timer.sleepers.lock();
    if !thread.timer.armed.get() {
        return;
    }
    thread.timer.armed.set(false);
    let next = thread.timer.next.get();
    let mut previous: Option<&Thread> = None;
    let mut at = sleepers.first;
    while !core::ptr::eq(at, thread) {
        // SAFETY: Listed threads are alive; the lock is held; the thread is listed.
        let Some(other) = (unsafe { at.as_ref() }) else {
            return;
        };
        (previous, at) = (Some(other), other.timer.next.get());
    }
    match previous {
        Some(previous) => previous.timer.next.set(next),
        None => set_first(timer, &mut sleepers, next),
    }
}

fn set_first(timer: &PerCpuTimer, sleepers: &mut Sleepers, first: *const Thread) {
    sleepers.first = first;
    // SAFETY: Listed threads are alive.
    let deadline = unsafe { first.as_ref() }.map_or(u64::MAX, |first| first.timer.deadline.get());
    timer.first.store(deadline, Ordering::Relaxed);
}

/// Handles the timer interrupt: wakes threads that are due, ends the slice if it is over.
pub fn interrupt() {
    let timer = &TIMERS[percpu::cpu_number() as usize];
    let now = time::now();
    timer.programmed.store(u64::MAX, Ordering::Relaxed);
    if timer.first.load(Ordering::Relaxed) <= now {
        let mut sleepers = timer.sleepers.lock();
        // SAFETY: Listed threads are alive; the lock is held.
        while let Some(thread) = unsafe { sleepers.first.as_ref() } {
            if thread.timer.deadline.get() > now {
                break;
            }
            thread.timer.armed.set(false);
            set_first(timer, &mut sleepers, thread.timer.next.get());
            wake(thread);
        }
    }
    let slice_end = timer.slice_end.load(Ordering::Relaxed);
    if slice_end != 0 && slice_end <= now {
        timer.slice_end.store(0, Ordering::Relaxed);
        if let Some(thread) = percpu::current() {
            thread.add_work(Work::RESCHEDULE);
        }
    }
    program();
}

/// Begins the slice of a thread that was just switched to.
pub fn begin_slice() {
    TIMERS[percpu::cpu_number() as usize]
        .slice_end
        .store(0, Ordering::Relaxed);
}

/// The length of a nap in nanoseconds.
const NAP: u64 = 30_000;

/// Runs `f`, which does not sleep, with interrupts off even in long waits. For callers of the memory core that
/// may hold the kernel's own spin locks.
pub fn without_naps<R>(f: impl FnOnce() -> R) -> R {
    let stays_awake = &percpu::this().stays_awake;
    stays_awake.store(true, Ordering::Relaxed);
    let result = f();
    stays_awake.store(false, Ordering::Relaxed);
    result
}

/// Halts for a moment in the middle of a long wait, unless the CPU is in [`without_naps`]. Interrupts are on
/// meanwhile. Their handlers take the kernel's own spin locks, so the caller must hold none.
#[cold]
pub fn nap() {
    if percpu::this().stays_awake.load(Ordering::Relaxed) {
        return;
    }
    let timer = &TIMERS[percpu::cpu_number() as usize];
    let end = time::now() + NAP;
    if end < timer.programmed.load(Ordering::Relaxed) {
        timer.programmed.store(end, Ordering::Relaxed);
        time::set_deadline(end);
    }
    arch::wait_for_interrupt();
}

/// Sets this CPU's timer for the next event.
pub fn program() {
    let this = percpu::cpu_number();
    let timer = &TIMERS[this as usize];
    let mut deadline = timer.first.load(Ordering::Relaxed);
    let runs = percpu::current().is_some_and(|thread| thread.id() != 0);
    if runs && queue::length(this) != 0 {
        let mut end = timer.slice_end.load(Ordering::Relaxed);
        if end == 0 {
            end = time::now() + SLICE;
            timer.slice_end.store(end, Ordering::Relaxed);
        }
        deadline = deadline.min(end);
    }
    // An interrupt that comes too early is cheaper than setting the device at every switch: it
    // finds nothing due and sets the device again.
    if deadline < timer.programmed.load(Ordering::Relaxed) {
        timer.programmed.store(deadline, Ordering::Relaxed);
        time::set_deadline(deadline);
    }
}
