//! Limits and usage.

use linux_raw_sys::general as linux;

use crate::arch::uaccess;
use crate::errno::{Answer, EINVAL, EPERM, ESRCH, Errno};
use crate::files::descriptors;
use crate::process::usage::{self, Usage};
use crate::{exec, process, sched};

const RUSAGE_SELF: i32 = 0;
const RUSAGE_CHILDREN: i32 = -1;
const RUSAGE_THREAD: i32 = 1;

fn limit(resource: u64) -> Result<[u64; 2], Errno> {
    let most = u64::MAX;
    match resource as u32 {
        linux::RLIMIT_STACK => Ok([exec::STACK_LIMIT, most]),
        linux::RLIMIT_NOFILE => Ok([descriptors::current().limit(), descriptors::HARD_LIMIT]),
        linux::RLIMIT_CORE => Ok([0, most]),
        resource if resource < linux::RLIM_NLIMITS => Ok([most, most]),
        _ => Err(EINVAL),
    }
}

pub fn getrlimit(resource: u64, to: u64) -> Answer {
    uaccess::write(to, &limit(resource)?)?;
    Ok(0)
}

/// Only the number of descriptors can be limited. Other limits are what they are: setting one to
/// what it is succeeds.
pub fn setrlimit(resource: u64, from: u64) -> Answer {
    let [soft, hard]: [u64; 2] = uaccess::read(from)?;
    if resource as u32 == linux::RLIMIT_NOFILE {
        if soft > hard {
            return Err(EINVAL);
        }
        return descriptors::current().set_limit(soft).map(|()| 0);
    }
    if soft <= limit(resource)?[1] {
        Ok(0)
    } else {
        Err(EPERM)
    }
}

pub fn prlimit64(id: u64, resource: u64, new: u64, old: u64) -> Answer {
    if id != 0 {
        process::family::find(id as u32).ok_or(ESRCH)?;
    }
    let before = limit(resource)?;
    if new != 0 {
        setrlimit(resource, new)?;
    }
    if old != 0 {
        uaccess::write(old, &before)?;
    }
    Ok(0)
}

pub fn getrusage(who: u64, to: u64) -> Answer {
    let process = process::current();
    let thread = sched::current();
    usage::charge(thread);
    let used = match who as i32 {
        RUSAGE_SELF => usage::of(process),
        RUSAGE_CHILDREN => *process.children_usage.lock(),
        RUSAGE_THREAD => thread.usage.get(),
        _ => return Err(EINVAL),
    };
    write_usage(to, &used)?;
    Ok(0)
}

/// Writes a `struct rusage`.
///
/// # Errors
/// `EFAULT`.
pub fn write_usage(to: u64, used: &Usage) -> Result<(), Errno> {
    let mut words = [0u64; 18];
    words[0] = used.ran / 1_000_000_000;
    words[1] = used.ran % 1_000_000_000 / 1000;
    words[4] = used.most_pages * 4;
    words[8] = used.minor_faults;
    words[9] = used.major_faults;
    words[16] = used.slept;
    words[17] = used.preempted;
    uaccess::write(to, &words)
}
