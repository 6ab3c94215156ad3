//! `/sys/kernel/mm/page_idle/bitmap`: which pages of programs are idle, by frame number, as `/proc/PID/pagemap` shows it.
//!
//! A bit that is written as 1 marks the page idle, until it is used. Frames without a page of a program have 0 for ever. As in
//! Linux's `sysfs`, a call moves at most a page of the bitmap.

use faultless_mm::{Frame, FrameSource, Machine};

use super::copy::{gather, scatter};
use super::node::{Body, Inode};
use super::sys::folder;
use super::tree;
use crate::errno::{Answer, EINVAL, ENXIO, Errno};
use crate::memory::machine::{Kernel, memory};
use crate::sched;

/// Bytes of a word of the bitmap.
const WORD: u64 = 8;
/// The longest call.
const LONGEST: u64 = 4096;

/// Makes the file.
///
/// # Errors
/// `ENOMEM`.
pub fn build() -> Result<(), Errno> {
    let mut at = tree::root();
    for name in ["sys", "kernel", "mm", "page_idle"] {
        at = folder(&at, name.as_bytes())?;
    }
    let inode = Inode::new(Body::PageIdle, 0o600)?;
    tree::add_special(&at, b"bitmap", inode)
}

/// Returns the first frame number of a call, and how many bytes it can move; `None` behind the last frame.
///
/// # Errors
/// `EINVAL`: not whole words.
fn part(position: u64, length: u64) -> Result<Option<(u64, u64)>, Errno> {
    let length = length.min(LONGEST);
    if !position.is_multiple_of(WORD) || !length.is_multiple_of(WORD) {
        return Err(EINVAL);
    }
    // The last word is whole. Linux's machines have memory of whole words.
    let end = Kernel.frames().extent().end.next_multiple_of(64);
    let first = position.saturating_mul(8);
    let room = end.saturating_sub(first) / 8;
    Ok((room != 0).then_some((first, length.min(room))))
}

/// Reads words of the bitmap. Nothing is behind the last frame.
///
/// # Errors
/// `EINVAL`, `EFAULT`.
pub fn read(position: u64, to: u64, length: u64) -> Answer {
    let Some((mut frame, length)) = part(position, length)? else {
        return Ok(0);
    };
    scatter(to, length, |piece| {
        for bytes in piece.chunks_exact_mut(WORD as usize) {
            let is_idle = |bit: &u64| memory().is_idle(Frame(frame + bit));
            let word = (0..64).filter(is_idle).fold(0, |word, bit| word | 1 << bit);
            bytes.copy_from_slice(&u64::to_le_bytes(word));
            frame += 64;
            sched::cond_resched(|| ());
        }
        piece.len()
    })
}

/// Marks the pages idle that have a 1.
///
/// # Errors
/// `EINVAL`, `EFAULT`; `ENXIO` behind the last frame.
pub fn write(position: u64, from: u64, length: u64) -> Answer {
    let (mut frame, length) = part(position, length)?.ok_or(ENXIO)?;
    gather(from, length, |piece| {
        for bytes in piece.chunks_exact(WORD as usize) {
            let mut word = [0; WORD as usize];
            word.copy_from_slice(bytes);
            let word = u64::from_le_bytes(word);
            (0..64)
                .filter(|bit| word >> bit & 1 != 0)
                .for_each(|bit| memory().set_idle(Frame(frame + bit)));
            frame += 64;
            sched::cond_resched(|| ());
        }
        Ok(piece.len())
    })
}
