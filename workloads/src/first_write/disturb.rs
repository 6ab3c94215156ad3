//! Threads that toggle the protection of the page in the middle until the round is over.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use faultless_mm::{PROT_READ, PROT_WRITE};

use super::Shared;
use crate::system::{PAGE, Stop, Thread};

/// Controls the disturbers. Thread 0 ends a round by clearing `disturbing` and waits until all disturbers
/// are in `idle`, so that none accesses an unmapped region.
pub struct Disturbance {
    disturbers: usize,
    disturbing: AtomicBool,
    idle: AtomicUsize,
}

impl Disturbance {
    /// An inactive disturbance by `disturbers` threads.
    pub fn new(disturbers: usize) -> Self {
        Self {
            disturbers,
            disturbing: AtomicBool::new(false),
            idle: AtomicUsize::new(disturbers),
        }
    }

    /// Starts the disturbance.
    pub fn begin(&self) {
        self.disturbing.store(true, Ordering::SeqCst);
    }

    /// Stops the disturbers, and waits until they are idle.
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
