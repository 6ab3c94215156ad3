//! A process's working directory, and the permissions that its new files do not get.

use core::sync::atomic::{AtomicU32, Ordering};

use alloc::string::String;

use super::directory::Name;
use super::node::Node;
use super::tree;
use super::walk::{self, End, LONGEST_PATH, Last};
use crate::errno::{ENAMETOOLONG, ENOENT, ENOMEM, ENOTDIR, Errno};
use crate::process;
use crate::sync::SpinLock;

/// A process's working directory and its file mode mask (`umask`).
pub struct Place {
    directory: SpinLock<Node>,
    mask: AtomicU32,
    /// Processes that share it and have not ended.
    users: AtomicU32,
}

/// The place of the current process.
pub fn current() -> &'static Place {
    &process::current().place
}

impl Place {
    /// Makes a place at the root directory.
    pub fn root() -> Self {
        Self {
            directory: SpinLock::new(tree::root()),
            mask: AtomicU32::new(0o022),
            users: AtomicU32::new(1),
        }
    }

    /// Makes a copy for a child.
    pub fn duplicate(&self) -> Self {
        Self {
            directory: SpinLock::new(self.directory()),
            mask: AtomicU32::new(self.mask()),
            users: AtomicU32::new(1),
        }
    }

    pub fn directory(&self) -> Node {
        self.directory.lock().clone()
    }

    /// Changes the working directory.
    ///
    /// # Errors
    /// `ENOTDIR`.
    pub fn change(&self, directory: Node) -> Result<(), Errno> {
        if !directory.is_directory() {
            return Err(ENOTDIR);
        }
        let old = core::mem::replace(&mut *self.directory.lock(), directory);
        drop(old);
        Ok(())
    }

    /// Adds a process that shares it.
    pub fn share(&self) {
        self.users.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes a process that shared it and ends. The last one releases the directory.
    pub fn leave(&self) {
        if self.users.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let old = core::mem::replace(&mut *self.directory.lock(), tree::root());
        drop(old);
    }

    pub fn mask(&self) -> u32 {
        self.mask.load(Ordering::Relaxed)
    }

    /// Sets the mask. Returns the old one.
    pub fn set_mask(&self, mask: u32) -> u32 {
        self.mask.swap(mask & 0o777, Ordering::Relaxed)
    }
}

/// The real path, absolute and without links, of the target of a path of the current process.
///
/// # Errors
/// Those of following it; `ENOENT` if it is not UTF-8.
pub fn real_path(path: &str) -> Result<String, Errno> {
    let from = current().directory();
    let found = walk::walk(&from, path.as_bytes(), Last::Follow)?;
    let mut real = path_of(&found.directory)?;
    if let End::Name(name) = &found.end {
        real.try_reserve(1 + name.len()).map_err(|_| ENOMEM)?;
        if real.last() != Some(&b'/') {
            real.push(b'/');
        }
        real.extend_from_slice(name);
    }
    String::from_utf8(real).map_err(|_| ENOENT)
}

/// The path of a directory.
///
/// # Errors
/// `ENOENT` if it was removed; `ENAMETOOLONG`; `ENOMEM`.
pub fn path_of(directory: &Node) -> Result<Name, Errno> {
    // Built from the end to the beginning.
    let mut path = Name::new();
    path.try_reserve(LONGEST_PATH).map_err(|_| ENOMEM)?;
    let mut at = directory.clone();
    loop {
        let parent = at.parent()?;
        if parent.is(&at) {
            break;
        }
        let name = match (&parent, &at) {
            (Node::Memory(parent), Node::Memory(inode)) => parent.directory()?.name_of(inode)?,
            (_, Node::Proc(entry)) => entry.name()?,
            _ => return Err(ENOENT),
        };
        if path.len() + name.len() + 1 >= LONGEST_PATH {
            return Err(ENAMETOOLONG);
        }
        path.extend(name.iter().rev());
        path.push(b'/');
        at = parent;
    }
    if path.is_empty() {
        path.push(b'/');
    }
    path.reverse();
    Ok(path)
}
