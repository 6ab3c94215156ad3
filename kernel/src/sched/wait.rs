//! Sleeping on an address: the one table behind futexes and behind the memory core's locks.
//!
//! An address (user or kernel) hashes to a bucket: a lock and a list of sleepers. Kernel and user addresses
//! never meet, so the same table serves both. A sleeper takes its bucket's lock once more after it was woken.
//! The waker wakes it under that lock, and so is done with it then.

use core::cell::Cell;
use core::sync::atomic::{AtomicU32, Ordering};

use super::thread::{RUNNABLE, SLEEPING, Thread, Work};
use super::{block, current, timer, wake};
use crate::errno::Errno;
use crate::sync::SpinLock;

const BUCKETS: usize = 256;
/// Not in any bucket.
const NOWHERE: u32 = u32::MAX;

/// A thread's entry in a bucket; written under the bucket's lock.
pub struct Waiter {
    key: Cell<u64>,
    bits: Cell<u32>,
    next: Cell<*const Thread>,
    /// The bucket it is in. Moves under both buckets' locks.
    bucket: AtomicU32,
}

impl Waiter {
    pub const fn new() -> Self {
        Self {
            key: Cell::new(0),
            bits: Cell::new(0),
            next: Cell::new(core::ptr::null()),
            bucket: AtomicU32::new(NOWHERE),
        }
    }
}

struct Bucket {
    first: *const Thread,
    last: *const Thread,
}

// SAFETY: Threads are static; links are used under the lock only.
unsafe impl Send for Bucket {}

static TABLE: [SpinLock<Bucket>; BUCKETS] = [const {
    SpinLock::new(Bucket {
        first: core::ptr::null(),
        last: core::ptr::null(),
    })
}; BUCKETS];

/// Whether a signal, or the end of the process, may interrupt a sleep.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Interruptible {
    Yes,
    /// Only the end of the thread's process.
    ByEnd,
    No,
}

impl Interruptible {
    /// Whether a thread must not begin to sleep.
    fn forbids(self, thread: &Thread) -> bool {
        match self {
            Self::Yes => thread.is_interrupted(),
            Self::ByEnd => thread.work().contains(Work::EXIT),
            Self::No => false,
        }
    }
}

/// How a sleep ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    Waker,
    Time,
    Signal,
}

fn bucket_of(key: u64) -> usize {
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize
}

impl Bucket {
    fn push(&mut self, thread: &'static Thread, bucket: usize) {
        thread.waiter.next.set(core::ptr::null());
        // SAFETY: Listed threads are alive; the lock is held.
        match unsafe { self.last.as_ref() } {
            Some(last) => last.waiter.next.set(thread),
            None => self.first = thread,
        }
        self.last = thread;
        thread.waiter.bucket.store(bucket as u32, Ordering::Relaxed);
    }

    /// Removes the first sleeper that `wanted` accepts.
    fn take(&mut self, wanted: impl Fn(&Thread) -> bool) -> Option<&'static Thread> {
        let mut previous: Option<&'static Thread> = None;
        let mut at = self.first;
        // SAFETY: As above.
        while let Some(thread) = unsafe { at.as_ref::<'static>() } {
            let next = thread.waiter.next.get();
            if wanted(thread) {
                match previous {
                    Some(previous) => previous.waiter.next.set(next),
                    None => self.first = next,
                }
                if core::ptr::eq(self.last, thread) {
                    self.last = previous.map_or(core::ptr::null(), core::ptr::from_ref);
                }
                thread.waiter.bucket.store(NOWHERE, Ordering::Relaxed);
                return Some(thread);
            }
            (previous, at) = (Some(thread), next);
        }
        None
    }

    /// Wakes up to `count` sleepers on `key`; returns how many.
    fn wake(&mut self, key: u64, count: u32, bits: u32) -> u32 {
        for woken in 0..count {
            let wanted = |thread: &Thread| {
                thread.waiter.key.get() == key && thread.waiter.bits.get() & bits != 0
            };
            match self.take(wanted) {
                Some(thread) => wake(thread),
                None => return woken,
            }
        }
        count
    }

    /// Moves up to `count` sleepers on `key` to another address and bucket; returns how many.
    fn move_to(&mut self, key: u64, count: u32, mut other: Option<&mut Self>, to: u64) -> u32 {
        for moved in 0..count {
            let Some(thread) = self.take(|thread| thread.waiter.key.get() == key) else {
                return moved;
            };
            thread.waiter.key.set(to);
            match other.as_deref_mut() {
                Some(other) => other.push(thread, bucket_of(to)),
                None => self.push(thread, bucket_of(to)),
            }
        }
        count
    }
}

