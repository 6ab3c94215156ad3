//! Process descriptors, for `poll`, `waitid` and `process_madvise`.
//!
//! `pidfd_send_signal` is not implemented, and threads have no descriptors.

use linux_raw_sys::general as linux;

use crate::errno::{Answer, EBADF, EINVAL, ESRCH, Errno};
use crate::files::description::{Description, Object};
use crate::files::descriptors;
use crate::process::Process;
use crate::process::family;
use crate::shared::Shared;

pub fn pidfd_open(id: u64, flags: u64) -> Answer {
    let flags = flags as u32;
    // The only known flag, `PIDFD_NONBLOCK`, equals `O_NONBLOCK`.
    if flags & !linux::O_NONBLOCK != 0 || id as i32 <= 0 {
        return Err(EINVAL);
    }
    let process = match family::find(id as u32) {
        Some(process) => process,
        // A thread that leads no process.
        None if family::find_thread(id as u32).is_some() => return Err(EINVAL),
        None => return Err(ESRCH),
    };
    let description = Description::new(Object::Process(process), linux::O_RDWR | flags, None)?;
    descriptors::current().add(description, 0, true)
}

/// The process that a descriptor refers to.
///
/// # Errors
/// `EBADF`, also for a descriptor of something else.
pub fn process(fd: u64) -> Result<Shared<Process>, Errno> {
    let description = descriptors::current().get(fd)?;
    match &description.object {
        Object::Process(process) => Ok(process.clone()),
        _ => Err(EBADF),
    }
}
