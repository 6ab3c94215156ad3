//! Signals that programs send, to a thread or to the process.

use linux_raw_sys::general as linux;

use super::pending::{Info, Pending};
use super::{COUNT, action, bit};
use crate::errno::{Answer, EINVAL, ESRCH};
use crate::process;
use crate::sched::thread::{Thread, Work};
use crate::sched::{self};
use crate::sync::SpinLock;

/// Signals for the process, whichever thread takes them.
pub static SHARED: SpinLock<Pending> = SpinLock::new(Pending::new());

fn info(signal: u32, code: i32) -> Info {
    // The process's number, and user 0.
    Info {
        signal,
        code,
        fields: u64::from(process::ID),
        value: 0,
    }
}

/// Sends a signal to one thread.
///
/// # Errors
/// `EINVAL`, `ESRCH`.
pub fn to_thread(id: u32, signal: u32) -> Answer {
    if signal > COUNT {
        return Err(EINVAL);
    }
    let sent = process::with_thread(id, |thread| {
        if signal == 0 || action::get(signal).ignores(signal) && !is_blocked(thread, signal) {
            return;
        }
        thread
            .signals
            .lock()
            .pending
            .add(info(signal, linux::SI_TKILL));
        if !is_blocked(thread, signal) {
            sched::interrupt(thread, Work::SIGNAL);
        }
    });
    sent.map(|()| 0).ok_or(ESRCH)
}

fn is_blocked(thread: &Thread, signal: u32) -> bool {
    thread.signals.lock().blocked & bit(signal) & !super::UNBLOCKABLE != 0
}

/// Sends a signal to the process.
///
/// # Errors
/// `EINVAL`.
pub fn to_process(signal: u32) -> Answer {
    if signal > COUNT {
        return Err(EINVAL);
    }
    if signal == 0 || action::get(signal).ignores(signal) {
        return Ok(0);
    }
    SHARED.lock().add(info(signal, linux::SI_USER as i32));
    let mut taken = false;
    process::for_each_thread(&mut |thread| {
        if !taken && !is_blocked(thread, signal) {
            taken = true;
            sched::interrupt(thread, Work::SIGNAL);
        }
    });
    Ok(0)
}

/// The mask of the current thread has changed, or shared signals may wait: look again.
pub fn recheck(thread: &Thread) {
    let mut signals = thread.signals.lock();
    signals.blocked &= !super::UNBLOCKABLE;
    let waiting = signals.pending.set() | SHARED.lock().set();
    if waiting & !signals.blocked != 0 {
        thread.add_work(Work::SIGNAL);
    }
}
