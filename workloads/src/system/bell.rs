//! Sleeping, and barriers between threads.
//!
//! A process has one bell. Every waiting thread sleeps on it and checks its condition again whenever
//! it rings. It rings rarely: when a barrier opens, and at the end of the process.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use super::thread::{Stop, Thread};

/// Wakes all waiting threads.
#[derive(Default)]
pub struct Bell {
    lock: Mutex<()>,
    condition: Condvar,
}

impl Bell {
    /// Wakes all waiters, so that they check their conditions again.
    pub fn ring(&self) {
        // Under the lock, because a thread between its check and its sleep would miss the wake-up.
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

/// A reusable barrier.
pub struct Barrier {
    threads: usize,
    arrived: AtomicUsize,
    passed: AtomicUsize,
}

impl Barrier {
    /// A barrier for `threads` threads.
    pub fn new(threads: usize) -> Self {
        Self {
            threads,
            arrived: AtomicUsize::new(0),
            passed: AtomicUsize::new(0),
        }
    }

    /// Waits until all threads have arrived.
    pub fn wait(&self, thread: &Thread<'_>) -> Result<(), Stop> {
        let before = self.passed.load(Ordering::Relaxed);
        // Acquire and release: everything that a thread did before the barrier is visible to all threads behind it.
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed);
            self.passed.store(before + 1, Ordering::Release);
            thread.process().bell.ring();
            return Ok(());
        }
        thread.wait_until(None, || self.passed.load(Ordering::Acquire) != before)
    }
}
