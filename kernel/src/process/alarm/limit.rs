//! The limit on a process's CPU time (`RLIMIT_CPU`): a timer that looks at the limits each time it is due.

use linux_raw_sys::general as linux;

use super::super::{Process, usage};
use super::{ALARMS, CPU_LIMIT, Clock, NO_NOTICE, add, copy, set, thread};
use crate::errno::Errno;
use crate::signal::pending::Info;
use crate::signal::send;

/// Makes the timer of a process that has a limit, so that [`begin`] cannot fail.
///
/// # Errors
/// `ENOMEM`, `EAGAIN`.
pub fn prepare(process: &Process) -> Result<(), Errno> {
    let limit = process.limits.lock().cpu_time();
    prepare_for(process, limit)
}

/// The same for a limit that the process is about to get; `u64::MAX` is none. A process that ends gets no timer.
///
/// # Errors
/// `ENOMEM`, `EAGAIN`.
pub fn prepare_for(process: &Process, limit: u64) -> Result<(), Errno> {
    if limit == u64::MAX {
        return Ok(());
    }
    thread::begin()?;
    let mut alarms = ALARMS.lock();
    // The caller may be another process. SeqCst: pairs with [`super::forget`], after which no timer is added.
    if process.is_ending() {
        return Ok(());
    }
    // Another thread of the process may have added it.
    match super::find(&mut alarms, process.id, CPU_LIMIT) {
        Some(_) => Ok(()),
        None => add(
            &mut alarms,
            process.id,
            CPU_LIMIT,
            Clock::Process,
            NO_NOTICE,
        ),
    }
}

/// Sets the timer to the soft limit. The caller has called [`prepare`].
pub fn begin(process: &Process) {
    if copy(process.id, CPU_LIMIT).is_none() {
        return;
    }
    loop {
        let deadline = process.limits.lock().cpu_time();
        let _ = set(process.id, CPU_LIMIT, deadline, 0);
        // Another thread may have changed the limit, and set the timer, in between.
        if process.limits.lock().cpu_time() == deadline {
            return;
        }
    }
}

/// Sends the signal of a limit that the process has reached, and sets the timer anew.
pub(super) fn is_due(process: &Process) {
    let used = usage::of_time(process);
    let signal = process.limits.lock().take_cpu_signal(used);
    if let Some(signal) = signal {
        let info = Info {
            signal,
            code: linux::SI_KERNEL as i32,
            fields: 0,
            value: 0,
        };
        send::info_to_process(process, info);
    }
    begin(process);
}
