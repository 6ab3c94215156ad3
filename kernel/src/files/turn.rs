//! A sleeping lock (`Turn`), under which the holder may touch user memory.
//!
//! It orders calls on one file or one pipe. The fault path takes no `Turn`, so a holder's fault waits for no
//! other holder. That fault may wait for memory, which another process frees by exiting. So the exit of a
//! thread's process ends the thread's wait for a `Turn`.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::errno::{EINTR, Errno};
use crate::sched;
use crate::sched::thread::Work;
use crate::sched::wait::{self, Interruptible};

const FREE: u32 = 0;
const TAKEN: u32 = 1;
/// Taken, and threads may sleep.
const AWAITED: u32 = 2;

/// The lock.
pub struct Turn(AtomicU32);

/// The lock, held until dropped.
pub struct Taken<'a>(&'a Turn);

impl Turn {
    pub const fn new() -> Self {
        Self(AtomicU32::new(FREE))
    }

    fn key(&self) -> u64 {
        core::ptr::from_ref(self) as u64
    }

    /// Takes the lock, and waits until it is free.
    ///
    /// # Errors
    /// `EINTR`: it was not free, and the thread has to exit.
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
            // A holder that releases the lock meanwhile wakes under the bucket's lock, after this check.
            let check = || Ok(self.0.load(Ordering::SeqCst) == AWAITED);
            let _ = wait::sleep(self.key(), u32::MAX, None, Interruptible::ByEnd, check);
            if sched::current().work().contains(Work::EXIT) {
                // This thread may have consumed the one wake-up: pass it on.
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
