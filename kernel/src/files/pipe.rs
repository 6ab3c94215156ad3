//! Pipes: a ring of one page between a reading and a writing end.
//!
//! User memory is copied in small pieces through the kernel stack, because it may not be touched
//! under the ring's lock. Both ends sleep on the ring's address.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, Ordering};

use crate::arch::uaccess;
use crate::errno::{ENOMEM, EPIPE, Errno, RESTART};
use crate::sched::wait::{self, Interruptible, Woken};
use crate::shared::Shared;
use crate::sync::SpinLock;

const CAPACITY: usize = 4096;
const PIECE: usize = 256;

struct Ring {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

struct Pipe {
    ring: SpinLock<Ring>,
    /// An end is gone.
    closed: AtomicBool,
}

/// One end. When its last copy is dropped, the other end notices.
#[derive(Clone)]
pub struct End(Shared<Inner>);

struct Inner(Shared<Pipe>);

impl Drop for Inner {
    fn drop(&mut self) {
        self.0.closed.store(true, Ordering::Release);
        self.0.wake();
    }
}

impl Pipe {
    fn key(&self) -> u64 {
        core::ptr::from_ref(self) as u64
    }

    fn wake(&self) {
        wait::wake_address(self.key(), u32::MAX, u32::MAX);
    }

    /// Sleeps while `hopeless`, called with the ring's length, says so and both ends are there.
    fn sleep_while(&self, hopeless: impl Fn(usize) -> bool) -> Result<(), Errno> {
        let check =
            || Ok(hopeless(self.ring.lock().length) && !self.closed.load(Ordering::Acquire));
        match wait::sleep(self.key(), u32::MAX, None, Interruptible::Yes, check)? {
            Some(Woken::Signal) => Err(RESTART),
            _ => Ok(()),
        }
    }
}

/// The reading and the writing end of a new pipe.
///
/// # Errors
/// `ENOMEM`.
pub fn new() -> Result<(End, End), Errno> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(CAPACITY).map_err(|_| ENOMEM)?;
    bytes.resize(CAPACITY, 0);
    let ring = SpinLock::new(Ring {
        bytes,
        start: 0,
        length: 0,
    });
    let pipe = Shared::new(Pipe {
        ring,
        closed: AtomicBool::new(false),
    })?;
    let read = End(Shared::new(Inner(pipe.clone()))?);
    let write = End(Shared::new(Inner(pipe))?);
    Ok((read, write))
}

impl End {
    /// Reads what is there, up to `length`; sleeps if nothing is; 0 at the end.
    ///
    /// # Errors
    /// `EFAULT`, or a signal came.
    pub fn read(&self, to: u64, length: u64) -> Result<u64, Errno> {
        let pipe = &self.0.0;
        let mut piece = [0; PIECE];
        let size = length.min(PIECE as u64) as usize;
        if size == 0 {
            return Ok(0);
        }
        loop {
            let closed = pipe.closed.load(Ordering::Acquire);
            let taken = {
                let mut ring = pipe.ring.lock();
                let taken = size.min(ring.length);
                for byte in &mut piece[..taken] {
                    *byte = ring.bytes[ring.start];
                    ring.start = (ring.start + 1) % CAPACITY;
                }
                ring.length -= taken;
                taken
            };
            if taken != 0 || closed {
                pipe.wake();
                uaccess::write_bytes(to, &piece[..taken])?;
                return Ok(taken as u64);
            }
            pipe.sleep_while(|length| length == 0)?;
        }
    }

    /// Writes all; sleeps while there is no room.
    ///
    /// # Errors
    /// `EFAULT`, `EPIPE`, or a signal came before anything was written.
    pub fn write(&self, from: u64, length: u64) -> Result<u64, Errno> {
        let pipe = &self.0.0;
        let mut piece = [0; PIECE];
        let mut done = 0;
        while done < length {
            let piece = &mut piece[..(length - done).min(PIECE as u64) as usize];
            match self.write_piece(pipe, from.wrapping_add(done), piece) {
                Err(error) if done == 0 => return Err(error),
                Err(_) => break,
                Ok(()) => done += piece.len() as u64,
            }
        }
        Ok(done)
    }

    fn write_piece(&self, pipe: &Pipe, from: u64, piece: &mut [u8]) -> Result<(), Errno> {
        uaccess::read_bytes(from, piece)?;
        loop {
            if pipe.closed.load(Ordering::Acquire) {
                return Err(EPIPE);
            }
            {
                let mut ring = pipe.ring.lock();
                if CAPACITY - ring.length >= piece.len() {
                    for &byte in piece.iter() {
                        let at = (ring.start + ring.length) % CAPACITY;
                        ring.bytes[at] = byte;
                        ring.length += 1;
                    }
                    drop(ring);
                    pipe.wake();
                    return Ok(());
                }
            }
            pipe.sleep_while(|length| CAPACITY - length < piece.len())?;
        }
    }
}
