//! `capget` and `capset`: reads a process's capabilities and drops them.

use linux_raw_sys::general as linux;

use crate::arch::uaccess;
use crate::errno::{Answer, EINVAL, EPERM, ESRCH, Errno};
use crate::process::capabilities::Capabilities;
use crate::process::{self, family};
use crate::sched;

/// The words of each set in a version of the calls; 0 for unknown versions.
fn words(version: u32) -> usize {
    match version {
        linux::_LINUX_CAPABILITY_VERSION_1 => 1,
        linux::_LINUX_CAPABILITY_VERSION_2 | linux::_LINUX_CAPABILITY_VERSION_3 => 2,
        _ => 0,
    }
}

/// Reads a header: the words of each set, and the process.
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
        // A null `to` only asks for the version.
        return if to == 0 { Ok(0) } else { Err(EINVAL) };
    }
    if to == 0 {
        return Ok(0);
    }
    let Capabilities {
        effective,
        permitted,
        inheritable,
    } = match process {
        0 => process::current().limits.lock().capabilities,
        process if process < 0 => return Err(EINVAL),
        process => {
            let process = family::find_thread(process as u32).ok_or(ESRCH)?;
            process.limits.lock().capabilities
        }
    };
    for word in 0..words {
        let sets = [effective, permitted, inheritable].map(|set| (set >> (32 * word)) as u32);
        uaccess::write(to.wrapping_add(12 * word as u64), &sets)?;
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
    let mut sets = [0; 3];
    for word in 0..words {
        let place = from.wrapping_add(12 * word as u64);
        let parts: [u32; 3] = uaccess::read(place)?;
        for (set, part) in sets.iter_mut().zip(parts) {
            *set |= u64::from(part) << (32 * word);
        }
    }
    let [effective, permitted, inheritable] = sets;
    let process = process::current();
    // Take the reference outside the lock, as in `prlimit64`.
    let space = process.own_space();
    let mut limits = process.limits.lock();
    limits.capabilities.change(Capabilities {
        effective,
        permitted,
        inheritable,
    })?;
    if let Some(space) = &space {
        space.set_limits(&limits.memory());
    }
    Ok(0)
}
