//! System-call stops of a tracee, and single steps over a system call.

use linux_raw_sys::general as signals;
use linux_raw_sys::ptrace as linux;

use super::stop;
use super::tracee::Goes;
use crate::arch::TrapFrame;
use crate::arch::registers;
use crate::process::family;
use crate::sched::thread::{Thread, Work};
use crate::signal::force::{self, Fault};
use crate::signal::pending::Info;
use crate::signal::send;

/// How the tracee was resumed, and the code of its system-call stops.
fn look(thread: &Thread) -> Option<(Goes, u32)> {
    family::with(|family| {
        let tracee = family.tracees.find(thread.id())?;
        let good = tracee.has(linux::PTRACE_O_TRACESYSGOOD);
        Some((tracee.goes, signals::SIGTRAP | if good { 0x80 } else { 0 }))
    })
}

fn stop_at(thread: &'static Thread, message: u32) {
    let Some((Goes::ToCalls, code)) = look(thread) else {
        return;
    };
    let given = stop::notify(thread, code, u64::from(message));
    if given != 0 && !thread.work().contains(Work::EXIT) {
        // Sent as the kernel's, as on Linux.
        let info = Info {
            signal: given,
            code: signals::SI_KERNEL as i32,
            ..Info::default()
        };
        let _ = send::to_thread(thread.process(), thread.id(), info);
    }
}

/// Stops before a system call; returns whether the call is made.
pub fn begins(thread: &'static Thread) -> bool {
    stop_at(thread, linux::PTRACE_EVENTMSG_SYSCALL_ENTRY);
    !thread.work().contains(Work::EXIT)
}

/// Stops after a system call. `frame`: the thread's.
pub fn ended(thread: &'static Thread, frame: *mut TrapFrame) {
    match look(thread) {
        Some((Goes::ToCalls, _)) => stop_at(thread, linux::PTRACE_EVENTMSG_SYSCALL_EXIT),
        // The call was the step: the CPU's own trap would come an instruction later.
        Some((Goes::AStep, _)) => {
            // SAFETY: The thread runs, so its frame is its own.
            let frame = unsafe { &mut *frame };
            registers::set_step(frame, false);
            let (code, address) = registers::step_over_call(frame);
            let fault = Fault {
                signal: signals::SIGTRAP,
                code,
                address,
                key: 0,
                trap: 0,
                error: 0,
            };
            force::fault(thread, fault);
        }
        _ => {}
    }
}
