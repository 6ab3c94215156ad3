//! The tree of files in memory: its root, and the calls that change it.
//!
//! `CHANGES` serialises changes, so each sees the tree as the one before left it. A look-up takes the lock of
//! one directory at a time.

use alloc::vec::Vec;
use core::iter;

use super::device::Device;
use super::directory::Directory;
use super::node::{Body, Inode, Node};
use super::proc;
use super::source::{Kind, Source};
use super::turn::Turn;
use crate::errno::{
    EBUSY, EEXIST, EINVAL, EISDIR, ENOENT, ENOMEM, ENOTDIR, ENOTEMPTY, EPERM, EXDEV, Errno,
};
use crate::shared::Shared;
use crate::sync::Once;

static ROOT: Once<Shared<Inode>> = Once::new();
/// Held while the tree changes.
static CHANGES: Turn = Turn::new();

/// The root directory.
pub fn root() -> Node {
    Node::Memory(ROOT.get().clone())
}

/// Makes the root and the fixed entries of every system; at boot.
///
/// # Errors
/// `ENOMEM`.
pub fn build() -> Result<(), Errno> {
    let root = Inode::new(Body::Directory(Directory::new(None)), 0o755)?;
    ROOT.set(root.clone());
    let dev = make_directory(&root, b"dev", 0o755)?;
    let tmp = make_directory(&root, b"tmp", 0o1777)?;
    drop(tmp);
    drop(make_directory(&dev, b"shm", 0o1777)?);
    insert_directory(&root, b"proc", Node::Proc(proc::Entry::Root))?;
    for (name, device) in Device::ALL.iter().filter(|(_, device)| device.is_there()) {
        let inode = Inode::new(Body::Device(*device), device.permissions())?;
        dev.directory()?
            .insert(name.as_bytes(), Node::Memory(inode))?;
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        make_link(&dev, name.as_bytes(), target.as_bytes())?;
    }
    Ok(())
}

/// The inode of a directory that can have new entries.
fn writable(directory: &Node) -> Result<&Shared<Inode>, Errno> {
    match directory {
        Node::Memory(inode) => inode.directory().map(|_| inode),
        Node::Proc(_) => Err(ENOENT),
        Node::Open(_) => Err(ENOTDIR),
    }
}

fn insert_directory(parent: &Shared<Inode>, name: &[u8], node: Node) -> Result<(), Errno> {
    parent.directory()?.insert(name, node)?;
    parent.touch();
    parent.change(|meta| meta.links += 1);
    Ok(())
}

fn make_directory(
    parent: &Shared<Inode>,
    name: &[u8],
    permissions: u32,
) -> Result<Shared<Inode>, Errno> {
    let body = Body::Directory(Directory::new(Some(parent)));
    let inode = Inode::new(body, permissions)?;
    insert_directory(parent, name, Node::Memory(inode.clone()))?;
    Ok(inode)
}

fn make_link(parent: &Shared<Inode>, name: &[u8], target: &[u8]) -> Result<(), Errno> {
    let target = super::directory::copy_name(target)?;
    add(parent, name, Inode::new(Body::Link(target), 0o777)?)
}

fn add(parent: &Shared<Inode>, name: &[u8], inode: Shared<Inode>) -> Result<(), Errno> {
    parent.directory()?.insert(name, Node::Memory(inode))?;
    parent.touch();
    Ok(())
}

/// Makes a directory.
///
/// # Errors
/// `EEXIST`, `ENOENT`, `ENOTDIR`, `ENOMEM`.
pub fn mkdir(directory: &Node, name: &[u8], permissions: u32) -> Result<(), Errno> {
    let _change = CHANGES.take()?;
    make_directory(writable(directory)?, name, permissions).map(drop)
}

/// Makes a symbolic link.
///
/// # Errors
/// As for [`mkdir`].
pub fn symlink(directory: &Node, name: &[u8], target: &[u8]) -> Result<(), Errno> {
    let _change = CHANGES.take()?;
    make_link(writable(directory)?, name, target)
}

