//! Locks of files: ranges that a process or a description locks (`fcntl`), and whole files that a
//! description locks (`flock`). The two kinds do not see each other.
//!
//! All are in one list under one spin lock, for there are few. Who has to wait sleeps on the list's
//! address, and looks again whenever any lock goes. A waiting process is in a second list, in which
//! the next one to wait looks for a circle (`EDEADLK`).

use alloc::vec::Vec;
use core::sync::atomic::{AtomicUsize, Ordering};

use crate::errno::{EAGAIN, EDEADLK, ENOLCK, Errno, RESTART};
use crate::sched::wait::{self, Interruptible, Woken};
use crate::sched::{self};
use crate::sync::SpinLock;

/// Whose a lock is. The addresses are only compared: they are those of a table or a description
/// that gives its locks back before it goes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// The processes that have a descriptor table.
    Table(usize),
    /// A description, by `F_OFD_SETLK`.
    Description(usize),
    /// A description, by `flock`.
    Whole(usize),
}

/// Which file: its file system, and its number there.
pub type FileId = (u32, u64);

/// A lock.
#[derive(Clone, Copy)]
pub struct Lock {
    pub file: FileId,
    pub owner: Owner,
    /// Nobody else may have one, not even a shared one.
    pub exclusive: bool,
    pub first: u64,
    /// The last byte; `u64::MAX` for all there will ever be.
    pub last: u64,
    /// As `F_GETLK` says it: -1 for a description's.
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

/// How many are held. Most programs lock nothing, and closing a file costs them one look at this.
static HELD: AtomicUsize = AtomicUsize::new(0);

fn key() -> u64 {
    &raw const LOCKS as u64
}

impl Locks {
    fn conflict(&self, wanted: &Lock) -> Option<&Lock> {
        self.held.iter().find(|held| held.conflicts(wanted))
    }

    /// Takes a range from what its owner holds there; the locks that are left on either side stay.
    ///
    /// # Errors
    /// `ENOLCK`: no memory.
    fn cut(&mut self, range: &Lock) -> Result<(), Errno> {
        // One lock at most lies on both sides of the range, and one is going to be added.
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

    /// Whether waiting for a lock would close a circle of processes that wait for each other.
    fn is_circle(&self, wanted: &Lock) -> bool {
        let mut step = *wanted;
        // Longer chains are taken for none, as on Linux.
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

/// The lock that keeps one from being taken.
pub fn find(wanted: &Lock) -> Option<Lock> {
    LOCKS.lock().conflict(wanted).copied()
}

/// Takes a lock at once.
///
/// # Errors
/// `EAGAIN` if somebody has one; `ENOLCK`.
pub fn take(wanted: &Lock) -> Result<(), Errno> {
    let mut locks = LOCKS.lock();
    if matches!(wanted.owner, Owner::Whole(_)) {
        // Another kind of the same lock is not taken in one step: it goes first, come what may.
        locks.cut(wanted)?;
    }
    let free = locks.conflict(wanted).is_none();
    if free {
        locks.cut(wanted)?;
        locks.held.push(*wanted);
    }
    HELD.store(locks.held.len(), Ordering::SeqCst);
    drop(locks);
    // An exclusive one may have become a shared one.
    wake();
    if free { Ok(()) } else { Err(EAGAIN) }
}

/// Takes a lock, and waits for it.
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

/// Gives a range back.
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

/// Gives back all that an owner has, of one file or of all.
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

/// Whether there are any. What the caller locked before is seen; whoever locks now looks afterwards
/// whether its file was closed meanwhile.
pub fn any() -> bool {
    HELD.load(Ordering::SeqCst) != 0
}

/// The list has changed: tells those who wait, without its lock.
fn wake() {
    wait::wake_address(key(), u32::MAX, u32::MAX);
}
