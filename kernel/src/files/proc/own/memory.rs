//! `/proc/PID/{mem,pagemap,clear_refs}`: a process's memory by its addresses, what is known of its
//! pages, and a way to forget some of that.
//!
//! What was opened stays the memory that the process had then: once the process has ended, or runs
//! another program, there is nothing in it. It holds no memory: a process that has ended gives all
//! of it back, whoever has this open.

use faultless_paging::PhysicalMemory;
use linux_raw_sys::general as linux;

use super::super::processes;
use super::Own;
use crate::arch::uaccess;
use crate::errno::{Answer, EFAULT, EINVAL, EIO, ERANGE, ESRCH, Errno};
use crate::files::copy::scatter;
use crate::memory::machine::Kernel;
use crate::memory::{Access, AgingMode, USER_END};
use crate::process::UserSpace;
use crate::sched;
use crate::shared::Shared;

/// Bytes moved at once.
const PIECE: usize = 1024;
/// Bytes between two breaths.
const BREATH: u64 = 16 << 10;
const PAGE: u64 = 4096;
/// Bytes of what is known of a page.
const WORD: u64 = 8;

/// Which of the files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Memory,
    PageMap,
    ClearRefs,
}

/// One of them, opened.
pub struct MemoryFile {
    what: What,
    process: u32,
    /// The core's number of the memory that the process had; none if it had ended.
    space: Option<u64>,
}

impl MemoryFile {
    /// Opens an entry of a process's directory, if it is one of these.
    pub fn open(process: u32, own: Own) -> Option<Self> {
        let what = match own {
            Own::Memory => What::Memory,
            Own::PageMap => What::PageMap,
            Own::ClearRefs => What::ClearRefs,
            _ => return None,
        };
        let space = processes::find(process).ok().and_then(|p| p.space());
        Some(Self {
            what,
            process,
            space: space.map(|space| space.id().id),
        })
    }

    /// The memory, if the process still has it.
    fn space(&self) -> Option<Shared<UserSpace>> {
        let space = processes::find(self.process).ok()?.space()?;
        (Some(space.id().id) == self.space).then_some(space)
    }

    /// # Errors
    /// `EIO`, `EFAULT`, `EINVAL`, `ENOMEM`.
    pub fn read(&self, position: u64, to: u64, length: u64) -> Answer {
        if self.what == What::ClearRefs {
            return Err(EINVAL);
        }
        let Some(space) = self.space() else {
            return Ok(0);
        };
        match self.what {
            What::PageMap => read_pagemap(&space, position, to, length),
            _ => move_bytes(&space, position, length, Access::Read, |done, piece| {
                uaccess::write_bytes(to.wrapping_add(done), piece)
            }),
        }
    }

    /// # Errors
    /// `EIO`, `EFAULT`, `EINVAL`, `ENOMEM`, `ESRCH`.
    pub fn write(&self, position: u64, from: u64, length: u64) -> Answer {
        match self.what {
            What::PageMap => Err(EINVAL),
            What::ClearRefs => self.clear_refs(from, length),
            What::Memory => match self.space() {
                None => Ok(0),
                Some(space) => {
                    move_bytes(&space, position, length, Access::Write, |done, piece| {
                        uaccess::read_bytes(from.wrapping_add(done), piece)
                    })
                }
            },
        }
    }

    /// Whether a call at the description's own position moves it.
    pub fn has_position(&self) -> bool {
        self.what != What::ClearRefs
    }

    /// Where `lseek` leads to from `here`: addresses go beyond what a file's positions do.
    ///
    /// # Errors
    /// `EINVAL`.
    pub fn seek(&self, here: u64, offset: i64, whence: u32) -> Answer {
        match (self.what, whence) {
            (What::ClearRefs, _) => Ok(here),
            (_, linux::SEEK_SET) => Ok(offset.cast_unsigned()),
            (_, linux::SEEK_CUR) => Ok(here.wrapping_add_signed(offset)),
            _ => Err(EINVAL),
        }
    }

