//! Stopping and continuing a process by signals, and telling its parent.
//!
//! A stopped process's threads sleep on their way to user mode. SIGCONT continues it when it is
//! sent, whatever becomes of the signal itself; SIGKILL ends it.

use core::sync::atomic::Ordering;

use linux_raw_sys::general as linux;

use super::family::{self, Change};
use super::{Process, current};
use crate::ptrace::stop as trace;
use crate::sched::thread::{Thread, Work};
use crate::sched::wait::{self, Interruptible};
use crate::sched::{self};
use crate::signal::pending::Info;
use crate::signal::{Set, bit, send};

/// What stops a process unless it has a handler.
pub const STOPPING: Set =
    bit(linux::SIGSTOP) | bit(linux::SIGTSTP) | bit(linux::SIGTTIN) | bit(linux::SIGTTOU);

/// States of a process.
pub(super) const RUNS: u32 = 0;
/// A thread has taken a signal that stops it, and has not done so yet.
const MAY_STOP: u32 = 1;
const STOPPED: u32 = 2;

/// Whether the current thread has yet to stop with its process.
fn waits_to_stop() -> bool {
    sched::current().work().contains(Work::STOP)
}

impl Process {
    /// Threads that sleep because it is stopped look again.
    pub fn wake_stopped(&self) {
        wait::wake_address(self.stop_key(), u32::MAX, u32::MAX);
    }

    /// The signal that has stopped it last.
    pub fn stopped_by(&self) -> u32 {
        self.stop_signal.load(Ordering::Relaxed)
    }

    fn stop_key(&self) -> u64 {
        self.state.as_ptr() as u64
    }

    /// A thread has taken a signal that may stop the process, under its signals' lock: SIGCONT
    /// does not find the signal waiting any more, but still cancels it.
    pub fn may_stop(&self) {
        let _ = self
            .state
            .compare_exchange(RUNS, MAY_STOP, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// It does not stop after all.
    pub fn does_not_stop(&self) {
        let _ = self
            .state
            .compare_exchange(MAY_STOP, RUNS, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// Whether it is stopped.
    pub fn is_stopped(&self) -> bool {
        self.state.load(Ordering::SeqCst) == STOPPED
    }

    /// Stops all threads, unless SIGCONT came meanwhile; the current one notices on its way to user
    /// mode too.
    pub fn stop(&self, signal: u32) {
        self.stop_signal.store(signal, Ordering::Relaxed);
        let stops =
            self.state
                .compare_exchange(MAY_STOP, STOPPED, Ordering::SeqCst, Ordering::Relaxed);
        match stops {
            Ok(_) => {}
            // Its tracer has let the thread go on alone, and now it stops again.
            Err(STOPPED) if sched::current().is_traced() && !waits_to_stop() => {}
            Err(_) => return,
        }
        // As with a signal: a call that sleeps is left, and begun anew afterwards.
        self.for_each_thread(&mut |thread| sched::interrupt(thread, Work::STOP | Work::SIGNAL));
        self.tell_parent(Change::Stopped(signal));
    }

    /// SIGCONT or SIGKILL was sent, and what waited to stop the process is forgotten: if it is
    /// stopped it goes on, which only the former tells.
    pub fn go_on(&self, signal: u32) {
        if self.state.swap(RUNS, Ordering::SeqCst) == STOPPED {
            wait::wake_address(self.stop_key(), u32::MAX, u32::MAX);
            if signal == linux::SIGCONT {
                self.tell_parent(Change::Continued);
            }
        }
    }

    /// Signals that wait are forgotten, because their opposite was sent.
    pub fn forget_waiting(&self, signals: Set) {
        self.signals.waiting.lock().forget(signals);
        self.for_each_thread(&mut |thread| thread.signals.lock().pending.forget(signals));
    }

    fn tell_parent(&self, change: Change) {
        let parent = family::with(|family| {
            let entry = family.get(self.id)?;
            // It may have stopped or gone on since: whoever did that tells.
            if self.is_stopped() != matches!(change, Change::Stopped(_)) {
                return None;
            }
            entry.change = Some(change);
            let parent = entry.parent;
            // Who traces it is told of each thread.
            let traces = matches!(change, Change::Stopped(_))
                && family
                    .tracees
                    .iter()
                    .any(|t| t.process == self.id && t.by == parent);
            family.process(parent).filter(|_| !traces)
        });
        let Some(parent) = parent else {
            return;
        };
        let (code, status) = match change {
            Change::Stopped(signal) => (linux::CLD_STOPPED, signal),
            Change::Continued => (linux::CLD_CONTINUED, linux::SIGCONT),
        };
        let action = parent.signals.action(linux::SIGCHLD);
        if !action.has(linux::SA_NOCLDSTOP) {
            let info = Info {
                signal: linux::SIGCHLD,
                code: code as i32,
                fields: u64::from(self.id),
                value: u64::from(status),
            };
            send::info_to_process(&parent, info);
        }
        wait::wake_address(parent.key(), u32::MAX, u32::MAX);
    }
}

/// The current thread's process is stopped, or was: sleeps until it goes on.
pub fn wait_to_go_on(thread: &'static Thread) {
    thread.remove_work(Work::STOP);
    let process = current();
    if thread.is_traced() {
        return trace::with_process(thread);
    }
    // SeqCst, here and where it stops: either this sees the stop, or the work comes again.
    let waits = || process.is_stopped() && !thread.is_traced();
    while waits() && !thread.work().contains(Work::EXIT) {
        let check = || Ok(waits());
        let _ = wait::sleep(
            process.stop_key(),
            u32::MAX,
            None,
            Interruptible::ByEnd,
            check,
        );
    }
}
