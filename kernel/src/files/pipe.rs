//! Pipes: a ring of frames between reading and writing ends.
//!
//! Bytes go straight from the writer's memory into the ring and from the ring into the reader's:
//! one writer at a time has the turn to write and one reader the turn to read, and the part of the
//! ring between them belongs to one side or the other by the two counts `written` and `read`, each
//! moved by its side only. User memory may fault and sleep under a turn; nobody sleeps under one
//! for room or for bytes.
//!
//! Sleeping: a side that finds nothing to do counts itself among the waiting ones, looks once more
//! under its bucket's lock, and sleeps; the other side moves its count and then looks whether
//! anybody waits. Both are sequentially consistent, so one sees the other.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use linux_raw_sys::general as linux;

use super::node::NO_PATH;
use super::readiness::{Events, Readiness};
use super::stat::Stat;
use super::turn::{Taken, Turn};
use crate::arch::paging::physical_to_virtual;
use crate::arch::{time, uaccess};
use crate::errno::{Answer, EAGAIN, EBUSY, EINVAL, ENOMEM, EPERM, EPIPE, Errno, RESTART};
use crate::memory::machine::{self, Purpose};
use crate::sched::{
    self,
    wait::{self, Interruptible, Woken},
};
use crate::shared::Shared;
use crate::sync::SpinLock;

const PAGE: u64 = 4096;
/// What a new pipe holds, as on Linux.
const CAPACITY: u64 = 64 << 10;
/// The most that `F_SETPIPE_SZ` gives.
const LARGEST: u64 = 1 << 20;
/// A write of at most so many bytes is not mixed with others.
const ATOMIC: u64 = 4096;

/// One side of a pipe.
struct Side {
    /// Its open ends.
    ends: AtomicU32,
    /// Threads that sleep until it has something to do; they sleep on this word's address.
    waiting: AtomicU32,
    /// Held while bytes are copied.
    turn: Turn,
}

struct Pipe {
    /// Bytes ever written and ever read.
    written: AtomicU64,
    read: AtomicU64,
    capacity: AtomicU64,
    /// Frames, 0 where none was needed yet. Under both turns, or the writer's for what is free and
    /// the reader's for what is not; the lock is for the list itself.
    frames: SpinLock<Vec<u64>>,
    reader: Side,
    writer: Side,
    readiness: Readiness,
    number: u64,
    made: u64,
}

/// Which side an end is on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    Read,
    Write,
}

/// An end. When a side's last one is dropped, the other side notices.
pub struct End {
    pipe: Shared<Pipe>,
    direction: Direction,
}

impl Side {
    const fn new() -> Self {
        Self {
            ends: AtomicU32::new(0),
            waiting: AtomicU32::new(0),
            turn: Turn::new(),
        }
    }

    fn key(&self) -> u64 {
        core::ptr::from_ref(&self.waiting) as u64
    }

    fn is_gone(&self) -> bool {
        self.ends.load(Ordering::SeqCst) == 0
    }

    /// Wakes those who wait for something to do on this side.
    #[inline]
    fn wake(&self) {
        if self.waiting.load(Ordering::SeqCst) != 0 {
            wait::wake_address(self.key(), u32::MAX, u32::MAX);
        }
    }

