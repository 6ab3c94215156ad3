//! One side of a pipe: its open ends and its sleepers.
//!
//! A thread that finds nothing to do increments `waiting`, looks once more under its bucket's lock, and
//! sleeps. The other side changes the state (the ring's count, or its own ends) and then reads `waiting`.
//! Both are sequentially consistent, so one sees the other.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::errno::{Errno, RESTART};
use crate::files::turn::Turn;
use crate::sched::{
    self,
    wait::{self, Interruptible, Woken},
};

/// One side of a pipe.
pub struct Side {
    /// Its open ends.
    pub ends: AtomicU32,
    /// Threads that sleep until this side has something to do, on this word's address.
    waiting: AtomicU32,
    /// Held while bytes are copied.
    pub turn: Turn,
}

impl Side {
    pub const fn new() -> Self {
        Self {
            ends: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            turn: Turn::new(),
        }
    }

    fn key(&self) -> u64 {
        core::ptr::from_ref(&self.waiting) as u64
    }

    /// Whether all its ends are closed.
    pub fn is_gone(&self) -> bool {
        self.ends.load(Ordering::SeqCst) == 0
    }

    /// Wakes the threads that wait on this side.
    #[inline]
    pub fn wake(&self) {
        if self.waiting.load(Ordering::SeqCst) != 0 {
            wait::wake_address(self.key(), u32::MAX, u32::MAX);
        }
    }

    /// Sleeps while `hopeless` returns true.
    ///
    /// # Errors
    /// A signal came.
    pub fn sleep_while(&self, hopeless: impl Fn() -> bool) -> Result<(), Errno> {
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let woken = wait::sleep(self.key(), u32::MAX, None, Interruptible::Yes, || {
            Ok(hopeless())
        });
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        match woken? {
            Some(Woken::Signal) if sched::current().is_interrupted() => Err(RESTART),
            _ => Ok(()),
        }
    }
}
