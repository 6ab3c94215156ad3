//! File status: `stat`, `access` and `readlink`.

use linux_raw_sys::general as linux;

use super::path;
use crate::arch::uaccess;
use crate::errno::{Answer, EACCES, EINVAL, ENOENT, Errno};
use crate::files::descriptors;
use crate::files::node::{Node, Target};
use crate::files::walk::Last;

pub fn stat(path: u64, to: u64) -> Answer {
    let node = path::find(path::HERE, path, Last::Follow)?;
    node.stat()?.write(to).map(|()| 0)
}

pub fn lstat(path: u64, to: u64) -> Answer {
    let node = path::find(path::HERE, path, Last::Keep)?;
    node.stat()?.write(to).map(|()| 0)
}

pub fn fstat(fd: u64, to: u64) -> Answer {
    let description = descriptors::current().get(fd)?;
    description.stat()?.write(to).map(|()| 0)
}

const FLAGS: u32 = linux::AT_SYMLINK_NOFOLLOW | linux::AT_NO_AUTOMOUNT | linux::AT_EMPTY_PATH;

pub fn newfstatat(directory: u64, path: u64, to: u64, flags: u64) -> Answer {
    if flags as u32 & !FLAGS != 0 {
        return Err(EINVAL);
    }
    let node = path::find_with(directory, path, flags)?;
    node.stat()?.write(to).map(|()| 0)
}

/// Fills in all fields, whatever the mask asks for.
pub fn statx(directory: u64, path: u64, flags: u64, to: u64) -> Answer {
    if flags as u32 & !(FLAGS | linux::AT_STATX_SYNC_TYPE) != 0 {
        return Err(EINVAL);
    }
    let node = path::find_with(directory, path, flags)?;
    node.stat()?.write_extended(to).map(|()| 0)
}

/// Every process runs as root, which may do anything but execute a file without an execute bit.
pub fn faccessat(directory: u64, path: u64, mode: u64, flags: u64) -> Answer {
    const EXECUTE: u32 = 1;
    const WRITE: u32 = 2;
    const ANY: u32 = 7;
    let known = linux::AT_EACCESS | linux::AT_SYMLINK_NOFOLLOW | linux::AT_EMPTY_PATH;
    if mode as u32 & !ANY != 0 || flags as u32 & !known != 0 {
        return Err(EINVAL);
    }
    let node = path::find_with(directory, path, flags)?;
    let stat = node.stat()?;
    let regular = stat.mode & linux::S_IFMT == linux::S_IFREG;
    if mode as u32 & EXECUTE != 0 && regular && stat.mode & 0o111 == 0 {
        return Err(EACCES);
    }
    // Files of `/proc` without a write bit are reported as read-only, for root too.
    let read_only = stat.mode & 0o222 == 0 && matches!(node, Node::Proc(_));
    if mode as u32 & WRITE != 0 && regular && read_only {
        return Err(EACCES);
    }
    Ok(0)
}

pub fn readlinkat(directory: u64, path: u64, to: u64, length: u64) -> Answer {
    if (length as i32) <= 0 {
        return Err(EINVAL);
    }
    let node = link(directory, path)?;
    let text = match &node {
        Node::Proc(entry) => entry.link_text()?,
        node => match node.target()? {
            Some(Target::Path(text)) => Some(text),
            _ => None,
        },
    };
    let text = text.ok_or(EINVAL)?;
    let length = text.len().min(length as i32 as usize);
    uaccess::write_bytes(to, &text[..length])?;
    Ok(length as u64)
}

/// The link itself; an empty path means a link opened with `O_PATH`.
fn link(directory: u64, path: u64) -> Result<Node, Errno> {
    match path::find(directory, path, Last::Keep) {
        Err(ENOENT) if uaccess::read::<u8>(path) == Ok(0) => {
            let flags = linux::AT_EMPTY_PATH;
            path::find_with(directory, path, u64::from(flags)).map_err(|_| ENOENT)
        }
        found => found,
    }
}
