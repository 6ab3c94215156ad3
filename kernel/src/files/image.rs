//! A program's bytes while it is loaded: the archive's memory, or, of a file that was written, a
//! copy.

use alloc::vec::Vec;
use core::ops::Deref;

use linux_raw_sys::general as linux;

use super::node::{Body, Inode, Node};
use super::place;
use super::usage::Running;
use super::walk::{self, Last};
use crate::errno::{EACCES, ENOMEM, Errno};
use crate::shared::Shared;

/// The bytes.
enum Bytes {
    Archive(&'static [u8]),
    Copy(Vec<u8>),
}

/// The bytes, of a file that nobody writes as long as this is there.
pub struct Image {
    bytes: Bytes,
    running: Running,
}

impl Image {
    /// What keeps others from writing the file, once the bytes are not needed any more.
    pub fn into_running(self) -> Running {
        self.running
    }
}

impl Deref for Image {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Archive(bytes) => bytes,
            Bytes::Copy(bytes) => bytes,
        }
    }
}

/// Bytes copied under the file's lock at once.
const PIECE: usize = 4096;

/// The program at a path.
///
/// # Errors
/// Those of following the path; `EACCES` if it is no regular file that may be executed; `ETXTBSY`,
/// `ENOMEM`.
pub fn find(path: &[u8]) -> Result<Image, Errno> {
    let node = walk::find(&place::current().directory(), path, Last::Follow)?;
    let Node::Memory(inode) = node else {
        return Err(EACCES);
    };
    read(&inode)
}

fn read(inode: &Shared<Inode>) -> Result<Image, Errno> {
    let Body::File(file) = &inode.body else {
        return Err(EACCES);
    };
    if inode.meta().permissions & (linux::S_IXUSR | linux::S_IXGRP | linux::S_IXOTH) == 0 {
        return Err(EACCES);
    }
    let running = Running::begin(inode)?;
    let (unwritten, size) = {
        let content = file.content.lock();
        (content.unwritten(), content.size())
    };
    if let Some(bytes) = unwritten {
        let bytes = Bytes::Archive(bytes);
        return Ok(Image { bytes, running });
    }
    let size = usize::try_from(size).map_err(|_| ENOMEM)?;
    let mut copy = Vec::new();
    copy.try_reserve_exact(size).map_err(|_| ENOMEM)?;
    copy.resize(size, 0);
    for (number, piece) in (0..).zip(copy.chunks_mut(PIECE)) {
        file.content.lock().read(number * PIECE as u64, piece);
    }
    let bytes = Bytes::Copy(copy);
    Ok(Image { bytes, running })
}
