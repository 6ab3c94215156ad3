//! Opening: from a path, or a node that a path led to, to an open file description.

use linux_raw_sys::general as linux;

use super::description::{Description, Object};
use super::node::{Body, Inode, Node};
use super::origin::Origin;
use super::pipe::Direction;
use super::proc;
use super::source::Kind;
use super::tree;
use super::usage::Writing;
use super::walk::{self, End, Last};
use crate::errno::{
    EACCES, EEXIST, EINVAL, EISDIR, ELOOP, ENOENT, ENOTDIR, ENXIO, EOPNOTSUPP, Errno,
};
use crate::shared::Shared;
use crate::sync::SpinLock;

/// Flags of the call only, which the description does not keep.
const OF_THE_CALL: u32 =
    linux::O_CREAT | linux::O_EXCL | linux::O_NOCTTY | linux::O_TRUNC | linux::O_CLOEXEC;

/// Opens a path, and creates a file there if the flags say so.
///
/// # Errors
/// Those of `open`.
pub fn path(
    start: &Node,
    path: &[u8],
    flags: u32,
    permissions: u32,
) -> Result<Shared<Description>, Errno> {
    if flags & linux::O_TMPFILE == linux::O_TMPFILE {
        return nameless(start, path, flags, permissions);
    }
    let creates = flags & linux::O_CREAT != 0 && flags & linux::O_PATH == 0;
    if creates && flags & linux::O_DIRECTORY != 0 {
        return Err(EINVAL);
    }
    let exclusive = creates && flags & linux::O_EXCL != 0;
    let last = if exclusive || flags & linux::O_NOFOLLOW != 0 {
        Last::Keep
    } else {
        Last::Follow
    };
    let place = walk::walk(start, path, last)?;
    let (node, made) = match place.node {
        Some(_) if exclusive => return Err(EEXIST),
        Some(node) if creates && node.is_directory() => {
            drop(node);
            return Err(EISDIR);
        }
        Some(node) => (node, false),
        None if !creates => return Err(ENOENT),
        None if place.slash => return Err(EISDIR),
        None => {
            let End::Name(name) = &place.end else {
                return Err(ENOENT);
            };
            match tree::create(&place.directory, name, permissions, &[]) {
                Ok(node) => (node, true),
                // Another thread created it first.
                Err(EEXIST) if !exclusive => {
                    return self::path(start, path, flags, permissions);
                }
                Err(error) => return Err(error),
            }
        }
    };
    if flags & linux::O_DIRECTORY != 0 && !node.is_directory() {
        return Err(ENOTDIR);
    }
    let origin = match place.end {
        End::Name(name) => Some(Shared::new(Origin::Named(place.directory, name))?),
        _ => None,
    };
    let _ = made;
    self::node(node, origin, flags)
}

/// Creates a file without a name in a directory (`O_TMPFILE`).
fn nameless(
    start: &Node,
    path: &[u8],
    flags: u32,
    permissions: u32,
) -> Result<Shared<Description>, Errno> {
    if flags & linux::O_ACCMODE == linux::O_RDONLY {
        return Err(EINVAL);
    }
    let directory = walk::find(start, path, Last::Follow)?;
    match &directory {
        Node::Memory(inode) => drop(inode.directory()?),
        _ if directory.is_directory() => return Err(EOPNOTSUPP),
        _ => return Err(ENOTDIR),
    }
    let inode = Inode::new_file(Kind::Tree, &[], permissions)?;
    inode.change(|meta| meta.links = 0);
    self::node(Node::Memory(inode), None, flags & !linux::O_TMPFILE)
}

/// Opens a node that a path led to.
///
/// # Errors
/// Those of `open` that are not about the path.
pub fn node(
    node: Node,
    origin: Option<Shared<Origin>>,
    flags: u32,
) -> Result<Shared<Description>, Errno> {
    let kept = flags & !OF_THE_CALL;
    if flags & linux::O_PATH != 0 {
        let kept = kept & (linux::O_PATH | linux::O_DIRECTORY | linux::O_NOFOLLOW);
        return Description::new(Object::Path(node), kept, origin);
    }
    let writes = flags & linux::O_ACCMODE != linux::O_RDONLY || flags & linux::O_TRUNC != 0;
    let mut writing = None;
    let object = match &node {
        Node::Memory(inode) => match &inode.body {
            Body::File(file) => {
                if writes {
                    writing = Some(Writing::begin(inode)?);
                }
                if flags & linux::O_TRUNC != 0 {
                    let _turn = file.content.source.turn.take()?;
                    if file.content.size() != 0 {
                        truncate(inode, 0)?;
                    }
                }
                if flags & linux::O_ACCMODE == linux::O_RDONLY {
                    // Write access was needed for the truncation only.
                    writing = None;
                }
                Object::File(inode.clone())
            }
            Body::Directory(_) if writes => return Err(EISDIR),
            Body::Directory(_) => Object::Directory(node),
            // `O_NOFOLLOW` kept the link.
            Body::Link(_) => return Err(ELOOP),
            Body::Device(device) => {
                device.check(writes)?;
                Object::Device(*device, node.clone())
            }
            Body::PageIdle => Object::PageIdle(node.clone()),
            Body::Setting(system) => {
                return text(proc::Entry::System(*system), origin, kept, writes);
            }
        },
        Node::Proc(entry) if entry.is_directory() => {
            if writes {
                return Err(EISDIR);
            }
            Object::Directory(node)
        }
        Node::Proc(entry) => return text(*entry, origin, kept, writes),
        Node::Open(description) => again(description, flags)?,
    };
    Description::of_file(object, kept | linux::O_LARGEFILE, origin, writing)
}

fn text(
    entry: proc::Entry,
    origin: Option<Shared<Origin>>,
    kept: u32,
    writes: bool,
) -> Result<Shared<Description>, Errno> {
    if Node::Proc(entry).target()?.is_some() {
        return Err(ELOOP);
    }
    let (memory, listing) = match entry {
        proc::Entry::Own(process, own) => (
            proc::MemoryFile::open(process, own),
            proc::Listing::open(process, own),
        ),
        _ => (None, None),
    };
    let object = match (memory, listing) {
        (Some(memory), _) => Object::Memory(entry, memory),
        _ if writes && !entry.is_setting() => return Err(EACCES),
        (_, Some(listing)) => Object::Listing(entry, listing),
        _ => Object::Text(entry, SpinLock::new(None)),
    };
    Description::new(object, kept | linux::O_LARGEFILE, origin)
}

/// Opens the object behind a `/proc/self/fd` link again.
fn again(description: &Description, flags: u32) -> Result<Object, Errno> {
    match &description.object {
        Object::Stream(stream) => Ok(Object::Stream(*stream)),
        Object::Pipe(end) => match flags & linux::O_ACCMODE {
            linux::O_RDONLY => Ok(Object::Pipe(end.again(Direction::Read))),
            linux::O_WRONLY => Ok(Object::Pipe(end.again(Direction::Write))),
            _ => Err(EINVAL),
        },
        _ => Err(ENXIO),
    }
}

/// Changes the size of a file. The caller holds the file's `turn`.
///
/// # Errors
/// `EINVAL` if it is no regular file; `EPERM` if it is sealed; `ENOMEM`.
pub fn truncate(inode: &Inode, size: u64) -> Result<(), Errno> {
    let Body::File(file) = &inode.body else {
        return Err(EINVAL);
    };
    file.content.resize(size)?;
    inode.touch();
    Ok(())
}
