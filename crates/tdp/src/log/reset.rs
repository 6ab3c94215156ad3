//! Resets rings: makes the pages clean that were harvested (KVM: `KVM_RESET_DIRTY_RINGS`).
//!
//! Pages of 64 neighbours that follow each other in a ring are one batch, as they are one word of a bitmap. All rings are flushed
//! for once, at the end. No fault waits for a reset; changes of slots do.
//!
//! *Writes*: what [`crate::log::ring`] says; entries of the pages.
//!
//! *Models*: loom `ring.rs`.

use faultless_sync::{Mutant, WriteGuard, cond_resched, mutant};

use crate::guest::{Guest, GuestMachine, HostSpace};
use crate::log::ring::{DirtyRing, SlotPage};

/// A reset of rings that has begun.
pub struct RingReset<'g, M: GuestMachine, S: HostSpace<M>> {
    guest: &'g Guest<M, S>,
    _changes: WriteGuard<'g, M>,
    has_cleared: bool,
    count: u64,
}

/// Pages of one slot: the number of the first of 64, and a bit for each.
#[derive(Clone, Copy, Default)]
struct Batch {
    slot: u32,
    first: u64,
    bits: u64,
}

impl Batch {
    /// Adds a page, if it is one of these.
    fn add(&mut self, (slot, offset): SlotPage) -> bool {
        let is_one = self.bits == 0 || (self.slot, self.first) == (slot, offset & !63);
        if is_one {
            (self.slot, self.first) = (slot, offset & !63);
            self.bits |= 1 << (offset % 64);
        }
        is_one
    }
}

impl<M: GuestMachine, S: HostSpace<M>> Guest<M, S> {
    /// Begins to reset rings. Until the end no slot changes, and no other reset begins.
    pub fn begin_reset(&self) -> RingReset<'_, M, S> {
        RingReset {
            guest: self,
            _changes: self.changes.write(self.machine()),
            has_cleared: false,
            count: 0,
        }
    }
}

impl<M: GuestMachine, S: HostSpace<M>> RingReset<'_, M, S> {
    /// Frees the places of a ring of this guest that were harvested, up to the first that was not. Their pages are clean when the
    /// reset ends.
    pub fn ring(&mut self, ring: &DirtyRing<'_>) {
        let mut batch = Batch::default();
        // No more than the ring has places, though a vCPU and a program may go on pushing and harvesting.
        for page in core::iter::from_fn(|| ring.take()).take(ring.places()) {
            self.count += 1;
            if !batch.add(page) {
                self.clean(batch);
                batch = Batch::default();
                batch.add(page);
            }
        }
        self.clean(batch);
    }

    /// Takes write access to pages away. Slot and pages may be anything.
    fn clean(&mut self, batch: Batch) {
        let slots = self.guest.slots_now();
        let slot = slots.by_number(batch.slot).filter(|slot| slot.logs());
        if let Some(slot) = slot.filter(|slot| batch.bits != 0 && batch.first < slot.pages.len()) {
            let cleared = &mut self.has_cleared;
            self.guest.take_word(slot, batch.first, batch.bits, cleared);
        }
        cond_resched(self.guest.machine());
    }

    /// Ends the reset. Returns how many places are free.
    pub fn finish(self) -> u64 {
        self.count
    }
}

impl<M: GuestMachine, S: HostSpace<M>> Drop for RingReset<'_, M, S> {
    /// Stores to the pages fault from now on.
    fn drop(&mut self) {
        if !mutant(Mutant::LogClearedWithoutFlush) {
            self.guest.flush_with_others(self.has_cleared);
        }
    }
}
