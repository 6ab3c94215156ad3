//! Bulk loads and stores, a page at a time.
//!
//! Each piece is one access, which traps or completes as a whole. What was done before a trap stays done, as
//! when a processor copies.

use std::ops::Range;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use faultless_paging::{Access, PAGE_SIZE};

use crate::cpu::{SoftCpu, Trap};

const WORD: usize = size_of::<u64>();

impl SoftCpu<'_> {
    /// Loads `to.len()` bytes from `address`.
    ///
    /// # Errors
    /// The trap that a load takes; its address is the first byte not loaded.
    pub fn load_bytes(&self, address: u64, to: &mut [u8]) -> Result<(), Trap> {
        self.pieces(address, to.len(), Access::Read, |host, part| {
            // SAFETY: the piece lies inside a frame of the arena.
            unsafe { load(host, &mut to[part]) }
        })
    }

    /// Stores `from` at `address`.
    ///
    /// # Errors
    /// The trap that a store takes; its address is the first byte not stored.
    pub fn store_bytes(&self, address: u64, from: &[u8]) -> Result<(), Trap> {
        self.pieces(address, from.len(), Access::Write, |host, part| {
            // SAFETY: the piece lies inside a frame of the arena.
            unsafe { store(host, part.len(), |i| from[part.start + i]) }
        })
    }

    /// Stores `length` times `byte` at `address`.
    ///
    /// # Errors
    /// As [`SoftCpu::store_bytes`].
    pub fn fill(&self, address: u64, length: usize, byte: u8) -> Result<(), Trap> {
        self.pieces(address, length, Access::Write, |host, part| {
            // SAFETY: the piece lies inside a frame of the arena.
            unsafe { store(host, part.len(), |_| byte) }
        })
    }

    fn pieces(
        &self,
        address: u64,
        length: usize,
        access: Access,
        mut act: impl FnMut(*mut u8, Range<usize>),
    ) -> Result<(), Trap> {
        let mut done = 0;
        while done < length {
            // Never wraps in practice: no page beyond user memory is ever accessed.
            let at = address.wrapping_add(done as u64);
            let room = (PAGE_SIZE - at % PAGE_SIZE) as usize;
            let end = length.min(done + room);
            self.access(at, access, |host| act(host, done..end))?;
            done = end;
        }
        Ok(())
    }
}

/// Returns the range of whole words in `length` bytes from `host`.
fn words(host: *const u8, length: usize) -> Range<usize> {
    let first = host.align_offset(WORD).min(length);
    first..first + (length - first) / WORD * WORD
}

/// Loads bytes that other CPUs may be storing: word by word where they are aligned.
///
/// # Safety
/// `to.len()` bytes from `host` on are the arena's.
unsafe fn load(host: *mut u8, to: &mut [u8]) {
    let words = words(host, to.len());
    for i in (0..words.start).chain(words.end..to.len()) {
        // SAFETY: by the caller; programs access it atomically.
        to[i] = unsafe { AtomicU8::from_ptr(host.add(i)) }.load(Ordering::Relaxed);
    }
    let middle = to[words.clone()].chunks_exact_mut(WORD);
    for (chunk, i) in middle.zip(words.step_by(WORD)) {
        // SAFETY: as above, and aligned.
        let word = unsafe { AtomicU64::from_ptr(host.add(i).cast()) };
        chunk.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
    }
}

/// Stores bytes that other CPUs may be loading: word by word where they are aligned.
///
/// # Safety
/// `length` bytes from `host` on are the arena's.
#[inline]
unsafe fn store(host: *mut u8, length: usize, byte: impl Fn(usize) -> u8) {
    let words = words(host, length);
    for i in (0..words.start).chain(words.end..length) {
        // SAFETY: by the caller; programs access it atomically.
        unsafe { AtomicU8::from_ptr(host.add(i)) }.store(byte(i), Ordering::Relaxed);
    }
    for i in words.step_by(WORD) {
        let word = u64::from_ne_bytes(std::array::from_fn(|k| byte(i + k)));
        // SAFETY: as above, and aligned.
        unsafe { AtomicU64::from_ptr(host.add(i).cast()) }.store(word, Ordering::Relaxed);
    }
}
