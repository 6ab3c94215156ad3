//! Sends signals to a thread, to a process, or to several processes.

use core::sync::atomic::Ordering;

use linux_raw_sys::general as linux;

use super::pending::Info;
use super::{COUNT, Set, bit};
use crate::errno::{Answer, EINVAL, ESRCH, Errno};
use crate::process::stop::STOPPING;
use crate::process::{self, INIT, Process, family};
use crate::sched::thread::{Thread, Work};
use crate::sched::{self};

/// The details of a signal that the current process sends.
pub fn info(signal: u32, code: i32) -> Info {
    // The process's number, and user 0.
    Info {
        signal,
        code,
        fields: u64::from(process::current().id),
        value: 0,
    }
}

fn check(signal: u32) -> Result<(), Errno> {
    if signal > COUNT { Err(EINVAL) } else { Ok(()) }
}

/// Sends a signal to one thread of a process.
///
/// # Errors
/// `EINVAL`, `ESRCH`.
pub fn to_thread(process: &Process, id: u32, info: Info) -> Answer {
    check(info.signal)?;
    let signal = info.signal;
    forget_opposites(process, signal);
    if signal == linux::SIGKILL {
        process.with_thread(id, |_| ()).ok_or(ESRCH)?;
        process.go_on(signal);
        process.kill(signal);
        return Ok(0);
    }
    let sent = process.with_thread(id, |thread| {
        // Signal 0 only checks that the thread exists.
        let is_wanted =
            || !ignores(process, signal) || is_kept(thread, signal) || thread.is_traced();
        if signal == 0 || !is_wanted() {
            return;
        }
        thread.signals.lock().pending.add(info);
        if !is_blocked(thread, signal) {
            sched::interrupt(thread, Work::SIGNAL);
        }
    });
    goes_on(process, signal);
    sent.map(|()| 0).ok_or(ESRCH)
}

/// Sends a signal to the current thread, because of its own system call. As on Linux, the signal looks like one
/// that the process has sent itself.
pub fn to_self(signal: u32) {
    let thread = sched::current();
    let _ = to_thread(
        thread.process(),
        thread.id(),
        info(signal, linux::SI_USER as i32),
    );
}

/// Drops pending opposites: stop signals and SIGCONT cancel each other when they are sent, even if they are
/// blocked.
fn forget_opposites(process: &Process, signal: u32) {
    if signal == linux::SIGCONT || signal == linux::SIGKILL {
        process.forget_waiting(STOPPING);
    } else if signal != 0 && bit(signal) & STOPPING != 0 {
        process.forget_waiting(bit(linux::SIGCONT));
    }
}

/// Continues a stopped process once the signal is pending, so that its handler runs before anything else.
fn goes_on(process: &Process, signal: u32) {
    if signal == linux::SIGCONT {
        process.go_on(signal);
    }
}

fn ignores(process: &Process, signal: u32) -> bool {
    process.signals.action(signal).ignores(signal)
}

fn is_blocked(thread: &Thread, signal: u32) -> bool {
    thread.signals.lock().blocked & bit(signal) & !super::UNBLOCKABLE != 0
}

/// Sends a signal to a process; any of its threads may take it.
pub fn info_to_process(process: &Process, info: Info) {
    let signal = info.signal;
    if signal == 0 {
        return;
    }
    forget_opposites(process, signal);
    if signal == linux::SIGKILL {
        process.go_on(signal);
        // SIGKILL needs no thread to take it. All threads may be in waits that no other signal ends, such as
        // the wait of `vfork`.
        return process.kill(signal);
    }
    wait_in_process(process, info);
    goes_on(process, signal);
}

/// Queues a signal for any thread of a process, unless it is ignored.
fn wait_in_process(process: &Process, info: Info) {
    let signal = info.signal;
    if ignores(process, signal) && !kept_by_all(process, signal) && !is_traced(process) {
        return;
    }
    process.signals.waiting.lock().add(info);
    let mut taken = false;
    // Prefer a thread that its tracer has not stopped.
    for may_be_halted in [false, true] {
        process.for_each_thread(&mut |thread| {
            let is_halted = thread.halted.load(Ordering::SeqCst);
            if !taken && is_halted == may_be_halted && !is_blocked(thread, signal) {
                taken = true;
                sched::interrupt(thread, Work::SIGNAL);
            }
        });
    }
}

