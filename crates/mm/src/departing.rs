//! Waiting for what leaves address spaces that have mappings of devices.
//!
//! What somebody unmaps is not found any more from the moment at which its slots say so, and is
//! flushed later ([`crate::zapping`]). Who takes a counted page away waits until nothing maps it;
//! a device's pages are not counted. So writers of a space that has, or had, a mapping of a device
//! say that they are at work, from before they change a slot until what they take away is flushed;
//! who has revoked a device, and has gone through its mappings, waits for those who had begun.
//!
//! They are counted in two generations, so that those who come later are not waited for: the
//! generation is changed, and then the old one runs out. A writer may have read the generation just
//! before that, so both are waited for, one after the other. Who has begun before the walk is in one
//! of them.
//!
//! Written lines: one of the two counts, by writers of such spaces alone.

use faultless_sync::atomic::{AtomicU32, Ordering};
use faultless_sync::{Backoff, Flaw, RwLock, flawed};

use crate::machine::Machine;
use crate::memory::Memory;
use crate::space::{AddressSpace, Note};

/// The writers that are at work.
#[derive(Default)]
pub(crate) struct Departing {
    /// Who waits: one at a time, or two would change generations under each other's feet.
    turn: RwLock,
    generation: AtomicU32,
    counts: [AtomicU32; 2],
}

/// That a writer is at work.
pub(crate) struct Departure<'a> {
    count: &'a AtomicU32,
}

impl Drop for Departure<'_> {
    fn drop(&mut self) {
        // Release: the flush comes before what is done once nobody is waited for.
        self.count.fetch_sub(1, Ordering::Release);
    }
}

impl<M: Machine> AddressSpace<M> {
    /// Says that a writer is at work, who has a range and has changed nothing yet; where that
    /// matters. A device that is mapped in the range was noted by whoever had it before.
    pub(crate) fn begin_departure(&self) -> Option<Departure<'static>> {
        if !self.has_note(Note::DEVICES) || flawed(Flaw::DeparturesNotAwaited) {
            return None;
        }
        let departing = self.memory.departing();
        let generation = departing.generation.load(Ordering::Relaxed);
        let count = &departing.counts[generation as usize % 2];
        // No order: whoever sees a slot that is changed afterwards, by its release, sees this.
        count.fetch_add(1, Ordering::Relaxed);
        Some(Departure { count })
    }
}

impl<M: Machine> Memory<M> {
    /// Waits for all who had begun when the caller saw what they had changed.
    pub(crate) fn await_departing(&'static self) {
        let departing = self.departing();
        let _turn = departing.turn.write(self.machine());
        for _ in 0..2 {
            let old = departing.generation.fetch_add(1, Ordering::Relaxed);
            let mut backoff = Backoff::new();
            // Acquire: of the release at the end of a departure.
            while departing.counts[old as usize % 2].load(Ordering::Acquire) != 0 {
                backoff.turn(self.machine());
            }
        }
    }
}