    /// Sleeps as long as `hopeless` says so.
    fn sleep_while(&self, hopeless: impl Fn() -> bool) -> Result<(), Errno> {
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

impl Pipe {
    fn length(&self) -> u64 {
        // Read first: the difference never looks larger than it was.
        let read = self.read.load(Ordering::SeqCst);
        self.written.load(Ordering::SeqCst).wrapping_sub(read)
    }

    fn room(&self) -> u64 {
        let capacity = self.capacity.load(Ordering::Relaxed);
        capacity.saturating_sub(self.length())
    }

    /// The frame behind a count of bytes, with the bytes left in it.
    fn place(&self, count: u64, add: bool) -> Result<(*mut u8, u64), Errno> {
        let mut frames = self.frames.lock();
        let number = (count / PAGE) as usize % frames.len();
        let frame = &mut frames[number];
        if *frame == 0 && add {
            *frame = machine::allocate_zeroed(Purpose::Pipe).map_err(|_| ENOMEM)?;
        }
        let within = count % PAGE;
        let start = physical_to_virtual(*frame + within);
        Ok((start, PAGE - within))
    }

    /// Copies some bytes from user memory behind those that are there; how many.
    fn put(&self, from: u64, length: u64) -> Result<u64, Errno> {
        let written = self.written.load(Ordering::Relaxed);
        let mut done = 0;
        while done < length {
            let part = self.place(written + done, true).and_then(|(start, left)| {
                let part = left.min(length - done);
                // SAFETY: Free room of the ring, which is the holder's of the writers' turn.
                let room = unsafe { core::slice::from_raw_parts_mut(start, part as usize) };
                uaccess::read_bytes(from.wrapping_add(done), room).map(|()| part)
            });
            match part {
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
                Ok(part) => done += part,
            }
        }
        self.written.store(written + done, Ordering::SeqCst);
        Ok(done)
    }

    /// Copies the first bytes to user memory; how many.
    fn take(&self, to: u64, length: u64) -> Result<u64, Errno> {
        let read = self.read.load(Ordering::Relaxed);
        let mut done = 0;
        while done < length {
            let part = self.place(read + done, false).and_then(|(start, left)| {
                let part = left.min(length - done);
                // SAFETY: Bytes of the ring, which are the holder's of the readers' turn.
                let bytes = unsafe { core::slice::from_raw_parts(start, part as usize) };
                uaccess::write_bytes(to.wrapping_add(done), bytes).map(|()| part)
            });
            match part {
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
                Ok(part) => done += part,
            }
        }
        self.read.store(read + done, Ordering::SeqCst);
        Ok(done)
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        for &frame in self.frames.lock().iter().filter(|&&frame| frame != 0) {
            machine::free(frame);
        }
    }
}

/// The reading and the writing end of a new pipe.
///
/// # Errors
/// `ENOMEM`.
pub fn new() -> Result<(End, End), Errno> {
    static NUMBER: AtomicU64 = AtomicU64::new(16);
    let mut frames = Vec::new();
    let count = (CAPACITY / PAGE) as usize;
    frames.try_reserve_exact(count).map_err(|_| ENOMEM)?;
    frames.resize(count, 0);
    let pipe = Shared::new(Pipe {
        written: AtomicU64::new(0),
        read: AtomicU64::new(0),
        capacity: AtomicU64::new(CAPACITY),
        frames: SpinLock::new(frames),
        reader: Side::new(),
        writer: Side::new(),
        readiness: Readiness::new(),
        number: NUMBER.fetch_add(1, Ordering::Relaxed),
        made: time::real_now(),
    })?;
    let read = End::new(pipe.clone(), Direction::Read);
    Ok((read, End::new(pipe, Direction::Write)))
}

impl End {
    fn new(pipe: Shared<Pipe>, direction: Direction) -> Self {
        let end = Self { pipe, direction };
        end.side().ends.fetch_add(1, Ordering::SeqCst);
        end
    }

    fn side(&self) -> &Side {
        match self.direction {
            Direction::Read => &self.pipe.reader,
            Direction::Write => &self.pipe.writer,
        }
    }

    /// Another end on the same or the other side.
    pub fn again(&self, direction: Direction) -> Self {
        Self::new(self.pipe.clone(), direction)
    }

    /// Reads what is there, up to `length`; if nothing is, sleeps if it may; 0 at the end.
    ///
    /// # Errors
    /// `EFAULT`, `EAGAIN`, or a signal came.
    pub fn read(&self, to: u64, length: u64, may_wait: bool) -> Answer {
        if length == 0 {
            return Ok(0);
        }
        let pipe = &*self.pipe;
        loop {
            let turn = pipe.reader.turn.take()?;
            // Before the look at the bytes: what was written before the end is still read.
            let ended = pipe.writer.is_gone();
            let there = pipe.length();
            if there != 0 {
                let done = pipe.take(to, length.min(there));
                drop(turn);
                pipe.writer.wake();
                pipe.readiness.changed(Events::WRITABLE);
                return done;
            }
            drop(turn);
            if ended {
                return Ok(0);
            }
            if !may_wait {
                return Err(EAGAIN);
            }
            pipe.reader
                .sleep_while(|| pipe.length() == 0 && !pipe.writer.is_gone())?;
        }
    }

    /// Writes all; sleeps, if it may, while there is no room.
    ///
    /// # Errors
    /// `EFAULT`, `EPIPE`, `EAGAIN`, or a signal came before anything was written.
    pub fn write(&self, from: u64, length: u64, may_wait: bool) -> Answer {
        let pipe = &*self.pipe;
        let mut done = 0;
        while done < length {
            match self.write_some(from.wrapping_add(done), length - done, may_wait) {
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
                Ok(some) => {
                    done += some;
                    pipe.reader.wake();
                    pipe.readiness.changed(Events::READABLE);
                }
            }
        }
        Ok(done)
    }

    /// Writes as much as there is room for, but a short piece only as a whole.
    fn write_some(&self, from: u64, length: u64, may_wait: bool) -> Result<u64, Errno> {
        let pipe = &*self.pipe;
        let least = if length <= ATOMIC { length } else { 1 };
        loop {
            let turn = pipe.writer.turn.take()?;
            if pipe.reader.is_gone() {
                return Err(EPIPE);
            }
            let room = pipe.room();
            if room >= least {
                return pipe.put(from, length.min(room));
            }
            drop(turn);
            if !may_wait {
                return Err(EAGAIN);
            }
            pipe.writer
                .sleep_while(|| pipe.room() < least && !pipe.reader.is_gone())?;
        }
    }

    /// What can be done without waiting.
    pub fn events(&self) -> Events {
        let pipe = &*self.pipe;
        match self.direction {
            Direction::Read => {
                let gone = pipe.writer.is_gone();
                let mut events = Events::empty();
                events.set(Events::READABLE, pipe.length() != 0);
                events.set(Events::HANG_UP, gone);
                events
            }
            Direction::Write => {
                let mut events = Events::empty();
                events.set(Events::WRITABLE, pipe.room() >= ATOMIC);
                events.set(Events::ERROR, pipe.reader.is_gone());
                events
            }
        }
    }

    pub fn readiness(&self) -> &Readiness {
        &self.pipe.readiness
    }

    /// Bytes that wait to be read.
    pub fn length(&self) -> u64 {
        self.pipe.length()
    }

    pub fn capacity(&self) -> u64 {
        self.pipe.capacity.load(Ordering::Relaxed)
    }

    /// Makes the ring larger or smaller; its size.
    ///
    /// # Errors
    /// `EINVAL`, `EPERM` for too much, `EBUSY` if more is in it, `ENOMEM`.
    pub fn set_capacity(&self, wanted: u64) -> Answer {
        if wanted > 1 << 31 {
            return Err(EINVAL);
        }
        let capacity = wanted.max(PAGE).next_power_of_two();
        if capacity > LARGEST {
            return Err(EPERM);
        }
        let pipe = &*self.pipe;
        let _turns: (Taken<'_>, Taken<'_>) = (pipe.reader.turn.take()?, pipe.writer.turn.take()?);
        let (read, length) = (pipe.read.load(Ordering::Relaxed), pipe.length());
        // The first byte's frame may be used in part only.
        let held = (read % PAGE + length).div_ceil(PAGE);
        if held > capacity / PAGE {
            return Err(EBUSY);
        }
        let count = (capacity / PAGE) as usize;
        let mut new = Vec::new();
        new.try_reserve_exact(count).map_err(|_| ENOMEM)?;
        new.resize(count, 0);
        // The last bytes may be in the first byte's frame, before it: they get one of their own.
        let wraps = held > self.capacity() / PAGE;
        let tail = if wraps {
            machine::allocate_zeroed(Purpose::Pipe).map_err(|_| ENOMEM)?
        } else {
            0
        };
        let mut old = {
            let mut frames = pipe.frames.lock();
            let first = read / PAGE;
            if wraps {
                let from = frames[first as usize % frames.len()];
                // SAFETY: Both are frames of this pipe, whose turns are both held.
                unsafe {
                    physical_to_virtual(tail)
                        .copy_from_nonoverlapping(physical_to_virtual(from), PAGE as usize);
                }
            }
            for page in first..first + held {
                let from = page as usize % frames.len();
                new[page as usize % count] = core::mem::take(&mut frames[from]);
            }
            if wraps {
                new[(first + held - 1) as usize % count] = tail;
            }
            pipe.capacity.store(capacity, Ordering::Relaxed);
            core::mem::replace(&mut *frames, new)
        };
        old.retain(|&frame| frame != 0);
        old.into_iter().for_each(machine::free);
        pipe.writer.wake();
        pipe.readiness.changed(Events::WRITABLE);
        Ok(capacity)
    }

    pub fn stat(&self) -> Stat {
        Stat {
            filesystem: NO_PATH,
            number: self.pipe.number,
            mode: linux::S_IFIFO | 0o600,
            links: 1,
            block_size: PAGE,
            accessed: self.pipe.made,
            modified: self.pipe.made,
            changed: self.pipe.made,
            born: self.pipe.made,
            ..Stat::default()
        }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if self.side().ends.fetch_sub(1, Ordering::SeqCst) != 1 {
            return;
        }
        let pipe = &*self.pipe;
        pipe.reader.wake();
        pipe.writer.wake();
        pipe.readiness.changed(Events::all());
    }
}
