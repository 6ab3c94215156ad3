//! File locks: ranges locked by a process or a description (`fcntl`), and whole files locked by a description
//! (`flock`). The two kinds do not see each other.
//!
//! All locks are in one list under one spin lock, because there are few. A waiter sleeps on the list's
//! address, and looks again after each change of the list. A waiting process is also in a second list, in
//! which the next waiter looks for a cycle (`EDEADLK`).

use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::errno::{EAGAIN, EDEADLK, ENOLCK, Errno, RESTART};
use crate::sched::wait::{self, Interruptible, Woken};
use crate::sched::{self};
use crate::sync::SpinLock;

/// The owner of a lock. The addresses are only compared: a table or a description releases its locks before
/// it is freed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The processes that have a descriptor table.
    Table(usize),
    /// A description, by `F_OFD_SETLK`.
    Description(usize),
    /// A description, by `flock`.
    Whole(usize),
}

/// A file: its file system, and its number there.
pub type FileId = (u32, u64);

/// A lock.
#[derive(Clone, Copy)]
pub struct Lock {
    pub file: FileId,
    pub owner: Owner,
    /// Excludes all other locks, shared ones included.
    pub exclusive: bool,
    pub first: u64,
    /// The last byte; `u64::MAX` for all bytes there will ever be.
    pub last: u64,
    /// As `F_GETLK` reports it: -1 for a description's lock.
    pub process: i32,
}

impl Lock {
    fn overlaps(&self, other: &Self) -> bool {
        self.file == other.file && self.first <= other.last && other.first <= self.last
    }

    fn conflicts(&self, other: &Self) -> bool {
        let whole = |lock: &Self| matches!(lock.owner, Owner::Whole(_));
        self.owner != other.owner
            && whole(self) == whole(other)
            && (self.exclusive || other.exclusive)
            && self.overlaps(other)
    }
}

struct Locks {
    held: Vec<Lock>,
    waiting: Vec<Lock>,
}

static LOCKS: SpinLock<Locks> = SpinLock::new(Locks {
    held: Vec::new(),
    waiting: Vec::new(),
});

/// Locks held. Most programs lock nothing, and closing a file costs them one load of this.
static HELD: AtomicUsize = AtomicUsize::new(0);

fn key() -> u64 {
    &raw const LOCKS as u64
}

impl Locks {
    fn conflict(&self, wanted: &Lock) -> Option<&Lock> {
        self.held.iter().find(|held| held.conflicts(wanted))
    }

    /// Removes a range from its owner's locks; the parts on either side stay.
    ///
    /// # Errors
    /// `ENOLCK`: no memory.
    fn cut(&mut self, range: &Lock) -> Result<(), Errno> {
        // At most one lock extends past both ends of the range, and the caller adds one.
        self.held.try_reserve(2).map_err(|_| ENOLCK)?;
        let mut at = 0;
        while at < self.held.len() {
            let held = self.held[at];
            if held.owner != range.owner || !held.overlaps(range) {
                at += 1;
                continue;
            }
            let before = (held.first < range.first).then(|| Lock {
                last: range.first - 1,
                ..held
            });
            let behind = (held.last > range.last).then(|| Lock {
                first: range.last + 1,
                ..held
            });
            match (before, behind) {
                (Some(before), behind) => {
                    self.held[at] = before;
                    self.held.extend(behind);
                    at += 1;
                }
                (None, Some(behind)) => {
                    self.held[at] = behind;
                    at += 1;
                }
                (None, None) => drop(self.held.swap_remove(at)),
            }
        }
        Ok(())
    }

    /// Whether waiting for a lock would close a cycle of processes that wait for each other.
    fn is_circle(&self, wanted: &Lock) -> bool {
        let mut step = *wanted;
        // As on Linux, a longer chain does not count as a cycle.
        for _ in 0..10 {
            let Some(holder) = self.conflict(&step).map(|held| held.owner) else {
                return false;
            };
            if holder == wanted.owner {
                return true;
            }
            match self.waiting.iter().find(|waiting| waiting.owner == holder) {
                Some(waiting) => step = *waiting,
                None => return false,
            }
        }
        false
    }
}

/// Returns a held lock that conflicts with `wanted`.
pub fn find(wanted: &Lock) -> Option<Lock> {
    LOCKS.lock().conflict(wanted).copied()
}

/// Takes a lock without waiting.
///
/// # Errors
/// `EAGAIN` if another owner has a conflicting lock; `ENOLCK`.
pub fn take(wanted: &Lock) -> Result<(), Errno> {
    let mut locks = LOCKS.lock();
    if matches!(wanted.owner, Owner::Whole(_)) {
        // `flock` does not convert a lock in one step: the old lock is released even if the new one is
        // refused.
        locks.cut(wanted)?;
    }
    let free = locks.conflict(wanted).is_none();
    if free {
        locks.cut(wanted)?;
        locks.held.push(*wanted);
    }
    HELD.store(locks.held.len(), Ordering::SeqCst);
    drop(locks);
    // An exclusive lock may have become a shared one.
    wake();
    if free { Ok(()) } else { Err(EAGAIN) }
}

/// Takes a lock, and waits for it if needed.
///
/// # Errors
/// `EDEADLK`, `ENOLCK`, or a signal came.
pub fn wait(wanted: &Lock) -> Result<(), Errno> {
    loop {
        match take(wanted) {
            Err(EAGAIN) => {}
            taken => return taken,
        }
        let of_process = matches!(wanted.owner, Owner::Table(_));
        if of_process {
            let mut locks = LOCKS.lock();
            if locks.is_circle(wanted) {
                return Err(EDEADLK);
            }
            locks.waiting.try_reserve(1).map_err(|_| ENOLCK)?;
            locks.waiting.push(*wanted);
        }
        let check = || Ok(find(wanted).is_some());
        let woken = wait::sleep(key(), u32::MAX, None, Interruptible::Yes, check);
        if of_process {
            let mut locks = LOCKS.lock();
            let same = |lock: &Lock| {
                lock.owner == wanted.owner && lock.file == wanted.file && lock.first == wanted.first
            };
            if let Some(at) = locks.waiting.iter().position(same) {
                locks.waiting.swap_remove(at);
            }
        }
        if woken? == Some(Woken::Signal) && sched::current().is_interrupted() {
            return Err(RESTART);
        }
    }
}

/// Releases a range.
///
/// # Errors
/// `ENOLCK`.
pub fn release(range: &Lock) -> Result<(), Errno> {
    let mut locks = LOCKS.lock();
    locks.cut(range)?;
    HELD.store(locks.held.len(), Ordering::SeqCst);
    drop(locks);
    wake();
    Ok(())
}

/// Releases all locks of an owner, of one file or of all files.
pub fn release_all(owner: Owner, file: Option<FileId>) {
    if !any() {
        return;
    }
    let mut locks = LOCKS.lock();
    let before = locks.held.len();
    let goes = |held: &Lock| held.owner == owner && file.is_none_or(|file| held.file == file);
    locks.held.retain(|held| !goes(held));
    let any = locks.held.len() != before;
    HELD.store(locks.held.len(), Ordering::SeqCst);
    drop(locks);
    if any {
        wake();
    }
}

/// Whether any lock is held. The caller sees its own earlier locks. A thread that locks concurrently checks
/// afterwards whether its file was closed meanwhile.
pub fn any() -> bool {
    HELD.load(Ordering::SeqCst) != 0
}

/// Wakes the waiters after a change of the list, without its lock.
fn wake() {
    wait::wake_address(key(), u32::MAX, u32::MAX);
}
