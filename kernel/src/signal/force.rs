//! Signals that the CPU raises. They cannot wait: if the thread blocks or ignores them, the
//! process dies of them, as on Linux.

use super::pending::{Info, Trap};
use super::{action, bit};
use crate::process;
use crate::sched::thread::{Thread, Work};

/// A trap that becomes a signal.
pub struct Fault {
    pub signal: u32,
    pub code: i32,
    /// What `si_addr` says.
    pub address: u64,
    /// The trap's number and error code, for the handler's context.
    pub trap: u64,
    pub error: u64,
}

/// Raises a signal for the current thread.
pub fn fault(thread: &'static Thread, fault: Fault) {
    let mut signals = thread.signals.lock();
    signals.trap.number = fault.trap;
    signals.trap.error = fault.error;
    if fault.trap == 14 {
        // Other traps leave the address of the last page fault, as CR2 does.
        signals.trap = Trap {
            address: fault.address,
            ..signals.trap
        };
    }
    let blocked = signals.blocked & bit(fault.signal) != 0;
    if blocked || action::get(fault.signal).handler <= action::IGNORE {
        drop(signals);
        return process::kill(fault.signal);
    }
    signals.pending.add(Info {
        signal: fault.signal,
        code: fault.code,
        fields: fault.address,
        value: 0,
    });
    thread.add_work(Work::SIGNAL);
}
