//! `/proc/PID/{mem,pagemap,clear_refs}`: a process's memory by address, the state of its pages, and a way to
//! reset some of that state.
//!
//! An open file refers to the address space that the process had when it was opened. It is empty once the
//! process has ended, or runs another program. It holds no memory: a process that ends frees all of it,
//! whatever has the file open.

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

/// Bytes moved at a time.
const PIECE: usize = 1024;
/// Bytes between two calls of `sched::breathe`.
const BREATH: u64 = 16 << 10;
const PAGE: u64 = 4096;
/// Bytes of a page's entry in `pagemap`.
const WORD: u64 = 8;

/// Which of these files.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    Memory,
    PageMap,
    ClearRefs,
}

/// One of these files, opened.
pub struct MemoryFile {
    what: What,
    process: u32,
    /// The memory core's number of the address space; none if the process had ended.
    space: Option<u64>,
}

impl MemoryFile {
    /// Opens an entry of a process's directory, if it is one of these files.
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

    /// The address space, if the process still has it.
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

    /// Returns where `lseek` leads to from `here`. Addresses exceed the positions of regular files.
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

    /// Does what the written number says.
    fn clear_refs(&self, from: u64, length: u64) -> Answer {
        // As on Linux: longer than any valid number.
        let mut text = [0; 12];
        let length = length.min(text.len() as u64);
        uaccess::read_bytes(from, &mut text[..length as usize])?;
        let number = number(&text[..length as usize])?;
        if !(1..=5).contains(&number) {
            return Err(EINVAL);
        }
        // A process that has ended has no state to reset.
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

/// Parses a decimal number as Linux's files do: with blanks around it and an optional sign.
pub fn number(text: &[u8]) -> Result<i32, Errno> {
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
        // Every process is root, so the reader may see frames.
        let said = space.pagemap(page, &mut words[..count], true);
        page += said as u64;
        for (bytes, word) in piece.chunks_exact_mut(WORD as usize).zip(&words[..said]) {
            bytes.copy_from_slice(&word.to_le_bytes());
        }
        said * WORD as usize
    })
}

/// Moves bytes between a process's memory, from an address on, and `user`. That fills each piece before it is
/// written, and takes each piece after it is read. Returns how many bytes: up to the first that cannot be
/// accessed.
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
        // SAFETY: The piece ends where the page does, and the page stays what it is during the call. Programs
        // may write it meanwhile: it is no Rust value.
        unsafe {
            let there = page.add(offset);
            match access {
                Access::Write => there.copy_from_nonoverlapping(piece.as_ptr(), piece.len()),
                _ => there.copy_to_nonoverlapping(piece.as_mut_ptr(), piece.len()),
            }
        }
    })
}
