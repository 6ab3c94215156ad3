//! Resource limits and usage.

use linux_raw_sys::general as linux;

use crate::arch::uaccess;
use crate::errno::{Answer, EINVAL, ESRCH, Errno};
use crate::process::alarm::limit;
use crate::process::family;
use crate::process::usage::{self, Usage};
use crate::{process, sched};

const RUSAGE_SELF: i32 = 0;
const RUSAGE_CHILDREN: i32 = -1;
const RUSAGE_THREAD: i32 = 1;

pub fn getrlimit(resource: u64, to: u64) -> Answer {
    prlimit64(0, resource, 0, to)
}

pub fn setrlimit(resource: u64, from: u64) -> Answer {
    prlimit64(0, resource, from, 0)
}

pub fn prlimit64(id: u64, resource: u64, new: u64, old: u64) -> Answer {
    let process = match id as u32 {
        0 => sched::current().process_reference(),
        id => family::find(id).ok_or(ESRCH)?,
    };
    let wanted: Option<[u64; 2]> = match new {
        0 => None,
        new => Some(uaccess::read(new)?),
    };
    let is_cpu_time = resource as u32 == linux::RLIMIT_CPU;
    if let Some([soft, _]) = wanted.filter(|_| is_cpu_time) {
        // What can fail comes before the change.
        limit::prepare_for(&process, soft)?;
    }
    // Take the reference outside the lock, because dropping the last one takes long.
    let space = process.own_space();
    let before = {
        let mut limits = process.limits.lock();
        let before = limits.get(resource)?;
        if let Some(wanted) = wanted {
            limits.set(resource, wanted)?;
            process.descriptors.get().set_limit(limits.files())?;
            if let Some(space) = &space {
                space.set_limits(&limits.memory());
            }
        }
        before
    };
    if wanted.is_some() && is_cpu_time {
        limit::begin(&process);
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
        RUSAGE_THREAD => usage::of_thread(process, thread),
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
