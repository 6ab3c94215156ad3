//! A mapping's own lock: what the policy `vma-lock` holds during a fault, and no other does.
//!
//! Every fault under that policy writes its line twice, which is exactly what the policy
//! costs. Writers do not unlock: a mapping is locked as long as the write hold under
//! which it was locked is the address space's present one (`range.rs`), so that the end
//! of a hold unlocks everything.
//!
//! *Models*: loom `tree/vma_lock.rs`.

use faultless_sync::atomic::{AtomicU32, Ordering, fence};
use faultless_sync::{Backoff, Mutant, Wait, fence_after_rmw, mutant};

/// The lock.
pub(crate) struct VmaLock {
    /// Faults that hold the mapping.
    readers: AtomicU32,
    /// The number of the write hold under which the mapping is locked.
    write_hold: AtomicU32,
}

impl VmaLock {
    /// Held by nobody; no write hold has the number 0.
    pub(crate) fn new() -> Self {
        Self {
            readers: AtomicU32::new(0),
            write_hold: AtomicU32::new(0),
        }
    }

    /// Holds the mapping for a fault, unless a writer has it under `hold`, the
    /// address space's present write hold.
    pub(crate) fn try_read(&self, hold: &AtomicU32) -> Option<VmaRead<'_>> {
        self.readers.fetch_add(1, Ordering::Acquire);
        if !mutant(Mutant::HoldWithoutFence) {
            fence_after_rmw();
        }
        let read = VmaRead(self);
        // The barrier's partner is the fence in `lock_out_readers`: either this
        // reader sees the lock, or the writer sees this reader. Acquire: of the
        // release that ends the write hold, in `MmapLock::end_hold`; and of the
        // one in `lock_out_readers`, because who sees the lock of a write hold must not
        // compare it with the number of the one before.
        if self.write_hold.load(Ordering::Acquire) == hold.load(Ordering::Acquire) {
            return None;
        }
        Some(read)
    }

    /// Locks the mapping until the write hold `hold` ends, and waits for faults
    /// that hold it.
    pub(crate) fn lock_out_readers<W: Wait>(&self, hold: u32, machine: &W) {
        if self.write_hold.load(Ordering::Relaxed) == hold {
            return;
        }
        self.write_hold.store(hold, Ordering::Release);
        if !mutant(Mutant::LockOutWithoutFence) {
            fence(Ordering::SeqCst);
        }
        let mut backoff = Backoff::new();
        // Acquire: pairs with the release when a fault lets go.
        while self.readers.load(Ordering::Acquire) != 0 {
            backoff.turn(machine);
        }
    }
}

/// A fault's hold on a mapping.
pub(crate) struct VmaRead<'s>(&'s VmaLock);

impl Drop for VmaRead<'_> {
    fn drop(&mut self) {
        self.0.readers.fetch_sub(1, Ordering::Release);
    }
}
