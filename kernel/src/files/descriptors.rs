//! The process's descriptor table.

use super::Kind;
use crate::console;
use crate::errno::{EBADF, EMFILE, Errno};
use crate::sync::SpinLock;

/// Descriptors that a process can have.
pub const MOST: usize = 64;

/// An open file. A duplicate has a position of its own, unlike on Linux.
#[derive(Clone)]
pub struct Open {
    pub kind: Kind,
    pub position: u64,
}

static TABLE: SpinLock<[Option<Open>; MOST]> = SpinLock::new([const { None }; MOST]);

/// Opens the three descriptors that a program begins with.
pub fn open_standard() {
    let kinds = [
        Kind::Input,
        Kind::Console(console::OUTPUT),
        Kind::Console(console::ERROR),
    ];
    for (slot, kind) in TABLE.lock().iter_mut().zip(kinds) {
        *slot = Some(Open { kind, position: 0 });
    }
}

/// What a descriptor leads to.
///
/// # Errors
/// `EBADF`.
pub fn get(number: u64) -> Result<Open, Errno> {
    let table = TABLE.lock();
    table.get(number as usize).cloned().flatten().ok_or(EBADF)
}

/// Moves a descriptor's position.
pub fn set_position(number: u64, position: u64) {
    if let Some(Some(open)) = TABLE.lock().get_mut(number as usize) {
        open.position = position;
    }
}

/// A new descriptor, the lowest free one from `lowest` on.
///
/// # Errors
/// `EMFILE`.
pub fn add(open: Open, lowest: usize) -> Result<u64, Errno> {
    let mut table = TABLE.lock();
    let free = table
        .iter()
        .skip(lowest)
        .position(Option::is_none)
        .ok_or(EMFILE)?
        + lowest;
    table[free] = Some(open);
    Ok(free as u64)
}

/// Puts an open file at a given number.
///
/// # Errors
/// `EBADF`.
pub fn put(open: Open, number: u64) -> Result<u64, Errno> {
    let mut table = TABLE.lock();
    *table.get_mut(number as usize).ok_or(EBADF)? = Some(open);
    Ok(number)
}

/// Closes a descriptor.
///
/// # Errors
/// `EBADF`.
pub fn close(number: u64) -> Result<u64, Errno> {
    let old = {
        let mut table = TABLE.lock();
        table.get_mut(number as usize).and_then(Option::take)
    };
    old.map(|_| 0).ok_or(EBADF)
}

/// The current process ends. The table is still everybody's.
pub fn close_all() {}

/// The current process runs another program. The table is still everybody's.
pub fn close_on_exec() {}
