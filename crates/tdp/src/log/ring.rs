//! A dirty ring: which pages one vCPU has written, in the order of its first stores (KVM: `KVM_CAP_DIRTY_LOG_RING`).
//!
//! The ring is an array in memory that the hypervisor also has, or gives to a program. Each place goes around:
//!
//! | flags | state | next step |
//! | --- | --- | --- |
//! | 0 | free | the vCPU fills it with a page: *push* |
//! | [`DIRTY`] | a page that was written | the hypervisor reads it and sets [`RESET`]: *harvest* |
//! | [`RESET`] | harvested | [`crate::Guest::begin_reset`] frees it and makes the page clean |
//!
//! Invariants:
//! * **An entry that allows stores to a logged page is in a ring.** The fault pushes the page under the claim of its entry, after
//!   it has validated the slot, and publishes then. So the page is in the ring before any vCPU can store to it, and a reset that
//!   finds the page waits for the claim and takes write access away behind it.
//! * A reset frees a place before it makes the page clean, and flushes before it ends. A store after that faults, and the page
//!   is pushed again; one before that is in memory when the reset ends. The hypervisor reads pages after the reset.
//! * A page can be in several places: a zapped page is pushed again when it is mapped for a store. No zap takes one out.
//! * One thread at a time pushes, and one resets. Neither waits for the other, or for a lock.
//! * The memory is not trusted. Of what is found there, a flag says that a place may go on, and slot and offset are looked up
//!   again. The two counts that say which places are in use are not there. A program that writes something else into its
//!   ring loses marks of its own log, and nothing else.
//!
//! *Writes*: a place and the count of pushes, by a fault that makes a page dirty; a place and the other count, by a reset.
//!
//! *Models*: loom `ring.rs`.

use faultless_mm::Errno;
use faultless_sync::atomic::{AtomicU32, AtomicU64, Ordering};
use faultless_sync::{Mutant, Padded, mutant};

/// A page was written (`KVM_DIRTY_GFN_F_DIRTY`).
pub const DIRTY: u32 = 1 << 0;
/// It was harvested (`KVM_DIRTY_GFN_F_RESET`).
pub const RESET: u32 = 1 << 1;

/// A place of a ring (`struct kvm_dirty_gfn`). Memory of zeros is one that is free.
#[repr(C)]
#[derive(Debug, Default)]
pub struct DirtyPage {
    flags: AtomicU32,
    /// The number of the slot.
    slot: AtomicU32,
    /// The number of the page in the slot.
    offset: AtomicU64,
}

/// A page in a ring: the number of its slot, and its own number there.
pub type SlotPage = (u32, u64);

/// A ring has no place that is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingFull;

/// The ring of a vCPU.
#[derive(Debug)]
pub struct DirtyRing<'m> {
    pages: &'m [DirtyPage],
    /// Places that are left when the ring is nearly full.
    reserved: u64,
    /// Pages that were ever pushed.
    pushed: Padded<AtomicU64>,
    /// Those of them that were reset.
    reset: Padded<AtomicU64>,
}

impl<'m> DirtyRing<'m> {
    /// Makes a ring over free places. It counts as nearly full when `reserved` places are left.
    ///
    /// # Errors
    /// `EINVAL`: the number of places is no power of two, or not larger than `reserved`.
    pub fn new(pages: &'m [DirtyPage], reserved: u32) -> Result<Self, Errno> {
        if !pages.len().is_power_of_two() || pages.len() <= reserved as usize {
            return Err(Errno::EINVAL);
        }
        Ok(Self {
            pages,
            reserved: u64::from(reserved),
            pushed: Padded(AtomicU64::new(0)),
            reset: Padded(AtomicU64::new(0)),
        })
    }

    /// How many places there are.
    pub(crate) fn places(&self) -> usize {
        self.pages.len()
    }

    fn place(&self, number: u64) -> &'m DirtyPage {
        &self.pages[number as usize & (self.pages.len() - 1)]
    }

    /// Places that are not free.
    #[inline]
    fn used(&self) -> u64 {
        let pushed = self.pushed.load(Ordering::Relaxed);
        // Acquire: the reset has read a place before it counted it.
        pushed.wrapping_sub(self.reset.load(Ordering::Acquire))
    }

    /// Whether so few places are left that the vCPU should leave its guest. To be asked by its thread, before each entry.
    #[inline]
    pub fn is_nearly_full(&self) -> bool {
        self.used() >= self.pages.len() as u64 - self.reserved
    }

    /// Pushes a page. Called by one thread at a time, that of the vCPU.
    pub(crate) fn push(&self, (slot, offset): SlotPage) -> Result<(), RingFull> {
        if self.used() >= self.pages.len() as u64 {
            return Err(RingFull);
        }
        let pushed = self.pushed.load(Ordering::Relaxed);
        let place = self.place(pushed);
        // Before the flag: a reset of the page that is harvested at once finds it counted.
        self.pushed.store(pushed + 1, Ordering::Relaxed);
        if mutant(Mutant::FlagBeforePage) {
            place.flags.store(DIRTY, Ordering::Release);
        }
        place.slot.store(slot, Ordering::Relaxed);
        place.offset.store(offset, Ordering::Relaxed);
        // Release: the flag shows the page. Partner: the harvest.
        place.flags.store(DIRTY, Ordering::Release);
        Ok(())
    }

    /// Harvests the next page, as a program does in its own mapping of the ring. `next` counts the pages that were harvested, from 0.
    /// Called by one thread at a time.
    pub fn harvest(&self, next: &mut u64) -> Option<SlotPage> {
        let place = self.place(*next);
        if place.flags.load(Ordering::Acquire) != DIRTY {
            return None;
        }
        let page = place.page();
        // Release: the place is free only after it was read.
        place.flags.store(RESET, Ordering::Release);
        *next += 1;
        Some(page)
    }

    /// Frees the next place that was harvested, and returns its page. Called by one thread at a time.
    pub(crate) fn take(&self) -> Option<SlotPage> {
        let number = self.reset.load(Ordering::Relaxed);
        let place = self.place(number);
        // Acquire: the page was pushed, and counted, before it was harvested.
        let is_harvested = place.flags.load(Ordering::Acquire) & RESET != 0;
        // Of a program that sets the flag without a harvest, only pages that were pushed.
        if !is_harvested || number == self.pushed.load(Ordering::Relaxed) {
            return None;
        }
        if mutant(Mutant::PlaceFreedEarly) {
            self.reset.store(number + 1, Ordering::Release);
        }
        let page = place.page();
        place.flags.store(0, Ordering::Relaxed);
        // Release: pushed into only after it was read, and after its flag is clear.
        self.reset.store(number + 1, Ordering::Release);
        Some(page)
    }
}

impl DirtyPage {
    fn page(&self) -> SlotPage {
        let slot = self.slot.load(Ordering::Relaxed);
        (slot, self.offset.load(Ordering::Relaxed))
    }
}
