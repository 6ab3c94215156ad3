//! Pipes: a ring of bytes between reading and writing ends.
//!
//! `ring` holds the bytes. `side` is what the ends on one side have in common: their count, their sleepers
//! and their turn. One writer at a time holds the turn to write, and one reader the turn to read. User memory
//! may fault and sleep under a turn; waits for room or for bytes hold no turn.

mod ring;
mod side;

use core::sync::atomic::{AtomicU64, Ordering};

use linux_raw_sys::general as linux;

use super::node::NO_PATH;
use super::readiness::{Events, Readiness};
use super::stat::Stat;
use super::turn::Taken;
use crate::arch::time;
use crate::errno::{Answer, EAGAIN, EINVAL, EPERM, EPIPE, Errno};
use crate::shared::Shared;
use ring::{PAGE, Ring};
use side::Side;

/// The capacity of a new pipe, as on Linux.
const CAPACITY: u64 = 64 << 10;
/// The largest capacity that `F_SETPIPE_SZ` sets.
const LARGEST: u64 = 1 << 20;
/// A write of at most so many bytes is atomic.
const ATOMIC: u64 = 4096;

struct Pipe {
    ring: Ring,
    reader: Side,
    writer: Side,
    readiness: Readiness,
    number: u64,
    made: u64,
}

/// The side of an end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    Read,
    Write,
}

/// An end. Dropping the last end of a side wakes the other side.
pub struct End {
    pipe: Shared<Pipe>,
    direction: Direction,
}

/// Makes a pipe. Returns its reading and its writing end.
///
/// # Errors
/// `ENOMEM`.
pub fn new() -> Result<(End, End), Errno> {
    static NUMBER: AtomicU64 = AtomicU64::new(16);
    let pipe = Shared::new(Pipe {
        ring: Ring::new(CAPACITY)?,
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

    /// Makes another end on the same or the other side.
    pub fn again(&self, direction: Direction) -> Self {
        Self::new(self.pipe.clone(), direction)
    }

    /// Reads the available bytes, up to `length`. If there are none, sleeps if it may. Returns 0 at the end.
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
            // Read before the length: bytes written before the last writer closed are still read.
            let ended = pipe.writer.is_gone();
            let there = pipe.ring.length();
            if there != 0 {
                let done = pipe.ring.take(to, length.min(there));
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
                .sleep_while(|| pipe.ring.length() == 0 && !pipe.writer.is_gone())?;
        }
    }

    /// Writes all bytes. Sleeps, if it may, while there is no room.
    ///
    /// # Errors
    /// `EFAULT`, `EPIPE`, `EAGAIN`, or a signal came before anything was written.
    pub fn write(&self, from: u64, length: u64, may_wait: bool) -> Answer {
        let mut done = 0;
        while done < length {
            let left = length - done;
            // A short write is done only as a whole.
            let least = if left <= ATOMIC { left } else { 1 };
            match self.write_some(from.wrapping_add(done), left, least, may_wait) {
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
                Ok(some) => done += some,
            }
        }
        Ok(done)
    }

    /// Writes as many bytes as fit. Sleeps, if it may, while not even `least` do.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    pub fn write_some(&self, from: u64, length: u64, least: u64, may_wait: bool) -> Answer {
        let pipe = &*self.pipe;
        loop {
            let turn = pipe.writer.turn.take()?;
            if pipe.reader.is_gone() {
                return Err(EPIPE);
            }
            let room = pipe.ring.room();
            if room >= least {
                let done = pipe.ring.put(from, length.min(room))?;
                drop(turn);
                pipe.reader.wake();
                pipe.readiness.changed(Events::READABLE);
                return Ok(done);
            }
            drop(turn);
            if !may_wait {
                return Err(EAGAIN);
            }
            pipe.writer
                .sleep_while(|| pipe.ring.room() < least && !pipe.reader.is_gone())?;
        }
    }

    /// The events that are ready now.
    pub fn events(&self) -> Events {
        let pipe = &*self.pipe;
        match self.direction {
            Direction::Read => {
                let gone = pipe.writer.is_gone();
                let mut events = Events::empty();
                events.set(Events::READABLE, pipe.ring.length() != 0);
                events.set(Events::HANG_UP, gone);
                events
            }
            Direction::Write => {
                let mut events = Events::empty();
                events.set(Events::WRITABLE, pipe.ring.room() >= ATOMIC);
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
        self.pipe.ring.length()
    }

    pub fn capacity(&self) -> u64 {
        self.pipe.ring.capacity()
    }

    /// Changes the capacity. Returns the new one.
    ///
    /// # Errors
    /// `EINVAL`, `EPERM` for too much, `EBUSY` if it holds more, `ENOMEM`.
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
        pipe.ring.resize(capacity)?;
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
