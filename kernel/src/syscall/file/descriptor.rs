//! Calls on descriptors themselves: `dup`, `fsync` and advice.

use linux_raw_sys::general as linux;

use crate::errno::{Answer, EBADF, EINVAL, ESPIPE};
use crate::files::description::Object;
use crate::files::descriptors;

pub fn dup(fd: u64) -> Answer {
    let table = descriptors::current();
    table.add(table.get(fd)?, 0, false)
}

pub fn dup2(fd: u64, to: u64) -> Answer {
    let table = descriptors::current();
    let description = table.get(fd)?;
    if fd as u32 == to as u32 {
        return Ok(u64::from(to as u32));
    }
    table.put(description, u64::from(to as u32), false)
}

pub fn dup3(fd: u64, to: u64, flags: u64) -> Answer {
    if flags as u32 & !linux::O_CLOEXEC != 0 || fd as u32 == to as u32 {
        return Err(EINVAL);
    }
    let table = descriptors::current();
    let description = table.get(fd)?;
    table.put(description, u64::from(to as u32), flags as u32 != 0)
}

/// Files exist only in memory, so there is nothing to write back.
pub fn sync(fd: u64) -> Answer {
    match &descriptors::current().get(fd)?.object {
        Object::Path(_) => Err(EBADF),
        Object::File(_) | Object::Directory(_) => Ok(0),
        _ => Err(EINVAL),
    }
}

/// Advice about how a file will be read changes nothing.
pub fn advise(fd: u64, advice: u64) -> Answer {
    const MOST: u64 = 5;
    match &descriptors::current().get(fd)?.object {
        Object::Pipe(_) | Object::Stream(_) => Err(ESPIPE),
        Object::Path(_) => Err(EBADF),
        _ if advice > MOST => Err(EINVAL),
        _ => Ok(0),
    }
}
