//! Stopping and continuing a process by signals, and notifying its parent.
//!
//! The threads of a stopped process sleep on their way to user mode. SIGCONT continues it when it is sent,
//! whatever becomes of the signal itself. SIGKILL ends it.

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

/// Signals that stop a process unless it has a handler.
pub const STOPPING: Set =
    bit(linux::SIGSTOP) | bit(linux::SIGTSTP) | bit(linux::SIGTTIN) | bit(linux::SIGTTOU);

/// States of a process.
pub(super) const RUNS: u32 = 0;
/// A thread has taken a stop signal, and has not stopped the process yet.
const MAY_STOP: u32 = 1;
const STOPPED: u32 = 2;

/// Whether the current thread has yet to stop with its process.
fn waits_to_stop() -> bool {
    sched::current().work().contains(Work::STOP)
}

impl Process {
    /// Wakes the threads that sleep because it is stopped, so that they look again.
    pub fn wake_stopped(&self) {
        wait::wake_address(self.stop_key(), u32::MAX, u32::MAX);
    }

    /// The signal that last stopped it.
    pub fn stopped_by(&self) -> u32 {
        self.stop_signal.load(Ordering::Relaxed)
    }

    fn stop_key(&self) -> u64 {
        self.state.as_ptr() as u64
    }

    /// Records that a thread has taken a signal that may stop the process. Called under that thread's
    /// signals' lock: SIGCONT no longer finds the signal pending, but still cancels the stop.
    pub fn may_stop(&self) {
        let _ = self
            .state
            .compare_exchange(RUNS, MAY_STOP, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// Records that the process does not stop after all.
    pub fn does_not_stop(&self) {
        let _ = self
            .state
            .compare_exchange(MAY_STOP, RUNS, Ordering::SeqCst, Ordering::Relaxed);
    }

    /// Whether it is stopped.
    pub fn is_stopped(&self) -> bool {
        self.state.load(Ordering::SeqCst) == STOPPED
    }

    /// Stops all threads, unless SIGCONT came meanwhile. The current thread also stops on its way to user
    /// mode.
    pub fn stop(&self, signal: u32) {
        self.stop_signal.store(signal, Ordering::Relaxed);
        let stops =
            self.state
                .compare_exchange(MAY_STOP, STOPPED, Ordering::SeqCst, Ordering::Relaxed);
        match stops {
            Ok(_) => {}
            // The tracer has continued this thread alone, and now it stops again.
            Err(STOPPED) if sched::current().is_traced() && !waits_to_stop() => {}
            Err(_) => return,
        }
        // As with a signal: a sleeping call is interrupted, and restarted afterwards.
        self.for_each_thread(&mut |thread| sched::interrupt(thread, Work::STOP | Work::SIGNAL));
        self.tell_parent(Change::Stopped(signal));
    }

    /// Continues the process if it is stopped, after SIGCONT or SIGKILL was sent and pending stop signals
    /// were removed. Only SIGCONT notifies the parent.
    pub fn go_on(&self, signal: u32) {
        if self.state.swap(RUNS, Ordering::SeqCst) == STOPPED {
            wait::wake_address(self.stop_key(), u32::MAX, u32::MAX);
            if signal == linux::SIGCONT {
                self.tell_parent(Change::Continued);
            }
        }
    }

    /// Removes pending signals, because their opposite was sent.
    pub fn forget_waiting(&self, signals: Set) {
        self.signals.waiting.lock().forget(signals);
        self.for_each_thread(&mut |thread| thread.signals.lock().pending.forget(signals));
    }

    fn tell_parent(&self, change: Change) {
        let parent = family::with(|family| {
            let entry = family.get(self.id)?;
            // If it has stopped or continued since, the later change notifies the parent.
            if self.is_stopped() != matches!(change, Change::Stopped(_)) {
                return None;
            }
            entry.change = Some(change);
            let parent = entry.parent;
            // A parent that traces it is told of each thread.
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

/// Sleeps until the current thread's process continues, if it is stopped.
pub fn wait_to_go_on(thread: &'static Thread) {
    thread.remove_work(Work::STOP);
    let process = current();
    if thread.is_traced() {
        return trace::with_process(thread);
    }
    // SeqCst, here and in `stop`: either this sees the stop, or the work is set again.
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
