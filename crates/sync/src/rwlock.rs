//! The reader-writer lock of the mapping operations: downgradable, does not starve writers, and parks through
//! the machine.
//!
//! The state is one word: bit 31 a writer holds the lock, bit 30 a writer waits, bit 29 a waiter is parked,
//! the rest counts readers.
//!
//! * A waiting writer excludes new readers, so that it does not starve.
//! * All waiters park on the same word, and the release of the last hold wakes all of them. This is enough
//!   for a lock that is rarely taken: under the speculative policy no fault takes it.
//!
//! *Writes*: the word, by every acquisition and release. That line, shared by all CPUs that fault, is the
//! cost of the `classic` policy.

use core::marker::PhantomData;

use crate::atomic::{AtomicU32, Ordering};
use crate::mutant::{Mutant, mutant};
use crate::order::{Class, Held, Kind};
use crate::wait::{Backoff, Wait};

const WRITER: u32 = 1 << 31;
const WRITER_WAITS: u32 = 1 << 30;
const PARKED: u32 = 1 << 29;
const READERS: u32 = PARKED - 1;

/// A downgradable reader-writer lock without a value. Its users document what it protects.
#[derive(Debug)]
pub struct RwLock {
    word: AtomicU32,
    class: Class,
}

impl Default for RwLock {
    #[track_caller]
    fn default() -> Self {
        Self::new()
    }
}

impl RwLock {
    /// Returns an unlocked lock.
    #[track_caller]
    pub fn new() -> Self {
        Self {
            word: AtomicU32::new(0),
            class: Class::new(Kind::Parking),
        }
    }

    /// Takes the lock for reading.
    pub fn read<'a, W: Wait + ?Sized>(&'a self, machine: &'a W) -> ReadGuard<'a, W> {
        self.class.check();
        let mut backoff = Backoff::new();
        loop {
            if let Some(guard) = self.try_read(machine) {
                return guard;
            }
            self.wait(machine, &mut backoff, WRITER | WRITER_WAITS, 0);
        }
    }

    /// Takes the lock for reading if no writer holds it or waits for it.
    pub fn try_read<'a, W: Wait + ?Sized>(&'a self, machine: &'a W) -> Option<ReadGuard<'a, W>> {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & (WRITER | WRITER_WAITS) == 0 {
            // Acquire: pairs with the release of the last writer.
            match self.word.compare_exchange_weak(
                word,
                word + 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => {
                    return Some(ReadGuard {
                        lock: self,
                        machine,
                        _held: self.class.hold(),
                        _not_send: PhantomData,
                    });
                }
                Err(now) => word = now,
            }
        }
        None
    }

    /// Takes the lock for writing.
    pub fn write<'a, W: Wait + ?Sized>(&'a self, machine: &'a W) -> WriteGuard<'a, W> {
        self.class.check();
        let mut backoff = Backoff::new();
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if word & (WRITER | READERS) == 0 {
                // Acquire: pairs with the releases of readers and of the last writer.
                // This clears the waiting bit; writers that still wait set it again.
                let taken = (word & PARKED) | WRITER;
                if self
                    .word
                    .compare_exchange_weak(word, taken, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
                {
                    return WriteGuard {
                        lock: self,
                        machine,
                        _held: self.class.hold(),
                        _not_send: PhantomData,
                    };
                }
                continue;
            }
            self.wait(machine, &mut backoff, WRITER | READERS, WRITER_WAITS);
        }
    }

    /// Waits one turn while any bit of `while_any` is set, and sets the bits `announce` meanwhile.
    fn wait<W: Wait + ?Sized>(
        &self,
        machine: &W,
        backoff: &mut Backoff,
        while_any: u32,
        announce: u32,
    ) {
        if announce != 0 {
            self.announce(while_any, announce);
        }
        backoff.spin_or_park(machine, &self.word, || {
            self.announce(while_any, announce | PARKED)
        });
    }

    /// Sets `bits` if the lock still has to be waited for. Returns the value of the word to park on.
    fn announce(&self, while_any: u32, bits: u32) -> Option<u32> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & while_any == 0 {
                return None;
            }
            if word & bits == bits {
                return Some(word);
            }
            match self.word.compare_exchange_weak(
                word,
                word | bits,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(word | bits),
                Err(now) => word = now,
            }
        }
    }

    /// Releases one hold, and wakes parked waiters if the lock is free now.
    fn release<W: Wait + ?Sized>(&self, machine: &W, hold: u32) {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let mut left = word - hold;
            let free = left & (WRITER | READERS) == 0;
            if free {
                // Parked waiters are woken and set the bit again. A waiting writer's bit stays until a writer
                // holds the lock; otherwise readers would always be faster.
                left &= !PARKED;
            }
            // Release: pairs with the acquire of the next holder.
            let release = if mutant(Mutant::UnlockRelaxed) {
                Ordering::Relaxed
            } else {
                Ordering::Release
            };
            match self
                .word
                .compare_exchange_weak(word, left, release, Ordering::Relaxed)
            {
                Ok(_) => {
                    if free && word & PARKED != 0 {
                        machine.wake(&self.word, u32::MAX);
                    }
                    return;
                }
                Err(now) => word = now,
            }
        }
    }
}

/// A hold for reading.
pub struct ReadGuard<'a, W: Wait + ?Sized> {
    lock: &'a RwLock,
    machine: &'a W,
    _held: Held,
    _not_send: PhantomData<*const ()>,
}

impl<W: Wait + ?Sized> Drop for ReadGuard<'_, W> {
    fn drop(&mut self) {
        self.lock.release(self.machine, 1);
    }
}

/// A hold for writing.
pub struct WriteGuard<'a, W: Wait + ?Sized> {
    lock: &'a RwLock,
    machine: &'a W,
    _held: Held,
    _not_send: PhantomData<*const ()>,
}

impl<'a, W: Wait + ?Sized> WriteGuard<'a, W> {
    /// Turns the exclusive hold into a shared one atomically: no other writer gets the lock in between. Wakes
    /// parked readers.
    pub fn downgrade(self) -> ReadGuard<'a, W> {
        let (lock, machine) = (self.lock, self.machine);
        if mutant(Mutant::DowngradeByUnlocking) {
            drop(self);
            return lock.read(machine);
        }
        let mut write = core::mem::ManuallyDrop::new(self);
        let held = core::mem::take(&mut write._held);
        let mut word = lock.word.load(Ordering::Relaxed);
        loop {
            // The bit of a waiting writer stays: it must still get its turn.
            let left = ((word & !WRITER) | 1) & !PARKED;
            // Release: pairs with the acquire of the readers that get the lock now.
            match lock
                .word
                .compare_exchange_weak(word, left, Ordering::Release, Ordering::Relaxed)
            {
                Ok(_) => {
                    if word & PARKED != 0 {
                        machine.wake(&lock.word, u32::MAX);
                    }
                    return ReadGuard {
                        lock,
                        machine,
                        _held: held,
                        _not_send: PhantomData,
                    };
                }
                Err(now) => word = now,
            }
        }
    }
}

impl<W: Wait + ?Sized> Drop for WriteGuard<'_, W> {
    fn drop(&mut self) {
        self.lock.release(self.machine, WRITER);
    }
}
