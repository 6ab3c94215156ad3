//! How a tracee stops: it marks its record, notifies its tracer, and sleeps until it is resumed or has to
//! exit.

use core::sync::atomic::Ordering;

use linux_raw_sys::general as signals;
use linux_raw_sys::ptrace as linux;

use super::tracee::{Goes, State, Stop, Tracee};
use crate::arch::registers;
use crate::process::stop::STOPPING;
use crate::process::{Process, family};
use crate::sched::thread::{Thread, Work};
use crate::sched::wait::{self, Interruptible};
use crate::signal::pending::Info;
use crate::signal::{bit, send};

/// The address that a stopped tracee sleeps on.
pub fn key(thread: &Thread) -> u64 {
    thread.frame() as u64
}

/// Stops the current thread, unless it is not traced or has to exit. Returns the signal that it resumes with.
fn stop(thread: &'static Thread, stop: Stop) -> u32 {
    if !begin(thread, stop) {
        return stop.code;
    }
    let waits = || {
        family::with(|family| {
            let tracee = family.tracees.find(thread.id());
            tracee.is_some_and(Tracee::has_stopped)
        })
    };
    while waits() && !thread.work().contains(Work::EXIT) {
        let check = || Ok(waits());
        let _ = wait::sleep(key(thread), u32::MAX, None, Interruptible::ByEnd, check);
    }
    family::with(|family| {
        // From here on no tracer touches its registers.
        if let Some(tracee) = family.tracees.get(thread.id()) {
            tracee.state = State::Runs;
            tracee.is_news = false;
        }
    });
    // SAFETY: The thread runs, so its frame is its own.
    registers::resume(thread, unsafe { &mut *thread.frame() });
    thread.halted.store(false, Ordering::SeqCst);
    // A signal sent to the process meanwhile may have found no other thread.
    send::look(thread);
    thread.given.swap(0, Ordering::Relaxed)
}

/// Marks the current thread as stopped and notifies its tracer; returns whether it has one.
fn begin(thread: &'static Thread, stop: Stop) -> bool {
    let told = family::with(|family| {
        let tracee = family.tracees.get(thread.id())?;
        if thread.work().contains(Work::EXIT) {
            return None;
        }
        if tracee.steps {
            // SAFETY: The current thread's own frame.
            registers::set_step(unsafe { &mut *thread.frame() }, false);
        }
        tracee.goes = Goes::Freely;
        tracee.state = State::Stopped(stop);
        tracee.is_news = true;
        // Any stop satisfies a pending `PTRACE_INTERRUPT`.
        tracee.interrupted = false;
        tracee.message = stop.message;
        thread.given.store(0, Ordering::Relaxed);
        thread.remove_work(Work::CALLS);
        thread.halted.store(true, Ordering::Relaxed);
        let by = tracee.by;
        let tracer = family.process(by);
        // Under the lock: a tracer that finds the tracee stopped has the signal already.
        if let Some(tracer) = &tracer {
            tell(tracer, thread.id(), &stop);
        }
        Some(tracer)
    });
    if let Some(Some(tracer)) = &told {
        wait::wake_address(tracer.key(), u32::MAX, u32::MAX);
    }
    told.is_some()
}

fn tell(tracer: &Process, id: u32, stop: &Stop) {
    let action = tracer.signals.action(signals::SIGCHLD);
    if action.has(signals::SA_NOCLDSTOP) {
        return;
    }
    let code = match stop.info {
        None => signals::CLD_STOPPED,
        Some(_) => signals::CLD_TRAPPED,
    };
    let info = Info {
        signal: signals::SIGCHLD,
        code: code as i32,
        fields: u64::from(id),
        value: u64::from(stop.code & 0x7f),
    };
    send::info_to_process(tracer, info);
}

/// Stops for an event other than a signal; `code` says which.
pub fn notify(thread: &'static Thread, code: u32, message: u64) -> u32 {
    let info = Info {
        signal: code & 0x7f,
        code: code as i32,
        fields: u64::from(thread.id()),
        value: 0,
    };
    stop(
        thread,
        Stop {
            code,
            info: Some(info),
            message,
        },
    )
}

/// Stops a tracee before a signal is delivered; returns the signal that its tracer chooses.
pub fn signal_arrives(thread: &'static Thread, info: Info) -> Option<Info> {
    let tracer = family::with(|family| family.tracees.find(thread.id()).map(|t| t.by));
    let given = stop(
        thread,
        Stop {
            code: info.signal,
            info: Some(info),
            message: 0,
        },
    );
    let process = thread.process();
    let stops = |signal: u32| signal != 0 && bit(signal) & STOPPING != 0;
    match (stops(info.signal), stops(given)) {
        (true, false) => process.does_not_stop(),
        (false, true) => process.may_stop(),
        _ => {}
    }
    if given == signals::SIGKILL {
        process.kill(given);
        return None;
    }
    let info = match given {
        0 => return None,
        same if same == info.signal => info,
        signal => Info {
            signal,
            code: signals::SI_USER as i32,
            fields: u64::from(tracer.unwrap_or(0)),
            value: 0,
        },
    };
    let mut signals = thread.signals.lock();
    if signals.blocked & bit(info.signal) & !crate::signal::UNBLOCKABLE == 0 {
        return Some(info);
    }
    // The tracer chose a blocked signal: keep it pending.
    signals.pending.add(info);
    None
}

/// Stops the tracee at the start of a handler that it stepped into.
pub fn handler_begins(thread: &'static Thread, stepped: bool) {
    if stepped {
        notify(thread, signals::SIGTRAP, 0);
    }
}

/// Ends a single step, so that a handler's frame lacks its flag; returns whether the tracee was stepping.
pub fn takes_step_back(thread: &'static Thread) -> bool {
    family::with(|family| {
        let tracee = family.tracees.get(thread.id());
        let Some(tracee) = tracee.filter(|tracee| tracee.goes == Goes::AStep) else {
            return false;
        };
        tracee.goes = Goes::Freely;
        // SAFETY: The current thread's own frame.
        registers::set_step(unsafe { &mut *thread.frame() }, false);
        thread.remove_work(Work::CALLS);
        true
    })
}

/// Stops a tracee with its whole process, or because its tracer interrupts it.
pub fn with_process(thread: &'static Thread) {
    let process = thread.process();
    let (seized, interrupted) = family::with(|family| {
        let tracee = family.tracees.get(thread.id());
        tracee.map_or((false, false), |tracee| {
            (tracee.seized, core::mem::take(&mut tracee.interrupted))
        })
    });
    let event = linux::PTRACE_EVENT_STOP << 8;
    if process.is_stopped() {
        let code = process.stopped_by();
        if seized {
            notify(thread, code | event, 0);
        } else {
            let group = Stop {
                code,
                info: None,
                message: 0,
            };
            stop(thread, group);
        }
    } else if interrupted {
        notify(thread, signals::SIGTRAP | event, 0);
    }
}
