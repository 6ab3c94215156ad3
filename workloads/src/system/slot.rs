//! Time slicing of threads on a CPU.
//!
//! A thread is bound to one CPU and runs only while it holds that CPU's slot. If the slot is
//! taken, the thread queues. The first thread in the queue requests the slot when its holder has had it for a
//! [`SLICE`]: it sets `attention`, as a timer interrupt would. The holder polls this flag
//! before every access and call, and hands over. A thread that waits for something else releases the
//! slot. A thread that waits inside the memory core keeps it.
//!
//! *Writes*: `attention` is written by waiting threads, by the end of the process, and by the holder that clears it;
//! only the holder reads it. The rest is under the lock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long a thread keeps its CPU while others wait for it; roughly Linux's slice for threads of equal
/// weight.
const SLICE: Duration = Duration::from_millis(4);

/// A CPU, as threads see it.
#[repr(align(128))]
pub struct Slot {
    attention: AtomicBool,
    /// The length of the queue, readable without the lock.
    waiting: AtomicUsize,
    line: Mutex<Line>,
}

struct Line {
    /// The ticket of the holder.
    holder: Option<u64>,
    since: Instant,
    next_ticket: u64,
    waiting: VecDeque<(u64, Thread)>,
}

impl Slot {
    pub fn new() -> Self {
        Self {
            attention: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            line: Mutex::new(Line {
                holder: None,
                since: Instant::now(),
                next_ticket: 0,
                waiting: VecDeque::new(),
            }),
        }
    }

    /// Requests the holder's attention.
    pub fn call(&self) {
        self.attention.store(true, Ordering::SeqCst);
    }

    /// Whether the holder's attention is requested.
    #[inline]
    pub fn is_called(&self) -> bool {
        self.attention.load(Ordering::Relaxed)
    }

    /// Clears the request before the holder handles it.
    pub fn answer(&self) {
        self.attention.store(false, Ordering::SeqCst);
    }

    /// Whether others wait for the slot.
    pub fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Waits for the slot.
    fn take(&self) {
        let mut line = self.lock();
        let ticket = line.next_ticket;
        line.next_ticket += 1;
        if line.holder.is_none() {
            line.holder = Some(ticket);
            line.since = Instant::now();
            return;
        }
        line.waiting.push_back((ticket, thread::current()));
        self.waiting.store(line.waiting.len(), Ordering::Relaxed);
        while line.holder != Some(ticket) {
            let is_first = line
                .waiting
                .front()
                .is_some_and(|(first, _)| *first == ticket);
            if is_first && line.since.elapsed() >= SLICE {
                self.call();
            }
            drop(line);
            thread::park_timeout(SLICE);
            line = self.lock();
        }
    }

    /// Hands the slot to the first thread in the queue.
    fn give(&self) {
        let mut line = self.lock();
        let next = line.waiting.pop_front();
        self.waiting.store(line.waiting.len(), Ordering::Relaxed);
        line.since = Instant::now();
        line.holder = next.as_ref().map(|(ticket, _)| *ticket);
        drop(line);
        if let Some((_, thread)) = next {
            thread.unpark();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A guard that holds a slot.
pub struct Seat<'s>(&'s Slot);

impl<'s> Seat<'s> {
    /// Waits for the slot and holds it.
    pub fn take(slot: &'s Slot) -> Self {
        slot.take();
        Self(slot)
    }

    /// The slot.
    #[inline]
    pub fn slot(&self) -> &'s Slot {
        self.0
    }

    /// Runs `away` with the slot released.
    pub fn lend<R>(&self, away: impl FnOnce() -> R) -> R {
        self.0.give();
        let result = away();
        self.0.take();
        result
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.give();
    }
}
