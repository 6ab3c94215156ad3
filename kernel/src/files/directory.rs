//! Directories of the tree in memory.
//!
//! Entries are in the order of their names' hashes. The hashes are also the positions that `getdents`
//! returns, so a listing continues at the right entry whatever was added or removed meanwhile.

use alloc::vec::Vec;

use super::node::{Inode, Node};
use crate::errno::{EEXIST, ENOENT, ENOMEM, Errno};
use crate::shared::{Shared, Weak};
use crate::sync::SpinLock;

/// A name: at most 255 bytes, no slash.
pub type Name = Vec<u8>;

struct Entry {
    hash: u64,
    name: Name,
    node: Node,
}

/// Where `..` leads.
enum Parent {
    /// The root is its own parent.
    Root,
    Of(Weak<Inode>),
    /// The directory was removed.
    Gone,
}

struct Inner {
    entries: Vec<Entry>,
    parent: Parent,
}

/// A directory. Changes are made under `tree::CHANGES`; the lock here is for look-ups.
pub struct Directory(SpinLock<Inner>);

/// FNV-1a, in 62 bits, above the positions behind `.` and `..`.
fn hash(name: &[u8]) -> u64 {
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    });
    (hash >> 2).max(3)
}

impl Inner {
    /// The index of a name, or where it belongs.
    fn find(&self, name: &[u8]) -> Result<usize, usize> {
        let key = (hash(name), name);
        self.entries
            .binary_search_by(|entry| (entry.hash, &entry.name[..]).cmp(&key))
    }
}

impl Directory {
    /// Makes an empty directory in another one, or the root.
    pub fn new(parent: Option<&Shared<Inode>>) -> Self {
        Self(SpinLock::new(Inner {
            entries: Vec::new(),
            parent: parent.map_or(Parent::Root, |parent| Parent::Of(parent.downgrade())),
        }))
    }

    /// Looks up a name.
    pub fn lookup(&self, name: &[u8]) -> Option<Node> {
        let inner = self.0.lock();
        let place = inner.find(name).ok()?;
        Some(inner.entries[place].node.clone())
    }

    /// The parent directory; `None` for the root.
    ///
    /// # Errors
    /// `ENOENT` if this one was removed.
    pub fn parent(&self) -> Result<Option<Shared<Inode>>, Errno> {
        match &self.0.lock().parent {
            Parent::Root => Ok(None),
            Parent::Of(parent) => parent.upgrade().map(Some).ok_or(ENOENT),
            Parent::Gone => Err(ENOENT),
        }
    }

    /// Sets the parent directory.
    pub fn set_parent(&self, parent: &Shared<Inode>) {
        let new = Parent::Of(parent.downgrade());
        let old = core::mem::replace(&mut self.0.lock().parent, new);
        drop(old);
    }

    /// Marks it as removed: nothing can be added to it any more.
    pub fn set_gone(&self) {
        let old = core::mem::replace(&mut self.0.lock().parent, Parent::Gone);
        drop(old);
    }

    pub fn is_empty(&self) -> bool {
        self.0.lock().entries.is_empty()
    }

    pub fn length(&self) -> usize {
        self.0.lock().entries.len()
    }

    /// Adds an entry.
    ///
    /// # Errors
    /// `EEXIST`; `ENOENT` if the directory was removed; `ENOMEM`.
    pub fn insert(&self, name: &[u8], node: Node) -> Result<(), Errno> {
        let name = copy_name(name)?;
        let mut inner = self.0.lock();
        if matches!(inner.parent, Parent::Gone) {
            return Err(ENOENT);
        }
        let Err(place) = inner.find(&name) else {
            return Err(EEXIST);
        };
        inner.entries.try_reserve(1).map_err(|_| ENOMEM)?;
        let hash = hash(&name);
        inner.entries.insert(place, Entry { hash, name, node });
        Ok(())
    }

    /// Makes an existing name lead to another node. Returns the old one.
    pub fn replace(&self, name: &[u8], node: Node) -> Option<Node> {
        let mut inner = self.0.lock();
        let place = inner.find(name).ok()?;
        Some(core::mem::replace(&mut inner.entries[place].node, node))
    }

    /// Removes an entry.
    pub fn remove(&self, name: &[u8]) -> Option<Node> {
        let entry = {
            let mut inner = self.0.lock();
            let place = inner.find(name).ok()?;
            inner.entries.remove(place)
        };
        Some(entry.node)
    }

    /// Calls `visit` with each node in it, under its lock.
    ///
    /// # Errors
    /// Those of `visit`.
    pub fn for_each<E>(&self, visit: &mut dyn FnMut(&Node) -> Result<(), E>) -> Result<(), E> {
        let inner = self.0.lock();
        inner
            .entries
            .iter()
            .try_for_each(|entry| visit(&entry.node))
    }

    /// The first entry behind a position of a listing: its own position, name and node.
    pub fn next(&self, position: u64) -> Result<Option<(u64, Name, Node)>, Errno> {
        let inner = self.0.lock();
        let place = inner
            .entries
            .partition_point(|entry| entry.hash <= position);
        let Some(entry) = inner.entries.get(place) else {
            return Ok(None);
        };
        Ok(Some((
            entry.hash,
            copy_name(&entry.name)?,
            entry.node.clone(),
        )))
    }

    /// A name that leads to an inode.
    ///
    /// # Errors
    /// `ENOENT`, `ENOMEM`.
    pub fn name_of(&self, inode: &Shared<Inode>) -> Result<Name, Errno> {
        let inner = self.0.lock();
        let entry = inner
            .entries
            .iter()
            .find(|entry| matches!(&entry.node, Node::Memory(other) if other.is(inode)));
        copy_name(&entry.ok_or(ENOENT)?.name)
    }
}

/// A copy of a name.
///
/// # Errors
/// `ENOMEM`.
pub fn copy_name(name: &[u8]) -> Result<Name, Errno> {
    let mut copy = Name::new();
    copy.try_reserve_exact(name.len()).map_err(|_| ENOMEM)?;
    copy.extend_from_slice(name);
    Ok(copy)
}
