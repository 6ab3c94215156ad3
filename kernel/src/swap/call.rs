//! `swapon` and `swapoff`.
//!
//! A file of the tree in memory cannot be swapped to, as on Linux's tmpfs. `swapoff` ends early with `EINTR` at a
//! signal, and with `ENOMEM` where little memory is left; the disk is in use again then.

use linux_raw_sys::general as linux;

use super::{Kind, disk_of};
use crate::errno::{Answer, EINVAL, EISDIR, EPERM, Errno};
use crate::files::device::Device;
use crate::files::node::{Body, Node};
use crate::files::walk::Last;
use crate::memory::machine;
use crate::process;
use crate::sched;
use crate::syscall::file::path;

const PREFER: u32 = 0x8000;
const PRIORITY: u32 = 0x7fff;
/// Flags about discarding, which change nothing here.
const DISCARD: u32 = 0x7_0000;

/// The part of memory that `swapoff` leaves free, so that the next fault does not end a process.
const RESERVE: u64 = 64;

fn may_change() -> Result<(), Errno> {
    let capabilities = process::current().limits.lock().capabilities;
    match capabilities.has(linux::CAP_SYS_ADMIN) {
        true => Ok(()),
        false => Err(EPERM),
    }
}

/// The kind of the disk at a path.
fn kind_at(path: u64) -> Result<Kind, Errno> {
    let node = path::find(path::HERE, path, Last::Follow)?;
    match &node {
        Node::Memory(inode) => match inode.body {
            Body::Device(Device::Disk(kind)) => Ok(kind),
            Body::Directory(_) => Err(EISDIR),
            _ => Err(EINVAL),
        },
        node if node.is_directory() => Err(EISDIR),
        _ => Err(EINVAL),
    }
}

pub fn swapon(path: u64, flags: u64) -> Answer {
    let flags = flags as u32;
    if flags & !(PREFER | PRIORITY | DISCARD) != 0 {
        return Err(EINVAL);
    }
    may_change()?;
    let disk = disk_of(kind_at(path)?).ok_or(EINVAL)?;
    let priority = (flags & PREFER != 0).then_some((flags & PRIORITY) as u16);
    // A disk in use is refused for that, whatever its header.
    if !disk.is_on() {
        disk.check_header().map_err(|_| EINVAL)?;
    }
    disk.turn_on(priority).map(|()| 0)
}

pub fn swapoff(path: u64) -> Answer {
    may_change()?;
    let disk = disk_of(kind_at(path)?).ok_or(EINVAL)?;
    let number = disk.number().ok_or(EINVAL)?;
    let (all, _) = machine::sizes();
    let may_go_on = || match sched::current().is_interrupted() {
        true => Err(faultless_mm::Errno::EINTR),
        false if machine::sizes().1 < all / RESERVE => Err(faultless_mm::Errno::ENOMEM),
        false => Ok(()),
    };
    machine::memory().swap_off(number, &may_go_on)?;
    Ok(0)
}
