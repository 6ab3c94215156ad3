//! `process_vm_readv` and `process_vm_writev`: copying between this process's memory and another process's.
//!
//! The remote side is pinned one page at a time (`faultless_mm::Taken`), and accessed through the kernel's
//! own mapping of all memory. The local side is accessed like any user memory, so that a fault on it may
//! sleep while the remote page is pinned.
//!
//! Both vectors are read before anything is copied. The result counts the bytes copied, page by page of
//! either side, up to the first page that cannot be accessed.

use alloc::vec::Vec;

use faultless_mm::{PAGE_SIZE, PhysicalMemory, Taken};

use super::file::transfer::{self, PIECES};
use crate::arch::uaccess;
use crate::errno::{Answer, EFAULT, EINVAL, ENOMEM, ESRCH, Errno};
use crate::memory::machine::memory;
use crate::process::family;
use crate::process::space::UserSpace;
use crate::sched;
use crate::sched::thread::Work;

/// The direction of a copy.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// From the other process.
    Read,
    /// To the other process.
    Write,
}

/// A vector as the caller gives it.
pub struct Vector {
    pub at: u64,
    pub count: u64,
}

pub fn process_vm_readv(id: u64, here: &Vector, there: &Vector, flags: u64) -> Answer {
    copy(id, here, there, flags, Way::Read)
}

pub fn process_vm_writev(id: u64, here: &Vector, there: &Vector, flags: u64) -> Answer {
    copy(id, here, there, flags, Way::Write)
}

fn copy(id: u64, here: &Vector, there: &Vector, flags: u64, way: Way) -> Answer {
    if flags != 0 {
        return Err(EINVAL);
    }
    let left = transfer::check_vector(here.at, here.count)?;
    if left == 0 {
        return Ok(0);
    }
    let mut here = Here {
        pieces: pieces(here)?,
        number: 0,
        done: 0,
        left,
    };
    let there = pieces(there)?;
    if there.iter().all(|&[_, length]| length == 0) {
        return Ok(0);
    }
    let process = family::find_thread(id as u32).ok_or(ESRCH)?;
    let space = process.space().ok_or(ESRCH)?;
    let copied = there
        .iter()
        .try_for_each(|&[at, length]| copy_piece(&space, at, length, &mut here, way));
    match left - here.left {
        0 => copied.map(|()| 0),
        copied => Ok(copied),
    }
}

/// Reads a vector's pieces; refuses lengths above `i64::MAX`.
fn pieces(vector: &Vector) -> Result<Vec<[u64; 2]>, Errno> {
    if vector.count > PIECES {
        return Err(EINVAL);
    }
    let mut pieces = Vec::new();
    pieces
        .try_reserve_exact(vector.count as usize)
        .map_err(|_| ENOMEM)?;
    for number in 0..vector.count {
        pieces.push(transfer::piece(vector.at, number)?);
    }
    match pieces.iter().any(|&[_, length]| length > i64::MAX as u64) {
        true => Err(EINVAL),
        false => Ok(pieces),
    }
}

/// Progress of a copy on the local side.
struct Here {
    pieces: Vec<[u64; 2]>,
    number: usize,
    /// Bytes done of that piece.
    done: u64,
    /// Bytes left of all pieces.
    left: u64,
}

impl Here {
    /// The next range, within one page; `None` when nothing is left.
    fn next(&mut self) -> Option<(u64, u64)> {
        loop {
            let [at, length] = *self.pieces.get(self.number)?;
            if self.done < length && self.left > 0 {
                let at = at.wrapping_add(self.done);
                let in_page = PAGE_SIZE - at % PAGE_SIZE;
                return Some((at, in_page.min(length - self.done).min(self.left)));
            }
            if self.left == 0 {
                return None;
            }
            (self.number, self.done) = (self.number + 1, 0);
        }
    }

    fn advance(&mut self, length: u64) {
        self.done += length;
        self.left -= length;
    }
}

/// Copies one piece of the remote side, as far as the local side has room.
fn copy_piece(
    space: &UserSpace,
    at: u64,
    length: u64,
    here: &mut Here,
    way: Way,
) -> Result<(), Errno> {
    let taken = match way {
        Way::Read => Taken::ToRead,
        Way::Write => Taken::ToWrite,
    };
    let mut done = 0;
    while done < length && here.left > 0 {
        let at = at.checked_add(done).ok_or(EFAULT)?;
        let page = space.pin(at, taken).map_err(|_| EFAULT)?;
        let start = memory().machine().pointer(page.frame()).as_ptr();
        let mut offset = at % PAGE_SIZE;
        let end = PAGE_SIZE.min(offset + (length - done));
        while offset < end
            && let Some((user, room)) = here.next()
        {
            let length = room.min(end - offset);
            // SAFETY: inside the frame, which is pinned; programs may write it meanwhile.
            unsafe {
                let there = start.add(offset as usize);
                match way {
                    Way::Read => uaccess::write_from(user, there, length as usize)?,
                    Way::Write => uaccess::read_to(user, there, length as usize)?,
                }
            }
            here.advance(length);
            offset += length;
            done += length;
        }
        drop(page);
        if !sched::breathe() && sched::current().work().contains(Work::EXIT) {
            break;
        }
    }
    Ok(())
}
