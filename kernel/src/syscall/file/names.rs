//! Calls on names: the working directory; creating, renaming and removing files and directories.

use linux_raw_sys::general as linux;

use super::path::{self, HERE};
use crate::arch::uaccess;
use crate::errno::{
    Answer, EBUSY, EEXIST, EINVAL, EISDIR, ENOENT, ENOTDIR, ENOTEMPTY, EPERM, ERANGE, Errno,
};
use crate::files::directory::Name;
use crate::files::node::Node;
use crate::files::tree::{self, Taken};
use crate::files::walk::{End, Last, Place};
use crate::files::{descriptors, place};

pub fn getcwd(to: u64, room: u64) -> Answer {
    let directory = place::current().directory();
    let mut path = place::path_of(&directory)?;
    path.push(0);
    if path.len() as u64 > room {
        return Err(ERANGE);
    }
    uaccess::write_bytes(to, &path)?;
    Ok(path.len() as u64)
}

pub fn chdir(path: u64) -> Answer {
    let node = path::find(HERE, path, Last::Follow)?;
    place::current().change(node).map(|()| 0)
}

pub fn fchdir(fd: u64) -> Answer {
    let directory = descriptors::current().get(fd)?.directory()?;
    place::current().change(directory).map(|()| 0)
}

/// The directory and the name of a new entry.
fn new_place(directory: u64, path: u64) -> Result<(Place, Name), Errno> {
    let mut place = path::walk(directory, path, Last::Keep)?;
    let name = match core::mem::replace(&mut place.end, End::Dot) {
        End::Name(name) if place.node.is_none() => name,
        _ => return Err(EEXIST),
    };
    Ok((place, name))
}

pub fn mkdirat(directory: u64, path: u64, permissions: u64) -> Answer {
    let (place, name) = new_place(directory, path)?;
    let permissions = permissions as u32 & 0o1777 & !place::current().mask();
    tree::mkdir(&place.directory, &name, permissions).map(|()| 0)
}

/// Creates regular files only: named devices, sockets and pipes are not supported.
pub fn mknodat(directory: u64, path: u64, mode: u64) -> Answer {
    let mode = mode as u32;
    let kind = mode & linux::S_IFMT;
    if kind == linux::S_IFDIR {
        return Err(EPERM);
    }
    let (place, name) = new_place(directory, path)?;
    if place.slash {
        return Err(ENOENT);
    }
    if kind != 0 && kind != linux::S_IFREG {
        return Err(EPERM);
    }
    let permissions = mode & 0o7777 & !place::current().mask();
    tree::create(&place.directory, &name, permissions, &[]).map(|_| 0)
}

pub fn symlinkat(target: u64, directory: u64, path: u64) -> Answer {
    let target = path::read(target)?;
    if target.is_empty() {
        return Err(ENOENT);
    }
    let (place, name) = new_place(directory, path)?;
    if place.slash {
        return Err(ENOENT);
    }
    tree::symlink(&place.directory, &name, &target).map(|()| 0)
}

pub fn linkat(from: u64, old: u64, to: u64, new: u64, flags: u64) -> Answer {
    let flags = flags as u32;
    if flags & !(linux::AT_SYMLINK_FOLLOW | linux::AT_EMPTY_PATH) != 0 {
        return Err(EINVAL);
    }
    // Unlike other calls this one follows links only on request.
    let node = if flags & linux::AT_SYMLINK_FOLLOW != 0 {
        path::find_with(from, old, u64::from(flags & linux::AT_EMPTY_PATH))?
    } else {
        let keep = linux::AT_SYMLINK_NOFOLLOW;
        path::find_with(from, old, u64::from(flags & linux::AT_EMPTY_PATH | keep))?
    };
    let (place, name) = new_place(to, new)?;
    if place.slash {
        return Err(ENOENT);
    }
    tree::link(&node, &place.directory, &name).map(|()| 0)
}

pub fn unlinkat(directory: u64, path: u64, flags: u64) -> Answer {
    let removes_directory = match flags as u32 {
        0 => false,
        linux::AT_REMOVEDIR => true,
        _ => return Err(EINVAL),
    };
    let place = path::walk(directory, path, Last::Keep)?;
    if removes_directory {
        return match &place.end {
            End::Name(name) => tree::rmdir(&place.directory, name).map(|()| 0),
            End::Dot if is_root(&place) => Err(EBUSY),
            End::Dot => Err(EINVAL),
            End::DotDot => Err(ENOTEMPTY),
        };
    }
    match &place.end {
        End::Name(_) if place.slash && place.node.is_none() => Err(ENOENT),
        End::Name(name) => tree::unlink(&place.directory, name).map(|()| 0),
        _ => Err(EISDIR),
    }
}

fn is_root(place: &Place) -> bool {
    place
        .node
        .as_ref()
        .is_some_and(|node| node.is(&tree::root()))
}

fn name_of(place: &Place) -> Result<&[u8], Errno> {
    match &place.end {
        End::Name(name) => Ok(name),
        _ => Err(EBUSY),
    }
}

pub fn renameat2(from: u64, old: u64, to: u64, new: u64, flags: u64) -> Answer {
    let taken = match flags as u32 {
        0 => Taken::Replace,
        linux::RENAME_NOREPLACE => Taken::Refuse,
        linux::RENAME_EXCHANGE => Taken::Exchange,
        _ => return Err(EINVAL),
    };
    let source = path::walk(from, old, Last::Keep)?;
    let target = path::walk(to, new, Last::Keep)?;
    let (old, new) = (name_of(&source)?, name_of(&target)?);
    let is_directory = source.node.as_ref().ok_or(ENOENT)?.is_directory();
    if target.slash && !is_directory {
        return Err(ENOTDIR);
    }
    let places: (&Node, &Node) = (&source.directory, &target.directory);
    tree::rename((places.0, old), (places.1, new), taken).map(|()| 0)
}
