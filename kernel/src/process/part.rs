//! What a process may share with others, and what `exec` gives it anew: descriptors, and what its
//! signals do.
//!
//! Only the process's last remaining thread replaces it. So the process's own threads, of which
//! none other runs then, look without a lock; other processes look under it.

use core::cell::UnsafeCell;

use crate::errno::Errno;
use crate::shared::Shared;
use crate::sync::SpinLock;

/// A reference that can be replaced.
pub struct Part<T> {
    shared: UnsafeCell<Shared<T>>,
    /// Held to look from outside, and to replace.
    lock: SpinLock<()>,
}

// SAFETY: References go to other threads only as copies made under the lock, or by `own`, whose
// callers say that nobody replaces it meanwhile.
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

    /// Another reference to it.
    pub fn get(&self) -> Shared<T> {
        let _lock = self.lock.lock();
        // SAFETY: Replaced under the lock only.
        unsafe { &*self.shared.get() }.clone()
    }

    /// Looks at it under a spin lock.
    pub fn with<R>(&self, f: impl FnOnce(&T) -> R) -> R {
        let _lock = self.lock.lock();
        // SAFETY: As above.
        f(unsafe { &*self.shared.get() })
    }

    /// It itself, without a lock.
    ///
    /// # Safety
    /// The caller is a thread of the process that has it, and keeps no reference beyond an `exec`.
    #[inline]
    pub unsafe fn own(&self) -> &T {
        // SAFETY: Replaced by the process's only thread, which is the caller.
        unsafe { &*self.shared.get() }
    }

    /// Puts `make`'s result into its place, if others share it; what was there.
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
        // SAFETY: Nobody but the caller replaces it.
        let shared = unsafe { &*self.shared.get() };
        // Others come only from this process by `clone`, so the answer can only become `no`.
        if shared.references() == 1 {
            return Ok(None);
        }
        let new = make(shared)?;
        let _lock = self.lock.lock();
        // SAFETY: Under the lock, and no thread of this process looks.
        Ok(Some(core::mem::replace(
            unsafe { &mut *self.shared.get() },
            new,
        )))
    }
}
