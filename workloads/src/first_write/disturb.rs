//! Threads that flip the protection of the page in the middle until the round is over.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use faultless_mm::{PROT_READ, PROT_WRITE};

use super::Shared;
use crate::system::{PAGE, Stop, Thread};

/// When to disturb. Thread 0 ends a round by taking `disturbing` away and waits in `idle` for the
/// disturbers, so that none touches a region that is gone.
pub struct Disturbance {
    disturbers: usize,
    disturbing: AtomicBool,
    idle: AtomicUsize,
}

impl Disturbance {
    /// None yet, by so many threads.
    pub fn new(disturbers: usize) -> Self {
        Self {
            disturbers,
            disturbing: AtomicBool::new(false),
            idle: AtomicUsize::new(disturbers),
        }
    }

    /// Lets the threads disturb.
    pub fn begin(&self) {
        self.disturbing.store(true, Ordering::SeqCst);
    }

    /// Makes them stop, and waits until they have.
    pub fn end(&self, thread: &Thread<'_>) -> Result<(), Stop> {
        self.disturbing.store(false, Ordering::SeqCst);
        while self.idle.load(Ordering::SeqCst) != self.disturbers {
            thread.yield_now()?;
        }
        Ok(())
    }
}

/// Disturbs until the program ends.
pub fn run(thread: &Thread<'_>, shared: &Shared) -> Result<(), Stop> {
    let Disturbance {
        disturbing, idle, ..
    } = &shared.disturbance;
    while !shared.stop.load(Ordering::SeqCst) {
        if !disturbing.load(Ordering::SeqCst) {
            thread.yield_now()?;
            continue;
        }
        idle.fetch_sub(1, Ordering::SeqCst);
        while disturbing.load(Ordering::SeqCst) {
            let at = shared.region.load(Ordering::Relaxed) + shared.disturbed() * PAGE;
            for protection in [PROT_READ, PROT_READ | PROT_WRITE] {
                let result = thread.call(|space| space.mprotect(at, PAGE, protection))?;
                thread.or_die("mprotect", result)?;
            }
        }
        idle.fetch_add(1, Ordering::SeqCst);
    }
    Ok(())
}
