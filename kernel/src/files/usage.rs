//! Keeps a regular file from being written and run at the same time (`ETXTBSY`).
//!
//! Each file has one count. Above 0 it is the number of descriptions open for writing; below 0, of address
//! spaces that run the file. Each of them holds a guard of this module.

use core::sync::atomic::{AtomicI32, Ordering};

use super::node::{Body, File, Inode};
use crate::errno::{ETXTBSY, Errno};
use crate::shared::Shared;

/// The count.
pub struct Usage(AtomicI32);

impl Usage {
    pub const fn new() -> Self {
        Self(AtomicI32::new(0))
    }

    /// Adds one to a side, unless the other side is in use.
    fn begin(&self, step: i32) -> Result<(), Errno> {
        let join = |count: i32| (count == 0 || count.signum() == step).then_some(count + step);
        // Relaxed: the count decides access, and orders nothing.
        let joined = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, join);
        joined.map(drop).map_err(|_| ETXTBSY)
    }

    fn end(&self, step: i32) {
        self.0.fetch_sub(step, Ordering::Relaxed);
    }
}

/// One unit of a file's count, if it is a regular file.
struct User {
    inode: Shared<Inode>,
    step: i32,
}

impl User {
    fn begin(inode: &Shared<Inode>, step: i32) -> Result<Self, Errno> {
        let inode = inode.clone();
        if let Some(file) = file_of(&inode) {
            file.usage.begin(step)?;
        }
        Ok(Self { inode, step })
    }
}

impl Drop for User {
    fn drop(&mut self) {
        if let Some(file) = file_of(&self.inode) {
            file.usage.end(self.step);
        }
    }
}

fn file_of(inode: &Inode) -> Option<&File> {
    match &inode.body {
        Body::File(file) => Some(file),
        _ => None,
    }
}

/// Marks a file as open for writing, until dropped.
pub struct Writing {
    _user: User,
}

impl Writing {
    /// # Errors
    /// `ETXTBSY`.
    pub fn begin(inode: &Shared<Inode>) -> Result<Self, Errno> {
        let _user = User::begin(inode, 1)?;
        Ok(Self { _user })
    }
}

/// Marks a file as running, until dropped.
pub struct Running {
    user: User,
}

impl Running {
    /// # Errors
    /// `ETXTBSY`.
    pub fn begin(inode: &Shared<Inode>) -> Result<Self, Errno> {
        let user = User::begin(inode, -1)?;
        Ok(Self { user })
    }

    /// Makes another guard for the same file.
    ///
    /// # Errors
    /// None: the file cannot be open for writing meanwhile.
    pub fn again(&self) -> Result<Self, Errno> {
        Self::begin(&self.user.inode)
    }
}