/// Makes the current thread check for signals of its process before user mode, if any are pending.
pub fn look(thread: &Thread) {
    let blocked = thread.signals.lock().blocked;
    if thread.process().signals.waiting.lock().set() & !blocked != 0 {
        thread.add_work(Work::SIGNAL);
    }
}

/// Whether a thread keeps a signal that is ignored now. A blocked signal stays pending, because a handler may
/// be set before it is unblocked. So does a signal that `rt_sigtimedwait` has unblocked for its wait.
fn is_kept(thread: &Thread, signal: u32) -> bool {
    let signals = thread.signals.lock();
    (signals.blocked | signals.awaited) & bit(signal) & !super::UNBLOCKABLE != 0
}

fn kept_by_all(process: &Process, signal: u32) -> bool {
    let mut all = true;
    process.for_each_thread(&mut |thread| all &= is_kept(thread, signal));
    all
}

/// Whether a tracer is to be told of signals that the process ignores.
fn is_traced(process: &Process) -> bool {
    let mut any = false;
    process.for_each_thread(&mut |thread| any |= thread.is_traced());
    any
}

/// `kill`: to a process, a group (`-id`, or 0 for the caller's), or all other processes (-1).
///
/// # Errors
/// `EINVAL`, `ESRCH`.
pub fn kill(id: i32, info: Info) -> Answer {
    check(info.signal)?;
    let own = process::current().id;
    if id > 0 {
        let id = id as u32;
        let known = family::with(|family| match family.get(id) {
            Some(entry) => Some(entry.process.clone()),
            None => None,
        });
        // A zombie exists, and takes no signal.
        if let Some(process) = known.ok_or(ESRCH)? {
            info_to_process(&process, info);
        }
        return Ok(0);
    }
    let group = match id {
        0 => family::with(|family| family.get(own).map_or(own, |entry| entry.group)),
        id => id.unsigned_abs(),
    };
    let wanted = |entry: &family::Entry| match id {
        -1 => entry.id != own && entry.id != INIT,
        _ => entry.group == group,
    };
    // As above: zombies count, and take no signal.
    let any = family::with(|family| family.entries().iter().any(wanted));
    family::for_each(wanted, &mut |process| info_to_process(process, info));
    if any { Ok(0) } else { Err(ESRCH) }
}

/// Sets the current thread's mask. Newly unblocked signals may be delivered now; newly blocked ones are left
/// to other threads.
pub fn set_blocked(thread: &Thread, mask: Set) {
    let process = thread.process();
    let mut signals = thread.signals.lock();
    let mask = mask & !super::UNBLOCKABLE;
    let added = mask & !signals.blocked;
    signals.blocked = mask;
    let waiting = signals.pending.set() | process.signals.waiting.lock().set();
    drop(signals);
    if waiting & !mask != 0 {
        thread.add_work(Work::SIGNAL);
    }
    hand_on(process, added);
}

/// Leaves these signals of the process to other threads, because a thread blocks them now or has left the
/// list of threads. It may have been chosen for one of them: another thread has to check.
///
/// No signal is missed. A sender adds it to the process's before it reads a thread's mask, under that
/// thread's lock, or the list, under the list's lock. The caller has taken the same lock before.
pub fn hand_on(process: &Process, signals: Set) {
    if signals == 0 {
        return;
    }
    let mut waiting = process.signals.waiting.lock().set() & signals;
    if waiting == 0 {
        return;
    }
    process.for_each_thread(&mut |thread| {
        let takes = waiting & !thread.signals.lock().blocked;
        if takes != 0 {
            waiting &= !takes;
            sched::interrupt(thread, Work::SIGNAL);
        }
    });
}
