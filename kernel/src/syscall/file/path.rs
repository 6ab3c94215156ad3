//! Reads paths from user memory and finds the directory where each begins.

use alloc::vec::Vec;

use linux_raw_sys::general as linux;

use crate::arch::uaccess;
use crate::errno::{ENAMETOOLONG, ENOENT, ENOMEM, Errno};
use crate::files::descriptors;
use crate::files::node::Node;
use crate::files::place;
use crate::files::walk::{self, LONGEST_PATH, Last, Place};

/// `AT_FDCWD`, for calls without a directory argument.
pub const HERE: u64 = linux::AT_FDCWD as i64 as u64;

/// Bytes per read. Reads are aligned to it, so that none crosses into a page that the string does not reach.
const PIECE: u64 = 64;

/// Reads a string.
///
/// # Errors
/// `EFAULT`, `ENAMETOOLONG`, `ENOMEM`.
pub fn read(from: u64) -> Result<Vec<u8>, Errno> {
    let mut path = Vec::new();
    let mut at = from;
    loop {
        let mut piece = [0; PIECE as usize];
        let size = PIECE - at % PIECE;
        let piece = &mut piece[..size as usize];
        uaccess::read_bytes(at, piece)?;
        let end = piece.iter().position(|&byte| byte == 0);
        let part = &piece[..end.unwrap_or(piece.len())];
        path.try_reserve(part.len()).map_err(|_| ENOMEM)?;
        path.extend_from_slice(part);
        if path.len() >= LONGEST_PATH {
            return Err(ENAMETOOLONG);
        }
        if end.is_some() {
            return Ok(path);
        }
        at = at.wrapping_add(size);
    }
}

/// The directory where a path begins, given a call's directory descriptor.
///
/// # Errors
/// `EBADF`, `ENOTDIR`.
pub fn start(directory: u64, path: &[u8]) -> Result<Node, Errno> {
    if path.first() == Some(&b'/') || directory as i32 == linux::AT_FDCWD {
        return Ok(place::current().directory());
    }
    descriptors::current().get(directory)?.directory()
}

/// Reads and follows a path.
///
/// # Errors
/// Those of reading and of following it.
pub fn walk(directory: u64, path: u64, last: Last) -> Result<Place, Errno> {
    let path = read(path)?;
    walk::walk(&start(directory, &path)?, &path, last)
}

/// The node that a path leads to.
///
/// # Errors
/// As for [`walk`]; `ENOENT` if nothing is there.
pub fn find(directory: u64, path: u64, last: Last) -> Result<Node, Errno> {
    walk(directory, path, last)?.node.ok_or(ENOENT)
}

/// Like [`find`], for a call with flags: `AT_SYMLINK_NOFOLLOW`, and `AT_EMPTY_PATH`, with which an empty path
/// means the descriptor itself.
///
/// # Errors
/// As for [`find`].
pub fn find_with(directory: u64, path: u64, flags: u64) -> Result<Node, Errno> {
    let flags = flags as u32;
    // Linux treats a null path as an empty one, too.
    let path = if path == 0 && flags & linux::AT_EMPTY_PATH != 0 {
        Vec::new()
    } else {
        read(path)?
    };
    if path.is_empty() && flags & linux::AT_EMPTY_PATH != 0 {
        if directory as i32 == linux::AT_FDCWD {
            return Ok(place::current().directory());
        }
        let description = descriptors::current().get(directory)?;
        let node = description.node();
        return Ok(node.unwrap_or_else(|| Node::Open(description)));
    }
    let last = if flags & linux::AT_SYMLINK_NOFOLLOW != 0 {
        Last::Keep
    } else {
        Last::Follow
    };
    walk::find(&start(directory, &path)?, &path, last)
}
