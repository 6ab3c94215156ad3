//! `flock` and the locks of `fcntl`: translates a program's request for `files::lock`.

use linux_raw_sys::general as linux;

use crate::arch::uaccess;
use crate::errno::{Answer, EBADF, EINVAL, EOVERFLOW, Errno};
use crate::files::description::{Description, Object};
use crate::files::descriptors;
use crate::files::lock::{self, Lock, Owner};
use crate::process;
use crate::shared::Shared;

/// `struct flock`: request and answer.
struct Asked {
    kind: u32,
    start: i64,
    length: i64,
    process: i32,
    whence: u32,
}

fn read(from: u64) -> Result<Asked, Errno> {
    let words: [u64; 4] = uaccess::read(from)?;
    Ok(Asked {
        kind: words[0] as u32 & 0xffff,
        whence: words[0] as u32 >> 16,
        start: words[1] as i64,
        length: words[2] as i64,
        process: words[3] as i32,
    })
}

fn is_of_description(command: u32) -> bool {
    matches!(
        command,
        linux::F_OFD_GETLK | linux::F_OFD_SETLK | linux::F_OFD_SETLKW
    )
}

/// The first and the last byte of the requested range.
fn range(asked: &Asked, description: &Description) -> Result<(u64, u64), Errno> {
    let base = description.base(asked.whence)? as i64;
    let start = base.checked_add(asked.start).ok_or(EOVERFLOW)?;
    if start < 0 {
        return Err(EINVAL);
    }
    match asked.length {
        0 => Ok((start as u64, u64::MAX)),
        length if length > 0 => {
            let last = start.checked_add(length - 1).ok_or(EOVERFLOW)?;
            Ok((start as u64, last as u64))
        }
        length => {
            let first = start.checked_add(length).filter(|&first| first >= 0);
            let first = first.ok_or(EINVAL)?;
            Ok((first as u64, (start - 1) as u64))
        }
    }
}

fn lock_of(command: u32, asked: &Asked, description: &Description) -> Result<Lock, Errno> {
    let (first, last) = range(asked, description)?;
    let (owner, process) = if is_of_description(command) {
        if asked.process != 0 {
            return Err(EINVAL);
        }
        let address = core::ptr::from_ref(description) as usize;
        (Owner::Description(address), -1)
    } else {
        (descriptors::current().owner(), process::current().id as i32)
    };
    Ok(Lock {
        file: description.file_id()?,
        owner,
        exclusive: asked.kind == linux::F_WRLCK,
        first,
        last,
        process,
    })
}

/// `F_GETLK`: reports a conflicting lock.
pub fn get(command: u32, description: &Description, at: u64) -> Answer {
    let asked = read(at)?;
    if asked.kind != linux::F_RDLCK && asked.kind != linux::F_WRLCK {
        return Err(EINVAL);
    }
    let wanted = lock_of(command, &asked, description)?;
    let Some(found) = lock::find(&wanted) else {
        uaccess::write_bytes(at, &(linux::F_UNLCK as u16).to_le_bytes())?;
        return Ok(0);
    };
    let kind = if found.exclusive {
        linux::F_WRLCK
    } else {
        linux::F_RDLCK
    };
    let length = match found.last {
        u64::MAX => 0,
        last => last - found.first + 1,
    };
    // The upper half of this word is `l_whence`: 0, which is `SEEK_SET`.
    uaccess::write(at, &kind)?;
    uaccess::write(at.wrapping_add(8), &[found.first, length])?;
    uaccess::write(at.wrapping_add(24), &found.process)?;
    Ok(0)
}

/// `F_SETLK` and `F_SETLKW`.
pub fn set(command: u32, fd: u64, description: &Shared<Description>, from: u64) -> Answer {
    let asked = read(from)?;
    let wanted = lock_of(command, &asked, description)?;
    match asked.kind {
        linux::F_RDLCK => description.may_read()?,
        linux::F_WRLCK => description.may_write()?,
        linux::F_UNLCK => return lock::release(&wanted).map(|()| 0),
        _ => return Err(EINVAL),
    }
    if matches!(command, linux::F_SETLKW | linux::F_OFD_SETLKW) {
        lock::wait(&wanted)?;
    } else {
        lock::take(&wanted)?;
    }
    // Another thread may have closed the descriptor meanwhile, before there was a lock to release.
    let table = descriptors::current();
    if !table.get(fd).is_ok_and(|now| now.is(description)) {
        lock::release_all(wanted.owner, Some(wanted.file));
        return Err(EBADF);
    }
    Ok(0)
}

pub fn flock(fd: u64, operation: u64) -> Answer {
    let description = descriptors::current().get(fd)?;
    if matches!(description.object, Object::Path(_)) {
        return Err(EBADF);
    }
    let operation = operation as u32;
    let kind = operation & !linux::LOCK_NB;
    let wanted = Lock {
        file: description.file_id()?,
        owner: Owner::Whole(core::ptr::from_ref::<Description>(&description) as usize),
        exclusive: kind == linux::LOCK_EX,
        first: 0,
        last: u64::MAX,
        process: process::current().id as i32,
    };
    match kind {
        linux::LOCK_SH | linux::LOCK_EX if operation & linux::LOCK_NB != 0 => lock::take(&wanted),
        linux::LOCK_SH | linux::LOCK_EX => lock::wait(&wanted),
        linux::LOCK_UN => lock::release(&wanted),
        _ => Err(EINVAL),
    }
    .map(|()| 0)
}
