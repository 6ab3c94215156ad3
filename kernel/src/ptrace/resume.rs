//! How a tracer resumes, detaches, kills and interrupts a tracee.

use core::sync::atomic::Ordering;

use linux_raw_sys::general::SIGKILL;

use super::tracee::{Goes, State};
use super::{stop, with_stopped};
use crate::arch::registers;
use crate::errno::{Answer, EIO, ESRCH, Errno};
use crate::process::{Process, family};
use crate::sched::thread::{Thread, Work};
use crate::sched::{self, wait};
use crate::signal::COUNT;

fn check(signal: u64) -> Result<u32, Errno> {
    match u32::try_from(signal) {
        Ok(signal) if signal <= COUNT => Ok(signal),
        _ => Err(EIO),
    }
}

/// Wakes a tracee that was resumed.
pub fn wake(thread: &'static Thread) {
    wait::wake_address(stop::key(thread), u32::MAX, u32::MAX);
}

/// `PTRACE_CONT`, `PTRACE_SYSCALL`, `PTRACE_SINGLESTEP`.
pub fn go_on(id: u32, goes: Goes, signal: u64) -> Answer {
    let signal = check(signal)?;
    let thread = with_stopped(id, |thread, tracee| {
        thread.given.store(signal, Ordering::Relaxed);
        tracee.goes = goes;
        tracee.steps = goes == Goes::AStep;
        if goes == Goes::AStep {
            // SAFETY: The tracee has stopped, and resumes only after this lock is released.
            registers::set_step(unsafe { &mut *thread.frame() }, true);
        }
        if goes == Goes::Freely {
            thread.remove_work(Work::CALLS);
        } else {
            thread.add_work(Work::CALLS);
        }
        tracee.state = State::Runs;
        tracee.is_news = false;
        Ok(thread)
    })?;
    wake(thread);
    Ok(0)
}

/// Clears the marks of a thread that is no longer a tracee, with the family lock held. `signal`: the signal
/// that it resumes with, if it has stopped.
pub fn let_go(thread: &'static Thread, process: &Process, signal: Option<u32>) {
    if let Some(signal) = signal {
        thread.given.store(signal, Ordering::Relaxed);
    }
    thread.remove_work(Work::TRACED | Work::CALLS);
    if process.is_stopped() {
        // The process's other threads are stopped, so it stops, too.
        sched::interrupt(thread, Work::STOP | Work::SIGNAL);
    }
}

/// `PTRACE_DETACH`.
pub fn detach(id: u32, signal: u64) -> Answer {
    let signal = check(signal)?;
    let thread = family::with(|family| -> Result<&'static Thread, Errno> {
        let tracee = family.tracees.of(id, sched::current().id());
        let tracee = tracee.filter(|tracee| tracee.has_stopped()).ok_or(ESRCH)?;
        let process = tracee.process;
        let process = family.process(process).ok_or(ESRCH)?;
        let let_go = |thread: &'static Thread| {
            let_go(thread, &process, Some(signal));
            thread
        };
        let thread = process.with_thread(id, let_go).ok_or(ESRCH)?;
        family.tracees.remove(id);
        Ok(thread)
    })?;
    wake(thread);
    Ok(0)
}

/// The process of a tracee of the current thread, whatever the tracee's state.
fn process_of(id: u32) -> Result<crate::shared::Shared<Process>, Errno> {
    family::with(|family| {
        let tracee = family.tracees.of(id, sched::current().id()).ok_or(ESRCH)?;
        let process = tracee.process;
        family.process(process).ok_or(ESRCH)
    })
}

/// `PTRACE_KILL`.
pub fn kill(id: u32) -> Answer {
    match process_of(id) {
        Ok(process) => process.kill(SIGKILL),
        // The tracee has ended already, as requested.
        Err(error) if family::with(|f| f.tracees.of(id, sched::current().id()).is_none()) => {
            return Err(error);
        }
        Err(_) => {}
    }
    Ok(0)
}

/// `PTRACE_INTERRUPT`: stops a seized tracee.
pub fn interrupt(id: u32) -> Answer {
    let process = process_of(id)?;
    family::with(|family| -> Result<(), Errno> {
        let tracee = family.tracees.get(id).filter(|tracee| tracee.seized);
        let tracee = tracee.ok_or(EIO)?;
        tracee.interrupted = true;
        Ok(())
    })?;
    let work = Work::STOP | Work::SIGNAL;
    process.with_thread(id, |thread| sched::interrupt(thread, work));
    Ok(0)
}
