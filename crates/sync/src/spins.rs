//! A guard of several spin locks, taken in the order of a slice.

use crate::order::Held;
use crate::spin::SpinLock;
use crate::wait::Wait;

/// A guard of all [`SpinLock`]s of a slice, for the use of their values.
///
/// More than one of these locks is held only through this type. The order is always the same, so no deadlock
/// occurs.
pub struct SpinGuards<'a, S, T> {
    slice: &'a [S],
    lock_of: fn(&S) -> &SpinLock<T>,
    _held: Option<Held>,
}

impl<'a, S, T> SpinGuards<'a, S, T> {
    /// Takes all locks, first to last.
    pub fn lock<W: Wait + ?Sized>(
        slice: &'a [S],
        lock_of: fn(&S) -> &SpinLock<T>,
        machine: &W,
    ) -> Self {
        let first = slice.first().map(lock_of);
        first.inspect(|first| first.class().check());
        slice.iter().for_each(|of| lock_of(of).take(machine));
        Self {
            slice,
            lock_of,
            _held: first.map(|first| first.class().hold()),
        }
    }

    /// Returns the slice that has the locks.
    pub fn of(&self) -> &'a [S] {
        self.slice
    }

    /// Returns the value of one lock.
    pub fn get_mut(&mut self, number: usize) -> &mut T {
        let lock = (self.lock_of)(&self.slice[number]);
        // SAFETY: the lock is held, and this guard is borrowed exclusively.
        unsafe { lock.value() }
    }
}

impl<S, T> Drop for SpinGuards<'_, S, T> {
    fn drop(&mut self) {
        let locks = self.slice.iter().map(self.lock_of);
        // SAFETY: taken in `lock`.
        locks.for_each(|lock| unsafe { lock.give_up() });
    }
}
