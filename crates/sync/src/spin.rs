//! A spin lock for critical sections of a few hundred instructions.
//!
//! The holder must not park and must not touch user memory. A lock that is taken under a claim must not be
//! held while waiting for a claim.
//!
//! *Writes*: its word only.

use core::cell::UnsafeCell;
use core::ops::{Deref, DerefMut};

use crate::atomic::{AtomicU32, Ordering};
use crate::mutant::{Mutant, mutant};
use crate::order::{Class, Held, Kind};
use crate::wait::{Backoff, Wait};

/// A value that one CPU at a time can use.
pub struct SpinLock<T> {
    word: AtomicU32,
    class: Class,
    value: UnsafeCell<T>,
}

// SAFETY: the lock hands out the value to one holder at a time.
unsafe impl<T: Send> Sync for SpinLock<T> {}
// SAFETY: the value moves with the lock.
unsafe impl<T: Send> Send for SpinLock<T> {}

impl<T> SpinLock<T> {
    /// Returns an unlocked lock with a value.
    #[track_caller]
    pub fn new(value: T) -> Self {
        Self {
            word: AtomicU32::new(0),
            class: Class::new(Kind::Spin),
            value: UnsafeCell::new(value),
        }
    }

    /// Takes the lock.
    pub fn lock<W: Wait + ?Sized>(&self, machine: &W) -> SpinGuard<'_, T> {
        self.class.check();
        self.take(machine);
        self.guard()
    }

    /// Whether the lock is held.
    pub fn is_locked(&self) -> bool {
        self.word.load(Ordering::Relaxed) != 0
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<SpinGuard<'_, T>> {
        self.try_take().then(|| self.guard())
    }

    fn guard(&self) -> SpinGuard<'_, T> {
        SpinGuard {
            lock: self,
            _held: self.class.hold(),
        }
    }

    pub(crate) fn class(&self) -> Class {
        self.class
    }

    pub(crate) fn take<W: Wait + ?Sized>(&self, machine: &W) {
        let mut backoff = Backoff::new();
        while !self.try_take() {
            while self.word.load(Ordering::Relaxed) != 0 {
                backoff.turn(machine);
            }
        }
    }

    fn try_take(&self) -> bool {
        // Acquire: pairs with the release in `give_up`.
        self.word
            .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Releases the lock.
    ///
    /// # Safety
    /// The caller holds it, and does not use the value any more.
    pub(crate) unsafe fn give_up(&self) {
        // Release: pairs with the acquire in `try_take`.
        let release = match mutant(Mutant::UnlockRelaxed) {
            false => Ordering::Release,
            true => Ordering::Relaxed,
        };
        self.word.store(0, release);
    }

    /// Returns the value.
    ///
    /// # Safety
    /// The caller holds the lock as long as the reference, and has no other reference.
    #[allow(clippy::mut_from_ref)]
    pub(crate) unsafe fn value(&self) -> &mut T {
        // SAFETY: by the caller's promise.
        unsafe { &mut *self.value.get() }
    }

    /// Returns the value. The caller is the only user of the lock.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

/// The right to use the value of a [`SpinLock`].
pub struct SpinGuard<'a, T> {
    lock: &'a SpinLock<T>,
    _held: Held,
}

impl<T> Deref for SpinGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: a guard exists only while it holds the lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for SpinGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and the guard is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for SpinGuard<'_, T> {
    fn drop(&mut self) {
        // SAFETY: a guard exists only while it holds the lock.
        unsafe { self.lock.give_up() };
    }
}
