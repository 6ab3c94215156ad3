//! System calls on signals.

use linux_raw_sys::general as linux;

use super::time;
use crate::arch::{TrapFrame, signal_frame, uaccess};
use crate::errno::{
    Answer, EAGAIN, EINVAL, ENOMEM, EPERM, ESRCH, Errno, RESTART_IF_NO_HANDLER, to_register,
};
use crate::process::{self, family};
use crate::sched::{self};
use crate::signal::action::Action;
use crate::signal::force::{self, Fault};
use crate::signal::pending::{AlternateStack, Info};
use crate::signal::{COUNT, Set, UNBLOCKABLE, bit, deliver, send};

fn check_size(size: u64) -> Result<(), Errno> {
    if size == 8 { Ok(()) } else { Err(EINVAL) }
}

pub fn rt_sigaction(signal: u64, new: u64, old: u64, size: u64) -> Answer {
    check_size(size)?;
    let signal = signal as u32;
    if signal == 0 || signal > COUNT {
        return Err(EINVAL);
    }
    let new: Option<[u64; 4]> = if new != 0 {
        Some(uaccess::read(new)?)
    } else {
        None
    };
    if new.is_some() && bit(signal) & UNBLOCKABLE != 0 {
        return Err(EINVAL);
    }
    let signals = &process::current().signals;
    let before = signals.action(signal);
    if let Some([handler, flags, restorer, mask]) = new {
        signals.set_action(
            signal,
            Action {
                handler,
                flags,
                restorer,
                mask,
            },
        );
    }
    if old != 0 {
        uaccess::write(
            old,
            &[before.handler, before.flags, before.restorer, before.mask],
        )?;
    }
    Ok(0)
}

pub fn rt_sigprocmask(how: u64, new: u64, old: u64, size: u64) -> Answer {
    check_size(size)?;
    let thread = sched::current();
    let set: Option<u64> = if new != 0 {
        Some(uaccess::read(new)?)
    } else {
        None
    };
    let before = thread.signals.lock().blocked;
    if let Some(set) = set {
        let blocked = match how as u32 {
            linux::SIG_BLOCK => before | set,
            linux::SIG_UNBLOCK => before & !set,
            linux::SIG_SETMASK => set,
            _ => return Err(EINVAL),
        };
        send::set_blocked(thread, blocked);
    }
    if old != 0 {
        uaccess::write(old, &before)?;
    }
    Ok(0)
}

pub fn rt_sigpending(to: u64, size: u64) -> Answer {
    check_size(size)?;
    let thread = sched::current();
    let set = {
        let signals = thread.signals.lock();
        (signals.pending.set() | thread.process().signals.waiting.lock().set()) & signals.blocked
    };
    uaccess::write(to, &set)?;
    Ok(0)
}

/// Waits for a signal with a mask that stays until a handler starts.
fn suspend(mask: Option<Set>) -> Answer {
    let thread = sched::current();
    if let Some(mask) = mask {
        let mut signals = thread.signals.lock();
        signals.saved = Some(signals.blocked);
        drop(signals);
        send::set_blocked(thread, mask);
    }
    time::sleep_for(None)?;
    Err(RESTART_IF_NO_HANDLER)
}

pub fn rt_sigsuspend(mask: u64, size: u64) -> Answer {
    check_size(size)?;
    suspend(Some(uaccess::read(mask)?))
}

pub fn pause() -> Answer {
    suspend(None)
}

pub fn rt_sigtimedwait(set: u64, info: u64, timeout: u64, size: u64) -> Answer {
    check_size(size)?;
    let set: Set = uaccess::read(set)?;
    let set = set & !UNBLOCKABLE;
    let wait = if timeout == 0 {
        None
    } else {
        Some(time::read_timespec(timeout)?)
    };
    let thread = sched::current();
    let take = || deliver::take_from(thread, set);
    let mut found = take();
    if found.is_none() && wait != Some(0) {
        // Unblock the signals during the wait, so that they end it.
        let mut signals = thread.signals.lock();
        let before = signals.blocked;
        signals.awaited = before & set;
        drop(signals);
        send::set_blocked(thread, before & !set);
        let slept = time::sleep_for(wait);
        found = take();
        send::set_blocked(thread, before);
        thread.signals.lock().awaited = 0;
        if found.is_none() {
            slept?;
        }
    }
    let found = found.ok_or(EAGAIN)?;
    if info != 0 {
        uaccess::write(info, &found.words())?;
    }
    Ok(u64::from(found.signal))
}

