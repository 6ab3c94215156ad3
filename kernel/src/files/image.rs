//! A program's file while it is loaded: its segments become mappings of it.

use linux_raw_sys::general as linux;

use super::content::Content;
use super::description;
use super::node::{Body, Inode, Node};
use super::origin::Origin;
use super::place;
use super::usage::Running;
use super::walk::{self, End, Last};
use crate::errno::{EACCES, ENOENT, Errno};
use crate::memory::Opened;
use crate::shared::Shared;

/// The file of a program, which cannot be opened for writing while this exists.
pub struct Image {
    inode: Shared<Inode>,
    running: Running,
    /// The file number that its mappings share.
    number: u64,
}

/// Finds the program at a path.
///
/// # Errors
/// Those of following the path; `EACCES` if it is no regular file that may be executed; `ETXTBSY`,
/// `ENOMEM`.
pub fn find(path: &[u8]) -> Result<Image, Errno> {
    let place = walk::walk(&place::current().directory(), path, Last::Follow)?;
    let Node::Memory(inode) = place.node.ok_or(ENOENT)? else {
        return Err(EACCES);
    };
    if content(&inode).is_none()
        || inode.meta().permissions & (linux::S_IXUSR | linux::S_IXGRP | linux::S_IXOTH) == 0
    {
        return Err(EACCES);
    }
    let image = Image {
        running: Running::begin(&inode)?,
        inode,
        number: description::next_number(),
    };
    if let End::Name(name) = place.end {
        let origin = Shared::new(Origin::Named(place.directory, name))?;
        image.content()?.source.set_origin(&origin);
    }
    Ok(image)
}

fn content(inode: &Inode) -> Option<&Content> {
    match &inode.body {
        Body::File(file) => Some(&file.content),
        _ => None,
    }
}

impl Image {
    fn content(&self) -> Result<&Content, Errno> {
        content(&self.inode).ok_or(EACCES)
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.content().map_or(0, Content::size)
    }

    /// Reads from a position to the end, or until the buffer is full. Returns how much.
    pub fn read(&self, position: u64, to: &mut [u8]) -> usize {
        let content = self.content();
        content.map_or(0, |content| content.read_to(position, to))
    }

    /// The arguments of a mapping of it from a position on.
    pub fn opened(&self, offset: u64) -> Opened<'_> {
        Opened {
            store: self.content().map(|content| &content.store),
            offset,
            file: self.number,
            writable: false,
        }
    }

    /// Returns the guard that keeps the file from being written, once it is loaded.
    pub fn into_running(self) -> Running {
        self.running
    }
}