/// Makes a file that begins with the archive's bytes.
///
/// # Errors
/// As for [`mkdir`].
pub fn create(
    directory: &Node,
    name: &[u8],
    permissions: u32,
    archive: &'static [u8],
) -> Result<Node, Errno> {
    let _change = CHANGES.take()?;
    let inode = Inode::new_file(Kind::Tree, archive, permissions)?;
    add(writable(directory)?, name, inode.clone())?;
    Ok(Node::Memory(inode))
}

/// Adds an inode that is no regular file.
///
/// # Errors
/// As for [`mkdir`].
pub fn add_special(directory: &Node, name: &[u8], inode: Shared<Inode>) -> Result<(), Errno> {
    let _change = CHANGES.take()?;
    add(writable(directory)?, name, inode)
}

/// Makes a new name for a file.
///
/// # Errors
/// `EPERM` for a directory; `EXDEV` for a node that is not in this tree; `ENOENT` for a file without a name;
/// as for [`mkdir`].
pub fn link(node: &Node, directory: &Node, name: &[u8]) -> Result<(), Errno> {
    let _change = CHANGES.take()?;
    let parent = writable(directory)?;
    let Node::Memory(inode) = node else {
        return Err(EXDEV);
    };
    if parent.directory()?.lookup(name).is_some() {
        return Err(EEXIST);
    }
    if node.is_directory() {
        return Err(EPERM);
    }
    if inode.meta().links == 0 {
        return Err(ENOENT);
    }
    add(parent, name, inode.clone())?;
    inode.change(|meta| meta.links += 1);
    Ok(())
}

/// Removes a name of something other than a directory.
///
/// # Errors
/// `ENOENT`, `EISDIR`; `EPERM` in `/proc`.
pub fn unlink(directory: &Node, name: &[u8]) -> Result<(), Errno> {
    let change = CHANGES.take()?;
    let Node::Memory(parent) = directory else {
        return Err(EPERM);
    };
    let node = parent.directory()?.lookup(name).ok_or(ENOENT)?;
    if node.is_directory() {
        return Err(EISDIR);
    }
    parent.directory()?.remove(name);
    parent.touch();
    node.inode()?.change(|meta| meta.links -= 1);
    drop(change);
    Ok(())
}

/// Removes an empty directory.
///
/// # Errors
/// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`; `EBUSY` for `/proc`; `EPERM` in it.
pub fn rmdir(directory: &Node, name: &[u8]) -> Result<(), Errno> {
    let _change = CHANGES.take()?;
    let Node::Memory(parent) = directory else {
        return Err(EPERM);
    };
    let node = parent.directory()?.lookup(name).ok_or(ENOENT)?;
    let Node::Memory(inode) = &node else {
        return Err(EBUSY);
    };
    bury(inode.directory()?)?;
    parent.directory()?.remove(name);
    parent.touch();
    parent.change(|meta| meta.links -= 1);
    inode.change(|meta| meta.links = 0);
    Ok(())
}

/// Marks an empty directory as removed: it gets no new entries.
fn bury(directory: &Directory) -> Result<(), Errno> {
    if !directory.is_empty() {
        return Err(ENOTEMPTY);
    }
    directory.set_gone();
    Ok(())
}

/// What `rename` does if the new name exists.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    Replace,
    Refuse,
    Exchange,
}

