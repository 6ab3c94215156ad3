//! `move_pages` and `migrate_pages`: on which node pages are. None moves.

use faultless_frames::FrameSource;
use linux_raw_sys::general as linux;

use super::nodes::Nodes;
use super::{MOVE, MOVE_ALL, breathe, check_move_all};
use crate::arch::uaccess;
use crate::errno::{Answer, EFAULT, EINVAL, ENODEV, ENOENT, EPERM, ESRCH, Errno};
use crate::memory::machine::frames;
use crate::process::{self, Process, UserSpace, family};
use crate::sched;
use crate::shared::Shared;

/// The process of a number; 0 is the caller's.
fn process(id: u64) -> Result<Shared<Process>, Errno> {
    match id as u32 {
        0 => Ok(sched::current().process_reference()),
        id => family::find_thread(id).ok_or(ESRCH),
    }
}

pub fn migrate_pages(id: u64, count: u64, from: u64, to: u64) -> Answer {
    Nodes::read(from, count)?;
    let to = Nodes::read(to, count)?;
    let process = process(id)?;
    let capabilities = process::current().limits.lock().capabilities;
    if to.has_strange() && !capabilities.has(linux::CAP_SYS_NICE) {
        return Err(EPERM);
    }
    if !to.has_own() {
        return Err(EINVAL);
    }
    process.space().ok_or(EINVAL)?;
    // All pages are on the node to which they should go.
    Ok(0)
}

pub fn move_pages(id: u64, count: u64, pages: u64, nodes: u64, status: u64, flags: u64) -> Answer {
    let flags = flags as u32;
    if flags & !(MOVE | MOVE_ALL) != 0 {
        return Err(EINVAL);
    }
    check_move_all(flags)?;
    let space = process(id)?.space().ok_or(EINVAL)?;
    let moves = nodes != 0;
    for number in 0..count {
        let address: u64 = uaccess::read(pages.wrapping_add(8 * number))?;
        if moves {
            let node: i32 = uaccess::read(nodes.wrapping_add(4 * number))?;
            if node != 0 {
                return Err(ENODEV);
            }
        }
        let node = match node_of(&space, address, moves) {
            Ok(node) => node,
            Err(Errno(error)) => -error,
        };
        uaccess::write(status.wrapping_add(4 * number), &node)?;
        breathe()?;
    }
    Ok(0)
}

/// The node of a page.
///
/// # Errors
/// `EFAULT` where nothing is mapped, and for the shared zero page; `ENOENT` if there is no page. A device's
/// page cannot be moved (`EFAULT`), and is on no node (`ENOENT`).
fn node_of(space: &UserSpace, address: u64, moves: bool) -> Result<i32, Errno> {
    let mapping = space.lookup(address).ok_or(EFAULT)?;
    if mapping.flags.device {
        return Err(if moves { EFAULT } else { ENOENT });
    }
    let frame = space.page_state(address).frame.ok_or(ENOENT)?;
    if frame == frames().zero_frame() {
        return Err(EFAULT);
    }
    Ok(0)
}
