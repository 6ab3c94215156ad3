//! The gate that releases all threads at the same time.
//!
//! A thread spins a while before it yields: threads that the scheduler wakes would arrive one after
//! the other, without a race. `opened` counts the openings.

use std::hint;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::system::{Stop, Thread};

/// A gate for a fixed number of threads.
pub struct Gate {
    threads: usize,
    waiting: Line,
    opened: Line,
}

/// A counter in cache lines of its own.
#[repr(align(128))]
struct Line(AtomicUsize);

/// Spins before a yield.
const SPINS: u32 = 200;

impl Gate {
    /// A gate for `threads` threads.
    pub fn new(threads: usize) -> Self {
        Self {
            threads,
            waiting: Line(AtomicUsize::new(0)),
            opened: Line(AtomicUsize::new(0)),
        }
    }

    /// Waits until all threads have arrived.
    pub fn pass(&self, thread: &Thread<'_>) -> Result<(), Stop> {
        let (waiting, opened) = (&self.waiting.0, &self.opened.0);
        let before = opened.load(Ordering::Relaxed);
        // Acquire and release: everything that any thread did before the gate is visible to all threads
        // behind it.
        if waiting.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            waiting.store(0, Ordering::Relaxed);
            opened.store(before + 1, Ordering::Release);
            return Ok(());
        }
        let mut spins = 0_u32;
        while opened.load(Ordering::Acquire) == before {
            spins = spins.wrapping_add(1);
            if spins.is_multiple_of(SPINS) {
                thread.yield_now()?;
            } else {
                hint::spin_loop();
            }
        }
        Ok(())
    }
}
