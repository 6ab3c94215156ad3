//! Who writes a regular file and who runs it: never both at once (`ETXTBSY`).
//!
//! One count per file says which: above 0 as many descriptions are open for writing, below 0 as many
//! address spaces run it. Each holds a guard of this module as long as it does so.

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

    /// Counts one more on a side, if nobody is on the other one.
    fn begin(&self, step: i32) -> Result<(), Errno> {
        let join = |count: i32| (count == 0 || count.signum() == step).then_some(count + step);
        // Relaxed: it decides who may, and orders nothing.
        let joined = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, join);
        joined.map(drop).map_err(|_| ETXTBSY)
    }

    fn end(&self, step: i32) {
        self.0.fetch_sub(step, Ordering::Relaxed);
    }
}

/// What is counted for a file, if it is a regular one.
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

/// Writes a file until it is dropped.
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

/// Runs a file until it is dropped.
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

    /// Once more.
    ///
    /// # Errors
    /// None, because nobody can write it meanwhile.
    pub fn again(&self) -> Result<Self, Errno> {
        Self::begin(&self.user.inode)
    }
}
