//! System calls on NUMA nodes and memory policies. This machine has one node, number 0, with all CPUs and all
//! memory. So each policy has the same effect, and no page ever moves: the calls check their arguments as Linux
//! does, and answer as it does on a machine with one node.
//!
//! A thread's policy is kept, to be returned (`policy`). A range's policy is checked and forgotten (`range`).

mod nodes;
mod pages;
mod policy;
mod range;

pub use pages::{migrate_pages, move_pages};
pub use policy::{Policy, get_mempolicy, set_mempolicy};
pub use range::mbind;

use linux_raw_sys::general as linux;

use crate::errno::{EINTR, EPERM, Errno};
use crate::process;
use crate::sched::{self, thread::Work};

/// Flags of `mbind` and `move_pages`: fail if pages are elsewhere; move pages; move shared pages, too.
const STRICT: u32 = 1;
const MOVE: u32 = 2;
const MOVE_ALL: u32 = 4;

/// Checks that the process may move pages that other processes use.
fn check_move_all(flags: u32) -> Result<(), Errno> {
    let capabilities = process::current().limits.lock().capabilities;
    if flags & MOVE_ALL != 0 && !capabilities.has(linux::CAP_SYS_NICE) {
        return Err(EPERM);
    }
    Ok(())
}

/// Lets other threads run during a long call.
///
/// # Errors
/// `EINTR`: the thread has to exit.
fn breathe() -> Result<(), Errno> {
    sched::breathe();
    match sched::current().work().contains(Work::EXIT) {
        true => Err(EINTR),
        false => Ok(()),
    }
}