pub fn sigaltstack(new: u64, old: u64) -> Answer {
    let thread = sched::current();
    // SAFETY: The thread runs, so its frame is its own.
    let sp = unsafe { (*thread.frame()).stack_pointer() };
    let before = thread.signals.lock().stack;
    let on_stack = before.contains(sp);
    let wanted: Option<[u64; 3]> = if new != 0 {
        Some(uaccess::read(new)?)
    } else {
        None
    };
    if let Some([start, flags, size]) = wanted {
        if on_stack {
            return Err(EPERM);
        }
        let flags = flags as u32;
        let mode = flags & !linux::SS_AUTODISARM;
        if mode != 0 && mode != linux::SS_DISABLE && mode != linux::SS_ONSTACK {
            return Err(EINVAL);
        }
        let stack = if mode == linux::SS_DISABLE {
            AlternateStack::NONE
        } else if size < signal_frame::LEAST_STACK {
            return Err(ENOMEM);
        } else {
            AlternateStack {
                start,
                size,
                flags: flags & linux::SS_AUTODISARM,
            }
        };
        thread.signals.lock().stack = stack;
    }
    if old != 0 {
        let flags = match on_stack {
            true => before.flags | linux::SS_ONSTACK,
            false => before.flags,
        };
        uaccess::write(old, &[before.start, u64::from(flags), before.size])?;
    }
    Ok(0)
}

pub fn kill(id: u64, signal: u64) -> Answer {
    send::kill(id as i32, send::info(signal as u32, linux::SI_USER as i32))
}

pub fn tkill(thread: u64, signal: u64) -> Answer {
    if thread as i32 <= 0 {
        return Err(EINVAL);
    }
    let process = family::find_thread(thread as u32).ok_or(ESRCH)?;
    let info = send::info(signal as u32, linux::SI_TKILL);
    send::to_thread(&process, thread as u32, info)
}

pub fn tgkill(group: u64, thread: u64, signal: u64) -> Answer {
    if group as i32 <= 0 || thread as i32 <= 0 {
        return Err(EINVAL);
    }
    let info = send::info(signal as u32, linux::SI_TKILL);
    if group as u32 == process::current().id {
        return send::to_thread(process::current(), thread as u32, info);
    }
    let process = family::find(group as u32).ok_or(ESRCH)?;
    send::to_thread(&process, thread as u32, info)
}

/// Reads a `siginfo_t` that a program supplies. A process may claim that the kernel is the sender only in a
/// signal to itself.
fn read_info(signal: u32, from: u64, to: u64) -> Result<Info, Errno> {
    let words: [u64; 4] = uaccess::read(from)?;
    let code = words[1] as u32 as i32;
    if (code >= 0 || code == linux::SI_TKILL) && to as u32 != process::current().id {
        return Err(EPERM);
    }
    Ok(Info {
        signal,
        code,
        fields: words[2],
        value: words[3],
    })
}

pub fn rt_sigqueueinfo(id: u64, signal: u64, info: u64) -> Answer {
    let info = read_info(signal as u32, info, id)?;
    if id as i32 <= 0 {
        return Err(ESRCH);
    }
    send::kill(id as i32, info)
}

pub fn rt_tgsigqueueinfo(group: u64, thread: u64, signal: u64, info: u64) -> Answer {
    if group as i32 <= 0 || thread as i32 <= 0 {
        return Err(EINVAL);
    }
    let info = read_info(signal as u32, info, group)?;
    let process = family::find(group as u32).ok_or(ESRCH)?;
    send::to_thread(&process, thread as u32, info)
}

/// Resumes the code that a handler interrupted.
pub fn rt_sigreturn(frame: &mut TrapFrame) {
    let thread = sched::current();
    match signal_frame::pop(frame) {
        Ok((mask, stack)) => {
            let mut signals = thread.signals.lock();
            signals.stack = stack;
            drop(signals);
            send::set_blocked(thread, mask);
        }
        Err(error) => {
            frame.fast.set_result(to_register(Err(error)));
            let (signal, code) = (linux::SIGSEGV, linux::SI_KERNEL as i32);
            force::fault(
                thread,
                Fault {
                    signal,
                    code,
                    address: 0,
                    key: 0,
                    trap: 0,
                    error: 0,
                },
            );
        }
    }
}
