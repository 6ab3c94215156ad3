//! A pipe's bytes: a ring of frames that grows on demand.
//!
//! Bytes go directly from the writer's memory into the ring, and from the ring into the reader's. The counts
//! `written` and `read` divide the ring between the two sides. Only the holder of a side's turn moves its
//! count.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use crate::arch::paging::physical_to_virtual;
use crate::arch::uaccess;
use crate::errno::{EBUSY, ENOMEM, Errno};
use crate::memory::machine::{self, Purpose};
use crate::sync::SpinLock;

pub const PAGE: u64 = 4096;

pub struct Ring {
    /// Bytes ever written and ever read. Sequentially consistent, for sleepers (`side`).
    written: AtomicU64,
    read: AtomicU64,
    capacity: AtomicU64,
    /// Frames, 0 where none was needed yet. Free ones are under the writers' turn, filled ones under the
    /// readers', all under both turns. The lock protects the list itself.
    frames: SpinLock<Vec<u64>>,
}

/// Empty slots for the frames of `capacity` bytes.
fn no_frames(capacity: u64) -> Result<Vec<u64>, Errno> {
    let count = (capacity / PAGE) as usize;
    let mut frames = Vec::new();
    frames.try_reserve_exact(count).map_err(|_| ENOMEM)?;
    frames.resize(count, 0);
    Ok(frames)
}

impl Ring {
    /// Makes an empty ring for `capacity` bytes, a multiple of a page.
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
        // `read` first: the difference is never negative, and never smaller than it was.
        let read = self.read.load(Ordering::SeqCst);
        self.written.load(Ordering::SeqCst).wrapping_sub(read)
    }

    /// Bytes of free space.
    pub fn room(&self) -> u64 {
        self.capacity().saturating_sub(self.length())
    }

    /// Returns the address of a byte by its count, with the bytes left in its frame.
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

    /// Appends bytes from user memory, at most as many as fit. Returns how many. The caller holds the
    /// writers' turn.
    ///
    /// # Errors
    /// `EFAULT`, `ENOMEM`, if nothing was copied.
    pub fn put(&self, from: u64, length: u64) -> Result<u64, Errno> {
        let written = self.written.load(Ordering::Relaxed);
        let mut done = 0;
        while done < length {
            let part = self.place(written + done, true).and_then(|(start, left)| {
                let part = left.min(length - done);
                // SAFETY: Free space of the ring, which belongs to the holder of the writers' turn.
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

    /// Copies the first bytes to user memory, at most as many as there are. Returns how many. The caller
    /// holds the readers' turn.
    ///
    /// # Errors
    /// `EFAULT`, if nothing was copied.
    pub fn take(&self, to: u64, length: u64) -> Result<u64, Errno> {
        let read = self.read.load(Ordering::Relaxed);
        let mut done = 0;
        while done < length {
            let part = self.place(read + done, false).and_then(|(start, left)| {
                let part = left.min(length - done);
                // SAFETY: Filled bytes of the ring, which belong to the holder of the readers' turn.
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

    /// Changes the capacity, a power of two. The caller holds both turns.
    ///
    /// # Errors
    /// `EBUSY` if it holds more, `ENOMEM`.
    pub fn resize(&self, capacity: u64) -> Result<(), Errno> {
        let (read, length) = (self.read.load(Ordering::Relaxed), self.length());
        // The first byte's frame may be used only in part.
        let held = (read % PAGE + length).div_ceil(PAGE);
        if held > capacity / PAGE {
            return Err(EBUSY);
        }
        let mut new = no_frames(capacity)?;
        let count = new.len();
        // The last bytes may wrap into the first byte's frame, before it: they get a frame of their own.
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
                // SAFETY: Both are frames of this pipe, and the caller holds both turns.
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
