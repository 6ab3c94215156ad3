//! A part of a process that it may share with other processes and that `exec` unshares: the descriptors, and
//! the signal actions. `close_range` unshares descriptors, too.
//!
//! Only the process's last remaining thread replaces it, when no other thread of the process runs. So the
//! process's own threads read it without a lock; other processes read it under the lock.

use core::cell::UnsafeCell;
use core::sync::atomic::Ordering;

use super::Process;
use crate::errno::Errno;
use crate::files::descriptors::Table;
use crate::sched::wait::{self, Interruptible};
use crate::shared::Shared;
use crate::sync::SpinLock;

/// A reference that can be replaced.
pub struct Part<T> {
    shared: UnsafeCell<Shared<T>>,
    /// Held to read from outside, and to replace.
    lock: SpinLock<()>,
}

// SAFETY: References reach other threads only as copies made under the lock, or by `own`. The callers of
// `own` guarantee that it is not replaced meanwhile.
unsafe impl<T: Send + Sync> Sync for Part<T> {}
// SAFETY: It is a `Shared` and a lock.
unsafe impl<T: Send + Sync> Send for Part<T> {}

impl<T> Part<T> {
    pub const fn new(shared: Shared<T>) -> Self {
        Self {
            shared: UnsafeCell::new(shared),
            lock: SpinLock::new(()),
        }
    }

    /// Returns another reference to it.
    pub fn get(&self) -> Shared<T> {
        let _lock = self.lock.lock();
        // SAFETY: Replaced under the lock only.
        unsafe { &*self.shared.get() }.clone()
    }

    /// Calls `f` with it, under a spin lock.
    pub fn with<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        let _lock = self.lock.lock();
        // SAFETY: As above.
        f(unsafe { &*self.shared.get() })
    }

    /// Returns it without a lock.
    ///
    /// # Safety
    /// The caller is a thread of the process that has it, and keeps no reference beyond an `exec`.
    #[inline]
    pub unsafe fn own(&self) -> &T {
        // SAFETY: Replaced by the process's only thread, which is the caller.
        unsafe { &*self.shared.get() }
    }

    /// Replaces it by `make`'s result, if it is shared. Returns the old one.
    ///
    /// # Errors
    /// Those of `make`.
    ///
    /// # Safety
    /// The caller is the only thread of the process that has it.
    pub unsafe fn unshare(
        &self,
        make: impl FnOnce(&T) -> Result<Shared<T>, Errno>,
    ) -> Result<Option<Shared<T>>, Errno> {
        // SAFETY: Only the caller replaces it.
        let shared = unsafe { &*self.shared.get() };
        // Only `clone` in this process adds references, so the answer can only change to not shared.
        if shared.references() == 1 {
            return Ok(None);
        }
        let new = make(shared)?;
        let _lock = self.lock.lock();
        // SAFETY: Under the lock, and no other thread of this process reads it.
        Ok(Some(core::mem::replace(
            unsafe { &mut *self.shared.get() },
            new,
        )))
    }
}

impl Process {
    /// Whether other threads exist, including threads that are exiting.
    pub fn has_other_threads(&self) -> bool {
        // An exiting thread is counted in `leaving` before it leaves the list.
        self.thread_count() > 1 || self.leaving.load(Ordering::SeqCst) != 0
    }

    /// Waits until the caller is the process's only thread. All others exit. The caller has set `alone`.
    pub fn await_others(&self) {
        while self.has_other_threads() {
            let check = || Ok(self.has_other_threads());
            let _ = wait::sleep(self.key(), u32::MAX, None, Interruptible::No, check);
        }
        self.alone.store(false, Ordering::SeqCst);
    }

    /// Gives the current process its own copy of descriptors that it shares with other processes. Its threads
    /// always share theirs: while several stay, nothing changes.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn unshare_descriptors(&self) -> Result<(), Errno> {
        if self.staying.load(Ordering::Relaxed) > 1 {
            return Ok(());
        }
        // A joined thread may still be exiting: its joiner is told first. It has been subtracted before that, and
        // only the caller could make a new thread.
        if self.has_other_threads() {
            self.alone.store(true, Ordering::SeqCst);
            self.await_others();
        }
        let copy = |table: &Table| Shared::new(table.duplicate()?);
        // SAFETY: The caller is the only thread, and uses no reference to the table meanwhile.
        if let Some(shared) = unsafe { self.descriptors.unshare(copy)? } {
            shared.leave();
        }
        Ok(())
    }
}
