//! A mapping's own lock, which faults hold under the policy `vma-lock` only.
//!
//! Every fault under that policy writes the lock's line twice, which is exactly what the policy costs.
//! Writers do not unlock. A mapping is locked while its `write_hold` is the number of the address space's
//! present write hold (`lock/mmap_lock.rs`); the end of that hold unlocks every mapping.
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
    /// Creates an unlocked lock; no write hold has the number 0.
    pub(crate) fn new() -> Self {
        Self {
            readers: AtomicU32::new(0),
            write_hold: AtomicU32::new(0),
        }
    }

    /// Holds the mapping for a fault, unless a writer has locked it under `hold`, the address space's present
    /// write hold.
    pub(crate) fn try_read(&self, hold: &AtomicU32) -> Option<VmaRead<'_>> {
        self.readers.fetch_add(1, Ordering::Acquire);
        if !mutant(Mutant::HoldWithoutFence) {
            fence_after_rmw();
        }
        let read = VmaRead(self);
        // The barrier's partner is the fence in `lock_out_readers`: either this reader sees the lock, or the
        // writer sees this reader. The acquires pair with two releases. One ends the write hold, in
        // `MmapLock::end_hold`. The other is in `lock_out_readers`: a reader that sees the lock of a write
        // hold must not compare it with the previous hold's number.
        if self.write_hold.load(Ordering::Acquire) == hold.load(Ordering::Acquire) {
            return None;
        }
        Some(read)
    }

    /// Locks the mapping until the write hold `hold` ends, and waits for faults that hold it.
    pub(crate) fn lock_out_readers<W: Wait>(&self, hold: u32, machine: &W) {
        if self.write_hold.load(Ordering::Relaxed) == hold {
            return;
        }
        self.write_hold.store(hold, Ordering::Release);
        if !mutant(Mutant::LockOutWithoutFence) {
            fence(Ordering::SeqCst);
        }
        let mut backoff = Backoff::new();
        // Acquire: pairs with the release at the end of a fault's hold.
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
