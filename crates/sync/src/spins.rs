//! Several spin locks at once, taken in the order in which they lie.

use crate::order::Held;
use crate::spin::SpinLock;
use crate::wait::Wait;

/// The right to use the values of the [`SpinLock`]s of a slice, all of which are had.
///
/// Whoever has more than one of them takes them by this, so that nobody waits in a ring.
pub struct SpinGuards<'a, S, T> {
    slice: &'a [S],
    lock_of: fn(&S) -> &SpinLock<T>,
    _held: Option<Held>,
}

impl<'a, S, T> SpinGuards<'a, S, T> {
    /// Takes all of them, first to last.
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

    /// What they are of.
    pub fn of(&self) -> &'a [S] {
        self.slice
    }

    /// The value of one.
    pub fn get_mut(&mut self, number: usize) -> &mut T {
        let lock = (self.lock_of)(&self.slice[number]);
        // SAFETY: its lock is had, and this is borrowed exclusively.
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
