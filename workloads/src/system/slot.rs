//! How threads take turns on a CPU.
//!
//! A thread is bound to one CPU and runs only while it has that CPU's slot. Who finds the slot
//! taken waits in line. The first in line asks for the slot when its holder has had it for a
//! [`SLICE`]: it sets `attention`, as a timer's interrupt would, and the holder, which looks at it
//! before every access and call, hands over. A thread that waits for something else leaves the
//! slot by itself. A thread that the memory core makes wait keeps it.
//!
//! Who writes which line: `attention` is written by who waits or ends the process, and read by
//! the holder alone; the rest is under the lock.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long a thread keeps its CPU while others wait for it; what Linux gives to threads of equal
/// weight, roughly.
const SLICE: Duration = Duration::from_millis(4);

/// A CPU, as threads see it.
#[repr(align(128))]
pub struct Slot {
    attention: AtomicBool,
    /// How many wait in line, for those who want to know without the lock.
    waiting: AtomicUsize,
    line: Mutex<Line>,
}

struct Line {
    /// Whose the slot is.
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

    /// Asks the holder to look up.
    pub fn call(&self) {
        self.attention.store(true, Ordering::SeqCst);
    }

    /// Whether the holder is to look up.
    #[inline]
    pub fn is_called(&self) -> bool {
        self.attention.load(Ordering::Relaxed)
    }

    /// Takes the call away, to be answered.
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

    /// Gives the slot to the first in line.
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

/// A slot, held.
pub struct Seat<'s>(&'s Slot);

impl<'s> Seat<'s> {
    /// Waits for the slot, and holds it.
    pub fn take(slot: &'s Slot) -> Self {
        slot.take();
        Self(slot)
    }

    /// The slot.
    #[inline]
    pub fn slot(&self) -> &'s Slot {
        self.0
    }

    /// Runs `away` while others may have the slot.
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