/// Renames an entry, in its directory or to another one.
///
/// # Errors
/// `ENOENT`, `EEXIST`, `EISDIR`, `ENOTDIR`, `ENOTEMPTY`; `EINVAL` for a directory moved into
/// itself; `EBUSY` for `/proc`; `EXDEV` into or out of it.
pub fn rename(
    (from, old): (&Node, &[u8]),
    (to, new): (&Node, &[u8]),
    taken: Taken,
) -> Result<(), Errno> {
    let _change = CHANGES.take()?;
    let names = ((from, old), (to, new));
    let (Node::Memory(from), Node::Memory(to)) = (from, to) else {
        return Err(EXDEV);
    };
    let node = from.directory()?.lookup(old).ok_or(ENOENT)?;
    let there = to.directory()?.lookup(new);
    let Node::Memory(moved) = &node else {
        return Err(EBUSY);
    };
    if lies_in(to, moved) {
        return Err(EINVAL);
    }
    match (there, taken) {
        (None, Taken::Exchange) => Err(ENOENT),
        (Some(_), Taken::Refuse) => Err(EEXIST),
        (Some(Node::Memory(there)), _) if there.is(moved) => Ok(()),
        (Some(Node::Memory(there)), Taken::Exchange) => {
            if lies_in(from, &there) {
                return Err(EINVAL);
            }
            to.directory()?.replace(new, node.clone());
            from.directory()?.replace(old, Node::Memory(there.clone()));
            settle(moved, from, to);
            settle(&there, to, from);
            follow(moved, names.0, names.1);
            follow(&there, names.1, names.0);
            Ok(())
        }
        (Some(Node::Memory(there)), Taken::Replace) => {
            // This also refuses an ancestor of `moved`, which is not empty.
            match (node.is_directory(), there.directory()) {
                (true, Ok(directory)) => bury(directory)?,
                (true, Err(_)) => return Err(ENOTDIR),
                (false, Ok(directory)) if !directory.is_empty() && lies_in(from, &there) => {
                    return Err(ENOTEMPTY);
                }
                (false, Ok(_)) => return Err(EISDIR),
                (false, Err(_)) => {}
            }
            to.directory()?.replace(new, node.clone());
            from.directory()?.remove(old);
            if node.is_directory() {
                to.change(|meta| meta.links -= 1);
                there.change(|meta| meta.links = 0);
            } else {
                there.change(|meta| meta.links -= 1);
            }
            settle(moved, from, to);
            follow(moved, names.0, names.1);
            Ok(())
        }
        (Some(_), _) => Err(EBUSY),
        (None, _) => {
            to.directory()?.insert(new, node.clone())?;
            from.directory()?.remove(old);
            settle(moved, from, to);
            follow(moved, names.0, names.1);
            Ok(())
        }
    }
}

/// Updates the parent, links and times after a move between two directories.
fn settle(moved: &Shared<Inode>, from: &Shared<Inode>, to: &Shared<Inode>) {
    if let Ok(directory) = moved.directory()
        && !from.is(to)
    {
        directory.set_parent(to);
        from.change(|meta| meta.links -= 1);
        to.change(|meta| meta.links += 1);
    }
    moved.change(|_| {});
    from.touch();
    to.touch();
}

/// Gives the mappings of a file its new name.
fn follow(moved: &Inode, from: (&Node, &[u8]), to: (&Node, &[u8])) {
    if let Body::File(file) = &moved.body {
        file.content.source.rename(from, to);
    }
}

/// Calls `visit` with the source of every regular file, once for each name.
///
/// # Errors
/// `ENOMEM`: no memory for the walk.
pub fn for_each_file(visit: &mut dyn FnMut(&Source)) -> Result<(), Errno> {
    // Not by recursion: directories may be nested deeper than the stack allows.
    let mut directories = Vec::new();
    directories.try_reserve(1).map_err(|_| ENOMEM)?;
    directories.push(ROOT.get().clone());
    while let Some(next) = directories.pop() {
        let Ok(directory) = next.directory() else {
            continue;
        };
        directory.for_each(&mut |node| -> Result<(), Errno> {
            let Node::Memory(inode) = node else {
                return Ok(());
            };
            match &inode.body {
                Body::File(file) => visit(&file.content.source),
                Body::Directory(_) => {
                    directories.try_reserve(1).map_err(|_| ENOMEM)?;
                    directories.push(inode.clone());
                }
                _ => {}
            }
            Ok(())
        })?;
    }
    Ok(())
}

/// Whether a directory is `above`, or lies in it.
fn lies_in(directory: &Shared<Inode>, above: &Shared<Inode>) -> bool {
    let up = |at: &Shared<Inode>| at.directory().ok()?.parent().ok()?;
    iter::successors(Some(directory.clone()), up).any(|at| at.is(above))
}
