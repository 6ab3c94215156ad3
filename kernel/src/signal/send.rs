//! Signals that programs send, to a thread, to a process, or to several.

use core::sync::atomic::Ordering;

use linux_raw_sys::general as linux;

use super::pending::Info;
use super::{COUNT, Set, bit};
use crate::errno::{Answer, EINVAL, ESRCH, Errno};
use crate::process::stop::STOPPING;
use crate::process::{self, INIT, Process, family};
use crate::sched::thread::{Thread, Work};
use crate::sched::{self};

/// What a handler learns about a signal that the current process sends.
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
        // Number 0 is no signal: it only looks.
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

/// Sends a signal to the current thread.
pub fn to_self(signal: u32) {
    let thread = sched::current();
    let _ = to_thread(thread.process(), thread.id(), info(signal, linux::SI_TKILL));
}

/// Stopping and going on cancel each other when they are sent, even if they are blocked.
fn forget_opposites(process: &Process, signal: u32) {
    if signal == linux::SIGCONT || signal == linux::SIGKILL {
        process.forget_waiting(STOPPING);
    } else if signal != 0 && bit(signal) & STOPPING != 0 {
        process.forget_waiting(bit(linux::SIGCONT));
    }
}

/// What was stopped goes on once the signal waits for it: its handler runs before anything else does.
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

/// Sends a signal to a process, whichever of its threads takes it.
pub fn info_to_process(process: &Process, info: Info) {
    let signal = info.signal;
    if signal == 0 {
        return;
    }
    forget_opposites(process, signal);
    if signal == linux::SIGKILL {
        process.go_on(signal);
        // Nothing can become of it but the end, which no thread has to take: all may be busy with
        // what no other signal ends, such as the wait of `vfork`.
        return process.kill(signal);
    }
    wait_in_process(process, info);
    goes_on(process, signal);
}

/// Lets a signal wait for whichever thread takes it, unless it is ignored.
fn wait_in_process(process: &Process, info: Info) {
    let signal = info.signal;
    if ignores(process, signal) && !kept_by_all(process, signal) && !is_traced(process) {
        return;
    }
    process.signals.waiting.lock().add(info);
    let mut taken = false;
    // First of all by one that runs.
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

/// The current thread looks for signals of its process on its way to user mode, if there are any.
pub fn look(thread: &Thread) {
    let blocked = thread.signals.lock().blocked;
    if thread.process().signals.waiting.lock().set() & !blocked != 0 {
        thread.add_work(Work::SIGNAL);
    }
}

/// Blocked signals wait even if they are ignored now: the handler may come before they are let in.
/// So do those that a thread waits for and has let in for that.
fn is_kept(thread: &Thread, signal: u32) -> bool {
    let signals = thread.signals.lock();
    (signals.blocked | signals.awaited) & bit(signal) & !super::UNBLOCKABLE != 0
}

fn kept_by_all(process: &Process, signal: u32) -> bool {
    let mut all = true;
    process.for_each_thread(&mut |thread| all &= is_kept(thread, signal));
    all
}

/// Whether somebody is to be told of signals that the process ignores.
fn is_traced(process: &Process) -> bool {
    let mut any = false;
    process.for_each_thread(&mut |thread| any |= thread.is_traced());
    any
}

/// `kill`: to a process, a group (`-id`, or 0 for the own one), or all others (-1).
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
        // One that has ended but was not waited for is there, and takes nothing.
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
    // As above: those that have ended count, and take nothing.
    let any = family::with(|family| family.entries().iter().any(wanted));
    family::for_each(wanted, &mut |process| info_to_process(process, info));
    if any { Ok(0) } else { Err(ESRCH) }
}

/// Changes the current thread's mask: what it lets through may be delivered now, and what it
/// blocks from now on is for others.
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

/// A thread does not take these signals of the process any more, because it blocks them or has
/// left the list of threads. It may have been chosen for one: another thread has to look.
///
/// None is missed: whoever sends one adds it to the process's before it looks at a thread's mask,
/// under that thread's lock, or at the list, under the list's; the same lock was taken before this.
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
