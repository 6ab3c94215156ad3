//! Scheduling classes and priorities: there is one class, and all threads are equal in it.

use linux_raw_sys::general as linux;

use crate::arch::uaccess;
use crate::errno::{Answer, EINVAL, EPERM, ESRCH, Errno};
use crate::process::{current, family};

/// A slice in nanoseconds, as `sched_rr_get_interval` reports it.
const SLICE: u64 = 4_000_000;

fn check(id: u64) -> Result<(), Errno> {
    match id as i32 {
        0 => Ok(()),
        id if id < 0 => Err(EINVAL),
        id => family::find_thread(id as u32).map(drop).ok_or(ESRCH),
    }
}

pub fn sched_getscheduler(id: u64) -> Answer {
    check(id)?;
    Ok(u64::from(linux::SCHED_NORMAL))
}

pub fn sched_setscheduler(id: u64, class: u64, parameter: u64) -> Answer {
    check(id)?;
    let priority: u32 = uaccess::read(parameter)?;
    match class as u32 & !linux::SCHED_RESET_ON_FORK {
        linux::SCHED_NORMAL | linux::SCHED_BATCH | linux::SCHED_IDLE if priority == 0 => Ok(0),
        linux::SCHED_FIFO | linux::SCHED_RR if (1..100).contains(&priority) => Err(EPERM),
        _ => Err(EINVAL),
    }
}

pub fn sched_getparam(id: u64, to: u64) -> Answer {
    check(id)?;
    uaccess::write(to, &0u32)?;
    Ok(0)
}

pub fn sched_setparam(id: u64, from: u64) -> Answer {
    check(id)?;
    match uaccess::read::<u32>(from)? {
        0 => Ok(0),
        _ => Err(EINVAL),
    }
}

/// The greatest priority of a class, or the least.
pub fn sched_get_priority(class: u64, greatest: bool) -> Answer {
    match class as u32 {
        linux::SCHED_FIFO | linux::SCHED_RR => Ok(if greatest { 99 } else { 1 }),
        linux::SCHED_NORMAL | linux::SCHED_BATCH | linux::SCHED_IDLE | linux::SCHED_DEADLINE => {
            Ok(0)
        }
        _ => Err(EINVAL),
    }
}

pub fn sched_rr_get_interval(id: u64, to: u64) -> Answer {
    check(id)?;
    uaccess::write(to, &[0, SLICE])?;
    Ok(0)
}

/// Checks that the target exists: a process, a group or a user.
fn check_target(which: u64, id: u64) -> Result<(), Errno> {
    let own = current().id;
    let id = id as u32;
    let known = match which as u32 {
        0 => id == 0 || family::find_thread(id).is_some(),
        1 => family::with(|family| {
            let group = match id {
                0 => family.get(own).map_or(own, |entry| entry.group),
                group => group,
            };
            family.entries().iter().any(|entry| entry.group == group)
        }),
        2 => id == 0,
        _ => return Err(EINVAL),
    };
    if known { Ok(()) } else { Err(ESRCH) }
}

/// Returns 20 minus the niceness, as the system call does; the C library converts that.
pub fn getpriority(which: u64, id: u64) -> Answer {
    check_target(which, id)?;
    Ok(20)
}

/// Checks the target and changes nothing.
pub fn setpriority(which: u64, id: u64) -> Answer {
    check_target(which, id)?;
    Ok(0)
}