    /// Does what the number that is written says.
    fn clear_refs(&self, from: u64, length: u64) -> Answer {
        // As on Linux: longer than any number that means something.
        let mut text = [0; 12];
        let length = length.min(text.len() as u64);
        uaccess::read_bytes(from, &mut text[..length as usize])?;
        let number = number(&text[..length as usize])?;
        if !(1..=5).contains(&number) {
            return Err(EINVAL);
        }
        // One that has ended has nothing to forget.
        let process = processes::find(self.process).ok();
        match process.and_then(|process| process.space()) {
            None if !processes::exists(self.process) => return Err(ESRCH),
            None => {}
            Some(space) => match number {
                1 => space.clear_accessed(AgingMode::All),
                2 => space.clear_accessed(AgingMode::Anonymous),
                3 => space.clear_accessed(AgingMode::Objects),
                4 => space.clear_soft_dirty(),
                _ => space.forget_peak_rss(),
            },
        }
        Ok(length)
    }
}

/// A decimal number as Linux's files take it: with blanks around it and perhaps a sign.
fn number(text: &[u8]) -> Result<i32, Errno> {
    let end = text.iter().position(|&byte| byte == 0);
    let text = text[..end.unwrap_or(text.len())].trim_ascii();
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(EINVAL);
    }
    // Twelve digits at most.
    let value = digits
        .iter()
        .fold(0i64, |value, digit| 10 * value + i64::from(digit - b'0'));
    i32::try_from(if negative { -value } else { value }).map_err(|_| ERANGE)
}

fn read_pagemap(space: &UserSpace, position: u64, to: u64, length: u64) -> Answer {
    if !position.is_multiple_of(WORD) || !length.is_multiple_of(WORD) {
        return Err(EINVAL);
    }
    let mut page = position / WORD;
    scatter(to, length, |piece| {
        let mut words = [0; PIECE / WORD as usize];
        let count = piece.len() / WORD as usize;
        // Whoever asks may see frames: everybody is root.
        let said = space.pagemap(page, &mut words[..count], true);
        page += said as u64;
        for (bytes, word) in piece.chunks_exact_mut(WORD as usize).zip(&words[..said]) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        said * WORD as usize
    })
}

/// Moves bytes between a process's memory, from an address on, and pieces that `user` fills before
/// they are written and takes when they are read. How many: up to what cannot be reached.
fn move_bytes(
    space: &UserSpace,
    address: u64,
    length: u64,
    access: Access,
    user: impl Fn(u64, &mut [u8]) -> Result<(), Errno>,
) -> Answer {
    let mut buffer = [0; PIECE];
    let (mut done, mut rested) = (0, 0);
    while done < length {
        let at = address.wrapping_add(done);
        let room = (PAGE - at % PAGE).min(PIECE as u64);
        let piece = &mut buffer[..(length - done).min(room) as usize];
        if access == Access::Write {
            user(done, piece).map_err(|_| EFAULT)?;
        }
        if at >= USER_END || reach(space, at, access, piece).is_err() {
            break;
        }
        if access == Access::Read {
            user(done, piece).map_err(|_| EFAULT)?;
        }
        done += piece.len() as u64;
        if done - rested >= BREATH {
            rested = done;
            if !sched::breathe() {
                break;
            }
        }
    }
    match done {
        0 if length > 0 => Err(EIO),
        _ => Ok(done),
    }
}

/// Reads or writes bytes of one page.
fn reach(space: &UserSpace, at: u64, access: Access, piece: &mut [u8]) -> Result<(), Errno> {
    let offset = (at % PAGE) as usize;
    space.access(at, access, &mut |frame| {
        let page = Kernel.pointer(frame).as_ptr();
        // SAFETY: The piece ends where the page does, which stays what it is during the call.
        // Programs may write it meanwhile: it is no Rust value.
        unsafe {
            let there = page.add(offset);
            match access {
                Access::Write => there.copy_from_nonoverlapping(piece.as_ptr(), piece.len()),
                _ => there.copy_to_nonoverlapping(piece.as_mut_ptr(), piece.len()),
            }
        }
    })
}
