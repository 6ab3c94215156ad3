//! Opening and closing.

use linux_raw_sys::general as linux;

use super::path;
use crate::arch::uaccess;
use crate::errno::{Answer, EINVAL};
use crate::files::description::{Description, Object};
use crate::files::{descriptors, open as files, pipe, place};
use crate::process;

/// Flags that `open` accepts. Unknown flags are ignored, as on Linux.
const KNOWN: u32 = linux::O_ACCMODE
    | linux::O_CREAT
    | linux::O_EXCL
    | linux::O_NOCTTY
    | linux::O_TRUNC
    | linux::O_APPEND
    | linux::O_NONBLOCK
    | linux::O_SYNC
    | linux::O_DIRECT
    | linux::O_LARGEFILE
    | linux::O_DIRECTORY
    | linux::O_NOFOLLOW
    | linux::O_NOATIME
    | linux::O_CLOEXEC
    | linux::O_PATH
    | linux::O_TMPFILE;

pub fn openat(directory: u64, path: u64, flags: u64, permissions: u64) -> Answer {
    let flags = flags as u32 & KNOWN;
    let path = path::read(path)?;
    let start = path::start(directory, &path)?;
    let permissions = permissions as u32 & 0o7777 & !place::current().mask();
    let description = files::path(&start, &path, flags, permissions)?;
    descriptors::current().add(description, 0, flags & linux::O_CLOEXEC != 0)
}

pub fn open(path: u64, flags: u64, permissions: u64) -> Answer {
    openat(path::HERE, path, flags, permissions)
}

pub fn creat(path: u64, permissions: u64) -> Answer {
    let flags = linux::O_CREAT | linux::O_WRONLY | linux::O_TRUNC;
    open(path, u64::from(flags), permissions)
}

pub fn close(fd: u64) -> Answer {
    descriptors::current().close(fd)
}

pub fn close_range(first: u64, last: u64, flags: u64) -> Answer {
    const UNSHARE: u32 = 2;
    const CLOEXEC: u32 = 4;
    let (first, last) = (u64::from(first as u32), u64::from(last as u32));
    let flags = flags as u32;
    if first > last || flags & !(UNSHARE | CLOEXEC) != 0 {
        return Err(EINVAL);
    }
    if flags & UNSHARE != 0 {
        process::current().unshare_descriptors()?;
    }
    if flags & CLOEXEC != 0 {
        descriptors::current().mark_range(first, last);
    } else {
        descriptors::current().close_range(first, last);
    }
    Ok(0)
}

pub fn pipe2(to: u64, flags: u64) -> Answer {
    let flags = flags as u32;
    if flags & !(linux::O_CLOEXEC | linux::O_NONBLOCK | linux::O_DIRECT) != 0 {
        return Err(EINVAL);
    }
    let status = flags & linux::O_NONBLOCK;
    let closes = flags & linux::O_CLOEXEC != 0;
    let table = descriptors::current();
    let (read, write) = pipe::new()?;
    let read = Description::new(Object::Pipe(read), status | linux::O_RDONLY, None)?;
    let write = Description::new(Object::Pipe(write), status | linux::O_WRONLY, None)?;
    let read = table.add(read, 0, closes)?;
    let told = table.add(write, 0, closes).and_then(|write| {
        match uaccess::write(to, &[read as u32, write as u32]) {
            Ok(()) => Ok(0),
            Err(error) => {
                let _ = table.close(write);
                Err(error)
            }
        }
    });
    if told.is_err() {
        let _ = table.close(read);
    }
    told
}
