//! Event counters, `eventfd`.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::readiness::{Events, Readiness};
use crate::arch::uaccess;
use crate::errno::{Answer, EAGAIN, EINVAL, Errno, RESTART};
use crate::sched;
use crate::sched::wait::{self, Interruptible, Woken};
use crate::shared::Shared;

const LARGEST: u64 = u64::MAX - 1;

/// A counter.
pub struct Event(Shared<Inner>);

struct Inner {
    value: AtomicU64,
    /// Threads that sleep until the value changes, on this word's address.
    waiting: AtomicU32,
    /// Whether a read takes 1 instead of the whole value.
    semaphore: bool,
    readiness: Readiness,
}

impl Event {
    /// Makes a counter.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(value: u32, semaphore: bool) -> Result<Self, Errno> {
        Ok(Self(Shared::new(Inner {
            value: AtomicU64::new(u64::from(value)),
            waiting: AtomicU32::new(0),
            semaphore,
            readiness: Readiness::new(),
        })?))
    }

    /// Updates the value by `f`, and sleeps while `f` returns `None`. Returns the old value.
    fn update(&self, may_wait: bool, f: impl Fn(u64) -> Option<u64>) -> Answer {
        let inner = &*self.0;
        loop {
            let updated = inner
                .value
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, &f);
            if let Ok(before) = updated {
                return Ok(before);
            }
            if !may_wait {
                return Err(EAGAIN);
            }
            inner.waiting.fetch_add(1, Ordering::SeqCst);
            let hopeless = || Ok(f(inner.value.load(Ordering::SeqCst)).is_none());
            let woken = wait::sleep(self.key(), u32::MAX, None, Interruptible::Yes, hopeless);
            inner.waiting.fetch_sub(1, Ordering::SeqCst);
            if woken? == Some(Woken::Signal) && sched::current().is_interrupted() {
                return Err(RESTART);
            }
        }
    }

    fn key(&self) -> u64 {
        core::ptr::from_ref(&self.0.waiting) as u64
    }

    fn changed(&self, events: Events) {
        if self.0.waiting.load(Ordering::SeqCst) != 0 {
            wait::wake_address(self.key(), u32::MAX, u32::MAX);
        }
        self.0.readiness.changed(events);
    }

    /// Reads the value, or takes 1, once it is not 0.
    ///
    /// # Errors
    /// `EINVAL` for less than 8 bytes, `EAGAIN`, `EFAULT`, or a signal came.
    pub fn read(&self, to: u64, length: u64, may_wait: bool) -> Answer {
        if length < 8 {
            return Err(EINVAL);
        }
        let semaphore = self.0.semaphore;
        let before = self.update(may_wait, |value| match value {
            0 => None,
            value if semaphore => Some(value - 1),
            _ => Some(0),
        })?;
        self.changed(Events::WRITABLE);
        uaccess::write(to, &if semaphore { 1 } else { before })?;
        Ok(8)
    }

    /// Adds a number, once the sum is not too large.
    ///
    /// # Errors
    /// `EINVAL` for less than 8 bytes or too large a number, `EAGAIN`, `EFAULT`, or a signal came.
    pub fn write(&self, from: u64, length: u64, may_wait: bool) -> Answer {
        if length < 8 {
            return Err(EINVAL);
        }
        let more: u64 = uaccess::read(from)?;
        if more > LARGEST {
            return Err(EINVAL);
        }
        self.update(may_wait, |value| {
            value.checked_add(more).filter(|&sum| sum <= LARGEST)
        })?;
        self.changed(Events::READABLE);
        Ok(8)
    }

    /// The events that are ready now.
    pub fn events(&self) -> Events {
        let value = self.0.value.load(Ordering::SeqCst);
        let mut events = Events::empty();
        events.set(Events::READABLE, value != 0);
        events.set(Events::WRITABLE, value < LARGEST);
        events
    }

    pub fn readiness(&self) -> &Readiness {
        &self.0.readiness
    }
}
