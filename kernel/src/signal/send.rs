//! Signals that programs send, to a thread or to the process.

use linux_raw_sys::general as linux;

use super::pending::{Info, Pending};
use super::{COUNT, Set, action, bit};
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

/// Changes the current thread's mask: what it lets through may be delivered now, and what it
/// blocks from now on is for others.
pub fn set_blocked(thread: &Thread, mask: Set) {
    let mut signals = thread.signals.lock();
    let mask = mask & !super::UNBLOCKABLE;
    let added = mask & !signals.blocked;
    signals.blocked = mask;
    let waiting = signals.pending.set() | SHARED.lock().set();
    drop(signals);
    if waiting & !mask != 0 {
        thread.add_work(Work::SIGNAL);
    }
    hand_on(added);
}

/// A thread does not take these signals of the process any more, because it blocks them or has
/// left the list of threads. It may have been chosen for one: another thread has to look.
///
/// None is missed: whoever sends one adds it to `SHARED` before it looks at a thread's mask, under
/// that thread's lock, or at the list, under the list's; the same lock was taken before this call.
pub fn hand_on(signals: Set) {
    if signals == 0 {
        return;
    }
    let mut waiting = SHARED.lock().set() & signals;
    if waiting == 0 {
        return;
    }
    process::for_each_thread(&mut |thread| {
        let takes = waiting & !thread.signals.lock().blocked;
        if takes != 0 {
            waiting &= !takes;
            sched::interrupt(thread, Work::SIGNAL);
        }
    });
}
