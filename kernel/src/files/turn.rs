//! A lock that is waited for asleep, so that its holder may touch user memory.
//!
//! It orders calls on one file or one pipe. The fault path takes none, so a holder's fault waits
//! for no holder. But it may wait for memory, which another process gives back by ending: so the end
//! of a thread's process ends its wait for a turn.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::errno::{EINTR, Errno};
use crate::sched;
use crate::sched::thread::Work;
use crate::sched::wait::{self, Interruptible};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and somebody may sleep.
const AWAITED: u32 = 2;

/// The lock.
pub struct Turn(AtomicU32);

/// Holds it until dropped.
pub struct Taken<'a>(&'a Turn);

impl Turn {
    pub const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    fn key(&self) -> u64 {
        core::ptr::from_ref(self) as u64
    }

    /// Waits until it is free, and takes it.
    ///
    /// # Errors
    /// `EINTR`: it was not free, and the thread has to end.
    #[inline]
    pub fn take(&self) -> Result<Taken<'_>, Errno> {
        if self
            .0
            .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
            self.wait()?;
        }
        Ok(Taken(self))
    }

    #[cold]
    fn wait(&self) -> Result<(), Errno> {
        while self.0.swap(AWAITED, Ordering::Acquire) != FREE {
            // A holder that lets go meanwhile wakes under the bucket's lock, after this look.
            let check = || Ok(self.0.load(Ordering::SeqCst) == AWAITED);
            let _ = wait::sleep(self.key(), u32::MAX, None, Interruptible::ByEnd, check);
            if sched::current().work().contains(Work::EXIT) {
                // It may have been the one that was woken to take it.
                wait::wake_address(self.key(), 1, u32::MAX);
                return Err(EINTR);
            }
        }
        Ok(())
    }
}

impl Drop for Taken<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.0.0.swap(FREE, Ordering::Release) == AWAITED {
            wait::wake_address(self.0.key(), 1, u32::MAX);
        }
    }
}
