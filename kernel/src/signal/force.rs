//! Forced signals: raised by a CPU exception, or by a signal frame that does not fit. They cannot wait: if
//! the thread blocks or ignores such a signal, it kills the process, as on Linux.

use linux_raw_sys::general as linux;

use super::action::Action;
use super::pending::Info;
use super::{action, bit};
use crate::arch::trap;
use crate::sched::thread::{Thread, Work};

/// A trap that becomes a signal.
pub struct Fault {
    pub signal: u32,
    pub code: i32,
    /// The value of `si_addr`.
    pub address: u64,
    /// The value of `si_pkey`, if the access was refused by a protection key.
    pub key: u32,
    /// The trap's number and error code, for the handler's context.
    pub trap: u64,
    pub error: u64,
}

/// Raises a signal for the current thread.
pub fn fault(thread: &'static Thread, fault: Fault) {
    let mut signals = thread.signals.lock();
    trap::remember(&mut signals.trap, &fault);
    drop(signals);
    raise(
        thread,
        Info {
            signal: fault.signal,
            code: fault.code,
            fields: fault.address,
            value: fault.key.into(),
        },
    );
}

/// Raises SIGSEGV for a signal frame that did not fit on the user stack.
pub fn no_frame(thread: &'static Thread) {
    raise(
        thread,
        Info {
            signal: linux::SIGSEGV,
            code: linux::SI_KERNEL as i32,
            ..Info::default()
        },
    );
}

fn raise(thread: &'static Thread, info: Info) {
    let mut signals = thread.signals.lock();
    let blocked = signals.blocked & bit(info.signal) != 0;
    let process = thread.process();
    let action = process.signals.action(info.signal);
    if thread.is_traced() {
        // The tracer sees the signal first. Unblock it and reset its action, so that it still kills the
        // process.
        if blocked || action.handler == action::IGNORE {
            signals.blocked &= !bit(info.signal);
            let action = Action {
                handler: action::DEFAULT,
                ..action
            };
            process.signals.set_action(info.signal, action);
        }
    } else if blocked || action.handler <= action::IGNORE {
        drop(signals);
        return process.kill(info.signal);
    }
    signals.pending.add(info);
    thread.add_work(Work::SIGNAL);
}
