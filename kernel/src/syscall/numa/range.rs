//! `mbind`: checks a policy for a range.

use faultless_frames::FrameSource;
use faultless_mm::PAGE_SIZE;

use super::nodes::Nodes;
use super::policy::{Mode, Policy};
use super::{MOVE, MOVE_ALL, STRICT, breathe, check_move_all};
use crate::errno::{Answer, EFAULT, EINVAL, EIO, Errno};
use crate::memory::machine::frames;
use crate::process::{UserSpace, space};

pub fn mbind(start: u64, length: u64, mode: u64, at: u64, count: u64, flags: u64) -> Answer {
    let mode = Mode::new(mode)?;
    let nodes = Nodes::read(at, count)?;
    let flags = flags as u32;
    if flags & !(STRICT | MOVE | MOVE_ALL) != 0 {
        return Err(EINVAL);
    }
    check_move_all(flags)?;
    if !start.is_multiple_of(PAGE_SIZE) {
        return Err(EINVAL);
    }
    // As on Linux, a length that is too long to be rounded becomes 0.
    let length = length.wrapping_add(PAGE_SIZE - 1) & !(PAGE_SIZE - 1);
    let end = start.checked_add(length).ok_or(EINVAL)?;
    if end == start {
        return Ok(0);
    }
    let policy = Policy::new(mode, nodes)?;
    let space = space();
    check_mapped(space, start, end, policy)?;
    // As on Linux: of a policy without nodes, all pages are on the wrong node.
    if flags == STRICT && policy.is_local() && has_pages(space, start, end)? {
        return Err(EIO);
    }
    Ok(0)
}

/// Checks that a range is mapped: all of it, or any page if the policy is the default.
fn check_mapped(space: &UserSpace, start: u64, end: u64, policy: Policy) -> Result<(), Errno> {
    let mut at = start;
    while let Some(line) = space.maps_after(at).filter(|line| line.start < end) {
        if policy.is_default() {
            return Ok(());
        }
        if line.start > at {
            break;
        }
        at = line.end;
        if at >= end {
            return Ok(());
        }
    }
    Err(EFAULT)
}

/// Whether any page of a range is in memory. The shared zero page does not count.
fn has_pages(space: &UserSpace, start: u64, end: u64) -> Result<bool, Errno> {
    const AT_ONCE: usize = 64;
    const PRESENT: u64 = 1 << 63;
    const FRAME: u64 = (1 << 55) - 1;
    let zero = frames().zero_frame().0;
    let mut at = start;
    while let Some(line) = space.maps_after(at).filter(|line| line.start < end) {
        at = at.max(line.start);
        let stop = end.min(line.end);
        while at < stop {
            let mut words = [0; AT_ONCE];
            let count = ((stop - at) / PAGE_SIZE).min(AT_ONCE as u64);
            space.pagemap(at / PAGE_SIZE, &mut words[..count as usize], true);
            let is_there = |word: &u64| word & PRESENT != 0 && word & FRAME != zero;
            if !line.device && words.iter().any(is_there) {
                return Ok(true);
            }
            at += count * PAGE_SIZE;
            breathe()?;
        }
    }
    Ok(false)
}
