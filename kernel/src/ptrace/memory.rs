//! A tracee's memory, a word at a time, whatever its mappings allow. A word may lie in two pages.

use super::with_stopped;
use crate::arch::uaccess;
use crate::errno::{Answer, EIO, Errno};
use crate::memory::machine::Kernel;
use crate::memory::{Access, Frame, PAGE_SIZE, PhysicalMemory};
use crate::process::UserSpace;
use crate::shared::Shared;

const WORD: usize = size_of::<u64>();

fn space(id: u32) -> Result<Shared<UserSpace>, Errno> {
    with_stopped(id, |thread, _| thread.process().space().ok_or(EIO))
}

/// Calls `f` for each part of a word, with its address and with the bytes of the word that it holds.
fn each(
    space: &UserSpace,
    address: u64,
    access: Access,
    f: &mut dyn FnMut(*mut u8, core::ops::Range<usize>),
) -> Result<(), Errno> {
    let mut done = 0;
    while done < WORD {
        let at = address.checked_add(done as u64).ok_or(EIO)?;
        let offset = at % PAGE_SIZE;
        let end = WORD.min(done + (PAGE_SIZE - offset) as usize);
        let mut part = |frame: Frame| {
            // SAFETY: In the page.
            let start = unsafe { Kernel.pointer(frame).as_ptr().add(offset as usize) };
            f(start, done..end);
        };
        space.access(at, access, &mut part).map_err(|_| EIO)?;
        done = end;
    }
    Ok(())
}

/// Copies a word to the tracer's memory.
pub fn peek(id: u32, address: u64, to: u64) -> Answer {
    let mut bytes = [0; WORD];
    each(&*space(id)?, address, Access::Read, &mut |from, part| {
        // SAFETY: As many bytes as are there; the program may write them meanwhile, in pieces.
        unsafe { bytes[part.clone()].as_mut_ptr().copy_from(from, part.len()) };
    })?;
    uaccess::write(to, &bytes).map(|()| 0)
}

/// Writes a word from the tracer.
pub fn poke(id: u32, address: u64, value: u64) -> Answer {
    let bytes = value.to_le_bytes();
    each(&*space(id)?, address, Access::Write, &mut |to, part| {
        // SAFETY: As above.
        unsafe { to.copy_from(bytes[part.clone()].as_ptr(), part.len()) };
    })?;
    Ok(0)
}