/// Sleeps on an address if `check`, called under the bucket's lock, says so (`Ok(true)`).
///
/// # Errors
/// Those of `check`.
pub fn sleep(
    key: u64,
    bits: u32,
    deadline: Option<u64>,
    interruptible: Interruptible,
    check: impl FnOnce() -> Result<bool, Errno>,
) -> Result<Option<Woken>, Errno> {
    let thread = current();
    let number = bucket_of(key);
    {
        let mut bucket = TABLE[number].lock();
        if !check()? {
            return Ok(None);
        }
        thread.waiter.key.set(key);
        thread.waiter.bits.set(bits);
        bucket.push(thread, number);
        if let Some(deadline) = deadline {
            timer::arm(thread, deadline);
        }
        thread.state.store(SLEEPING, Ordering::SeqCst);
    }
    // SeqCst above and here pair with `interrupt`, which adds work and then reads the state.
    core::sync::atomic::fence(Ordering::SeqCst);
    if interruptible.forbids(thread) {
        // Unless a waker was quicker and has queued the thread.
        if thread
            .state
            .compare_exchange(SLEEPING, RUNNABLE, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            block();
        }
    } else {
        block();
    }
    let timed_out = deadline.is_some_and(|deadline| crate::arch::time::now() >= deadline);
    if deadline.is_some() {
        timer::disarm(thread);
    }
    Ok(Some(if !remove(thread) {
        Woken::Waker
    } else if timed_out {
        Woken::Time
    } else {
        Woken::Signal
    }))
}

/// Removes a thread from its bucket, if it is in one; returns whether it was.
fn remove(thread: &'static Thread) -> bool {
    loop {
        let number = thread.waiter.bucket.load(Ordering::Relaxed);
        // Even if the thread is in no bucket: the bucket of its key is the one that its waker held, or, after
        // a requeue, held last.
        let lock = match number {
            NOWHERE => bucket_of(thread.waiter.key.get()),
            number => number as usize,
        };
        let mut bucket = TABLE[lock].lock();
        if thread.waiter.bucket.load(Ordering::Relaxed) != number {
            continue;
        }
        if number == NOWHERE {
            return false;
        }
        bucket.take(|other| core::ptr::eq(other, thread));
        return true;
    }
}

/// Wakes up to `count` sleepers on an address with one of these bits; returns how many.
pub fn wake_address(key: u64, count: u32, bits: u32) -> u32 {
    TABLE[bucket_of(key)].lock().wake(key, count, bits)
}

/// Wakes up to `count` sleepers of `from` and moves up to `most` others to `to`, if `check` agrees.
///
/// # Errors
/// Those of `check`.
pub fn requeue(
    from: u64,
    to: u64,
    count: u32,
    most: u32,
    check: impl FnOnce() -> Result<(), Errno>,
) -> Result<(u32, u32), Errno> {
    let (source, target) = (bucket_of(from), bucket_of(to));
    // In the order of their numbers, so that two requeues cannot deadlock.
    let mut low = TABLE[source.min(target)].lock();
    let mut high = (source != target).then(|| TABLE[source.max(target)].lock());
    check()?;
    let (list, other): (&mut Bucket, Option<&mut Bucket>) = match high.as_deref_mut() {
        Some(high) if source > target => (high, Some(&mut *low)),
        high => (&mut *low, high),
    };
    let woken = list.wake(from, count, u32::MAX);
    let moved = if from == to {
        0
    } else {
        list.move_to(from, most, other, to)
    };
    Ok((woken, moved))
}
