//! Limits and usage.

use linux_raw_sys::general as linux;

use crate::arch::{time, uaccess};
use crate::errno::{Answer, EINVAL, EPERM, ESRCH, Errno};
use crate::files::descriptors;
use crate::memory::{self, Counter};
use crate::{exec, process};

fn limit(resource: u64) -> Result<[u64; 2], Errno> {
    let most = u64::MAX;
    match resource as u32 {
        linux::RLIMIT_STACK => Ok([exec::STACK_LIMIT, most]),
        linux::RLIMIT_NOFILE => Ok([descriptors::MOST as u64; 2]),
        linux::RLIMIT_CORE => Ok([0, most]),
        resource if resource < linux::RLIM_NLIMITS => Ok([most, most]),
        _ => Err(EINVAL),
    }
}

pub fn getrlimit(resource: u64, to: u64) -> Answer {
    uaccess::write(to, &limit(resource)?)?;
    Ok(0)
}

/// Limits are what they are: setting one to what it is succeeds.
pub fn setrlimit(resource: u64, from: u64) -> Answer {
    let [soft, _]: [u64; 2] = uaccess::read(from)?;
    if soft <= limit(resource)?[1] {
        Ok(0)
    } else {
        Err(EPERM)
    }
}

pub fn prlimit64(id: u64, resource: u64, new: u64, old: u64) -> Answer {
    if id != 0 && id != u64::from(process::ID) {
        return Err(ESRCH);
    }
    if new != 0 {
        setrlimit(resource, new)?;
    }
    if old != 0 {
        getrlimit(resource, old)?;
    }
    limit(resource).map(|_| 0)
}

pub fn getrusage(_who: u64, to: u64) -> Answer {
    let now = time::now();
    let mut words = [0u64; 18];
    words[0] = now / 1_000_000_000;
    words[1] = now % 1_000_000_000 / 1000;
    words[8] = memory::total(Counter::Faults);
    words[9] = memory::total(Counter::MajorFaults);
    uaccess::write(to, &words)?;
    Ok(0)
}
