//! Delivers signals on the return to user mode: every pending signal that is not blocked gets a frame on the
//! user stack, and the frame's handler runs next.

use linux_raw_sys::general as linux;

use super::pending::Info;
use super::{action, bit, force, send};
use crate::arch::{TrapFrame, signal_frame};
use crate::errno::{EINTR, Errno, RESTART, RESTART_IF_NO_HANDLER, RESTART_REST, to_register};
use crate::process::orphans;
use crate::process::stop::STOPPING;
use crate::ptrace::stop;
use crate::sched::thread::{Thread, Work};
use crate::syscall::restart::Rest;

fn take(thread: &Thread) -> Option<Info> {
    let mut signals = thread.signals.lock();
    let wanted = !signals.blocked;
    let process = thread.process();
    let taken = signals
        .pending
        .take(wanted)
        .or_else(|| process.signals.waiting.lock().take(wanted))?;
    if bit(taken.signal) & STOPPING != 0 {
        process.may_stop();
    }
    Some(taken)
}

/// Delivers all signals that can be delivered. `at`: the thread's frame.
pub fn deliver(thread: &'static Thread, at: *mut TrapFrame) {
    thread.remove_work(Work::SIGNAL);
    let process = thread.process();
    while let Some(mut info) = take(thread) {
        if thread.is_traced() {
            match stop::signal_arrives(thread, info) {
                Some(chosen) => info = chosen,
                None => continue,
            }
        }
        let signal = info.signal;
        let action = process.signals.action(signal);
        if action.ignores(signal) {
            continue;
        }
        if action.handler == action::DEFAULT {
            if bit(signal) & STOPPING != 0 {
                // An orphaned group has no parent to continue it.
                if signal == linux::SIGSTOP || !orphans::is_in_orphaned_group(process.id) {
                    process.stop(signal);
                } else {
                    process.does_not_stop();
                }
                continue;
            }
            return process.kill(signal);
        }
        // SAFETY: The thread runs, so its frame is its own until it stops again.
        let frame = unsafe { &mut *at };
        finish_call(thread, frame, Some(action.has(linux::SA_RESTART)));
        if action.has(linux::SA_RESETHAND) {
            process.signals.set_action(
                signal,
                action::Action {
                    handler: action::DEFAULT,
                    ..action
                },
            );
        }
        let (mask, stack, trap) = {
            let signals = thread.signals.lock();
            let mask = signals.saved.unwrap_or(signals.blocked);
            (mask, signals.stack, signals.trap)
        };
        let steps = thread.stops_at_calls() && stop::takes_step_back(thread);
        if signal_frame::push(thread, frame, &info, &action, mask, stack, trap).is_err() {
            if signal == linux::SIGSEGV {
                return process.kill(signal);
            }
            // The handler of SIGSEGV may have room elsewhere. This signal is lost, as on Linux.
            force::no_frame(thread);
            continue;
        }
        let mut signals = thread.signals.lock();
        signals.saved = None;
        if stack.flags & linux::SS_AUTODISARM != 0 {
            signals.stack = super::pending::AlternateStack::NONE;
        }
        let blocked = signals.blocked | action.blocks(signal);
        drop(signals);
        send::set_blocked(thread, blocked);
        stop::handler_begins(thread, steps);
    }
    // SAFETY: As above.
    finish_call(thread, unsafe { &mut *at }, None);
    let saved = thread.signals.lock().saved.take();
    if let Some(mask) = saved {
        send::set_blocked(thread, mask);
    }
}

/// Finishes a system call that a signal interrupted: restarts it, or fails it with `EINTR`. `handler`: a
/// handler runs, and whether it asks for restarts.
fn finish_call(thread: &Thread, frame: &mut TrapFrame, handler: Option<bool>) {
    if !frame.fast.is_call() {
        return;
    }
    let is = |errno: Errno| frame.fast.result() == to_register(Err(errno));
    let (always, without_handler) = (is(RESTART), is(RESTART_IF_NO_HANDLER));
    let rest = is(RESTART_REST);
    if !always && !without_handler && !rest {
        return;
    }
    if rest && handler.is_none() {
        frame.repeat_as(linux::__NR_restart_syscall);
    } else if handler.is_none() || always && handler == Some(true) {
        frame.repeat_call();
    } else {
        frame.fast.set_result(to_register(Err(EINTR)));
        thread.rest.set(Rest::Nothing);
    }
    frame.fast.forget_call();
}

/// Takes a pending signal that is in a set, for `rt_sigtimedwait`.
pub fn take_from(thread: &Thread, set: super::Set) -> Option<Info> {
    let mut signals = thread.signals.lock();
    let shared = &thread.process().signals.waiting;
    signals
        .pending
        .take(set)
        .or_else(|| shared.lock().take(set))
}
