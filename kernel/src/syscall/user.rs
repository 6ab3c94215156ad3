//! User and group ids: only user 0 and group 0 exist.
//!
//! As in a user namespace with nothing else mapped: every other number is invalid.

use crate::arch::uaccess;
use crate::errno::{Answer, EINVAL, Errno};

/// The value that leaves an id unchanged.
const KEEP: u32 = u32::MAX;

fn check(ids: &[u64]) -> Result<(), Errno> {
    match ids.iter().all(|&id| matches!(id as u32, 0 | KEEP)) {
        true => Ok(()),
        false => Err(EINVAL),
    }
}

/// `setuid`, `setgid`.
pub fn set(id: u64) -> Answer {
    if id as u32 == KEEP {
        return Err(EINVAL);
    }
    check(&[id]).map(|()| 0)
}

/// `setreuid`, `setresuid` and their like.
pub fn set_several(ids: &[u64]) -> Answer {
    check(ids).map(|()| 0)
}

/// `setfsuid`, `setfsgid`: return the previous id.
pub fn set_file_id() -> Answer {
    Ok(0)
}

/// `getresuid`, `getresgid`.
pub fn get_several(places: [u64; 3]) -> Answer {
    places
        .iter()
        .try_for_each(|&place| uaccess::write(place, &0u32))?;
    Ok(0)
}

/// There are no supplementary groups.
pub fn getgroups() -> Answer {
    Ok(0)
}

pub fn setgroups(count: u64, from: u64) -> Answer {
    if count > 65536 {
        return Err(EINVAL);
    }
    for at in 0..count {
        let group: u32 = uaccess::read(from.wrapping_add(4 * at))?;
        check(&[u64::from(group)])?;
    }
    Ok(0)
}
