//! Chooses the CPU on which a runnable thread waits.
//!
//! A woken thread returns to its last CPU, where its caches are warm, unless another CPU is idle or its queue
//! is shorter by two. A thread that computes never wakes up, so it moves at the end of its slice: to any queue
//! shorter than the one that it would join. With more such threads than CPUs the longer queue wanders, and no
//! thread gets ahead: three threads on two CPUs run two thirds of the time each.
//!
//! Lengths are read without the queues' locks. A stale length puts a thread into a suboptimal queue, until
//! the end of its next slice. A CPU that becomes idle meanwhile is found by a second look, once the thread is
//! in its queue (`sched::send`).

use core::sync::atomic::Ordering;

use super::thread::Thread;
use super::{idle, queue};
use crate::arch::percpu;

/// The CPUs that a thread may run on, among those that run.
pub fn allowed(thread: &Thread) -> u64 {
    thread.affinity.load(Ordering::Relaxed) & u64::MAX >> (64 - percpu::count())
}

/// The CPU for a thread that has become runnable.
pub fn of_woken(thread: &Thread) -> u32 {
    let last = thread.cpu.load(Ordering::Relaxed);
    // Acquire: pairs with the release in `sched::switched`. A stack in use ties it to its CPU.
    if thread.on_cpu.load(Ordering::Acquire) {
        return last;
    }
    let allowed = allowed(thread);
    let idle = idle::CPUS.announced() & allowed;
    if idle & 1 << last != 0 {
        return last;
    }
    if idle != 0 {
        return idle.trailing_zeros();
    }
    if allowed & 1 << last == 0 {
        return shortest(allowed, last).unwrap_or(last);
    }
    shorter(allowed, last, queue::length(last).saturating_sub(1)).unwrap_or(last)
}

/// The CPU for a thread that gives up CPU `this`: another one with fewer than `below` threads in its queue,
/// any other one if it may not stay, or `None`.
pub fn of_leaving(thread: &Thread, this: u32, below: u32) -> Option<u32> {
    let allowed = allowed(thread);
    let others = allowed & !(1 << this);
    if allowed & 1 << this == 0 {
        shortest(others, this)
    } else {
        shorter(others, this, below)
    }
}

fn shorter(cpus: u64, from: u32, below: u32) -> Option<u32> {
    if below == 0 {
        return None;
    }
    shortest(cpus, from).filter(|&cpu| queue::length(cpu) < below)
}

/// Of some CPUs, an idle one or the one with the fewest threads in its queue; of equals, the next
/// one after `from`, so that not all threads meet on the first.
fn shortest(cpus: u64, from: u32) -> Option<u32> {
    let count = percpu::count();
    let idle = idle::CPUS.announced();
    (1..=count)
        .map(|distance| (from + distance) % count)
        .filter(|&cpu| cpus & 1 << cpu != 0)
        .min_by_key(|&cpu| (queue::length(cpu), idle & 1 << cpu == 0))
}
