//! Capabilities: everybody has all of them. Giving them up is possible and changes nothing, for
//! nothing asks for them.

use linux_raw_sys::general as linux;

use crate::arch::uaccess;
use crate::errno::{Answer, EINVAL, EPERM, ESRCH, Errno};
use crate::process::family;
use crate::sched;

/// All that Linux 6.12 knows, 0 to 40.
const ALL: u64 = (1 << 41) - 1;

/// How many words each set has in a version of the calls; 0 for versions that there are not.
fn words(version: u32) -> usize {
    match version {
        linux::_LINUX_CAPABILITY_VERSION_1 => 1,
        linux::_LINUX_CAPABILITY_VERSION_2 | linux::_LINUX_CAPABILITY_VERSION_3 => 2,
        _ => 0,
    }
}

/// Version and process of a header.
fn header(at: u64) -> Result<(usize, i32), Errno> {
    let [version, process]: [u32; 2] = uaccess::read(at)?;
    let words = words(version);
    if words == 0 {
        uaccess::write(at, &linux::_LINUX_CAPABILITY_VERSION_3)?;
    }
    Ok((words, process as i32))
}

pub fn capget(at: u64, to: u64) -> Answer {
    let (words, process) = header(at)?;
    if words == 0 {
        // How a program asks for the version.
        return if to == 0 { Ok(0) } else { Err(EINVAL) };
    }
    if to == 0 {
        return Ok(0);
    }
    match process {
        0 => {}
        process if process < 0 => return Err(EINVAL),
        process => drop(family::find_thread(process as u32).ok_or(ESRCH)?),
    }
    for word in 0..words {
        let set = (ALL >> (32 * word)) as u32;
        // Effective, permitted, inheritable.
        uaccess::write(to.wrapping_add(12 * word as u64), &[set, set, 0])?;
    }
    Ok(0)
}

pub fn capset(at: u64, from: u64) -> Answer {
    let (words, process) = header(at)?;
    if words == 0 {
        return Err(EINVAL);
    }
    if process != 0 && process as u32 != sched::current().id() {
        return Err(EPERM);
    }
    for word in 0..words {
        let place = from.wrapping_add(12 * word as u64);
        let [effective, permitted, _]: [u32; 3] = uaccess::read(place)?;
        if effective & !permitted != 0 {
            return Err(EPERM);
        }
    }
    Ok(0)
}
