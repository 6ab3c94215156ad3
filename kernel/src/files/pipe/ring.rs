//! A pipe's bytes: a ring of frames that grows by need.
//!
//! Bytes go straight from the writer's memory into the ring and from the ring into the reader's.
//! The part of the ring between the two belongs to one side or the other by the two counts
//! `written` and `read`, each moved only by whoever has that side's turn.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::arch::paging::physical_to_virtual;
use crate::arch::uaccess;
use crate::errno::{EBUSY, ENOMEM, Errno};
use crate::memory::machine::{self, Purpose};
use crate::sync::SpinLock;

pub const PAGE: u64 = 4096;

pub struct Ring {
    /// Bytes ever written and ever read. Sequentially consistent for those who sleep (`side`).
    written: AtomicU64,
    read: AtomicU64,
    capacity: AtomicU64,
    /// Frames, 0 where none was needed yet. Under both turns, or the writer's for what is free and
    /// the reader's for what is not; the lock is for the list itself.
    frames: SpinLock<Vec<u64>>,
}

/// Places for the frames of so many bytes.
fn no_frames(capacity: u64) -> Result<Vec<u64>, Errno> {
    let count = (capacity / PAGE) as usize;
    let mut frames = Vec::new();
    frames.try_reserve_exact(count).map_err(|_| ENOMEM)?;
    frames.resize(count, 0);
    Ok(frames)
}

impl Ring {
    /// An empty one that may hold `capacity` bytes, a multiple of a page.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(capacity: u64) -> Result<Self, Errno> {
        Ok(Self {
            written: AtomicU64::new(0),
            read: AtomicU64::new(0),
            capacity: AtomicU64::new(capacity),
            frames: SpinLock::new(no_frames(capacity)?),
        })
    }

    pub fn capacity(&self) -> u64 {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Bytes that wait to be read.
    pub fn length(&self) -> u64 {
        // Read first: the difference never looks larger than it was.
        let read = self.read.load(Ordering::SeqCst);
        self.written.load(Ordering::SeqCst).wrapping_sub(read)
    }

    /// Bytes that fit beside them.
    pub fn room(&self) -> u64 {
        self.capacity().saturating_sub(self.length())
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

    /// Copies some bytes from user memory behind those that are there, at most as many as there is
    /// room for; how many. Under the writers' turn.
    ///
    /// # Errors
    /// `EFAULT`, `ENOMEM`, if it was none.
    pub fn put(&self, from: u64, length: u64) -> Result<u64, Errno> {
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

    /// Copies the first bytes to user memory, at most as many as there are; how many. Under the
    /// readers' turn.
    ///
    /// # Errors
    /// `EFAULT`, if it was none.
    pub fn take(&self, to: u64, length: u64) -> Result<u64, Errno> {
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

    /// Makes it larger or smaller, a power of two. Under both turns.
    ///
    /// # Errors
    /// `EBUSY` if more is in it, `ENOMEM`.
    pub fn resize(&self, capacity: u64) -> Result<(), Errno> {
        let (read, length) = (self.read.load(Ordering::Relaxed), self.length());
        // The first byte's frame may be used in part only.
        let held = (read % PAGE + length).div_ceil(PAGE);
        if held > capacity / PAGE {
            return Err(EBUSY);
        }
        let mut new = no_frames(capacity)?;
        let count = new.len();
        // The last bytes may be in the first byte's frame, before it: they get one of their own.
        let wraps = held > self.capacity() / PAGE;
        let tail = if wraps {
            machine::allocate_zeroed(Purpose::Pipe).map_err(|_| ENOMEM)?
        } else {
            0
        };
        let mut old = {
            let mut frames = self.frames.lock();
            let first = read / PAGE;
            if wraps {
                let from = frames[first as usize % frames.len()];
                // SAFETY: Both are frames of this pipe, of which nobody else has a turn.
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
            self.capacity.store(capacity, Ordering::Relaxed);
            core::mem::replace(&mut *frames, new)
        };
        old.retain(|&frame| frame != 0);
        old.into_iter().for_each(machine::free);
        Ok(())
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        for &frame in self.frames.lock().iter().filter(|&&frame| frame != 0) {
            machine::free(frame);
        }
    }
}
