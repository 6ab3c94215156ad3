//! Sleeping, and waiting for each other.
//!
//! A process has one bell. Whoever waits for something sleeps beside it and looks again whenever
//! it rings; what rings it is rare: a barrier that opens, the process' end.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use super::thread::{Stop, Thread};

/// Wakes everybody who waits for something.
#[derive(Default)]
pub struct Bell {
    lock: Mutex<()>,
    condition: Condvar,
}

impl Bell {
    /// Lets everybody look again.
    pub fn ring(&self) {
        // With the lock, or one who is about to sleep would miss it.
        let _lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.condition.notify_all();
    }

    /// Sleeps until `done`, or until `deadline`.
    pub fn wait(&self, deadline: Option<Instant>, mut done: impl FnMut() -> bool) {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while !done() {
            let Some(deadline) = deadline else {
                lock = self
                    .condition
                    .wait(lock)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            let woken = self.condition.wait_timeout(lock, left);
            lock = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A point that threads pass together, over and over.
pub struct Barrier {
    threads: usize,
    arrived: AtomicUsize,
    passed: AtomicUsize,
}

impl Barrier {
    /// A barrier for so many threads.
    pub fn new(threads: usize) -> Self {
        Self {
            threads,
            arrived: AtomicUsize::new(0),
            passed: AtomicUsize::new(0),
        }
    }

    /// Waits until all threads are here.
    pub fn wait(&self, thread: &Thread<'_>) -> Result<(), Stop> {
        let before = self.passed.load(Ordering::Relaxed);
        // Acquire and release: what each did before the barrier, each sees behind it.
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed);
            self.passed.store(before + 1, Ordering::Release);
            thread.process().bell.ring();
            return Ok(());
        }
        thread.wait_until(None, || self.passed.load(Ordering::Acquire) != before)
    }
}
