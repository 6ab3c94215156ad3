//! `ptrace(2)`: a thread, the *tracer*, stops other threads, its *tracees*, inspects and changes them, and
//! resumes them.
//!
//! `attach` starts and ends tracing, `stop` stops a tracee, `call` stops it at system calls. `resume` resumes
//! it, `inspect` reads and changes its state, `memory` its memory. `wait` reports its stops and its end to
//! the tracer.
//!
//! A tracee has a record in the process table (`process::family`), under the family lock. The record exists
//! from the attach until the tracer detaches, ends, or has been told of the tracee's end. So the lock
//! serialises stop, resume, wait and exit. A tracee also has marks in its work word, which every return to
//! user mode tests anyway: [`Work::TRACED`], and [`Work::CALLS`] while it has to stop at system calls. Other
//! threads pay nothing.
//!
//! A tracee stops with all its user registers saved at the top of its kernel stack. Its tracer reads and
//! writes them under the family lock, if the record says that the tracee has stopped. A stopped tracee that
//! has to exit takes that lock once more before it continues (`stop`). So a tracer never touches the
//! registers of a running thread.

pub mod attach;
pub mod call;
mod inspect;
mod memory;
mod resume;
pub mod stop;
mod tracee;
pub mod wait;

use core::sync::atomic::{AtomicU32, Ordering};

use linux_raw_sys::ptrace as linux;

use crate::errno::{Answer, EINVAL, EIO, ESRCH, Errno};
use crate::process::family;
use crate::sched;
use crate::sched::thread::{Thread, Work};
use tracee::Tracee;
pub use tracee::Tracees;

/// Supported options. Stops at `clone`, `exec` and exit are not supported.
const OPTIONS: u32 = linux::PTRACE_O_TRACESYSGOOD | linux::PTRACE_O_EXITKILL;

/// The number of records. If there is none, an exiting thread need not search for its tracees.
static RECORDS: AtomicU32 = AtomicU32::new(0);

/// Whether any thread is traced, or was a moment ago.
pub fn is_used() -> bool {
    // SeqCst: pairs with `attach`, which counts before it checks whether the tracer still exists.
    RECORDS.load(Ordering::SeqCst) != 0
}

/// Calls `f` with a stopped tracee of the current thread, and with its record.
///
/// # Errors
/// `ESRCH`: the thread is not a tracee of the caller, or runs.
fn with_stopped<R>(
    id: u32,
    f: impl FnOnce(&'static Thread, &mut Tracee) -> Result<R, Errno>,
) -> Result<R, Errno> {
    family::with(|family| {
        let tracee = family.tracees.of(id, sched::current().id()).ok_or(ESRCH)?;
        let process = tracee.process;
        if !tracee.has_stopped() {
            return Err(ESRCH);
        }
        let process = family.process(process).ok_or(ESRCH)?;
        let tracee = family.tracees.get(id).ok_or(ESRCH)?;
        // Under the lock of the thread list the thread's record stays in use.
        let result = process.with_thread(id, |thread| {
            // The thread is exiting.
            match thread.work().contains(Work::EXIT) {
                true => Err(ESRCH),
                false => f(thread, tracee),
            }
        });
        result.ok_or(ESRCH)?
    })
}

/// `ptrace`.
pub fn ptrace(request: u64, id: u64, address: u64, data: u64) -> Answer {
    let id = id as u32;
    match u32::try_from(request).unwrap_or(u32::MAX) {
        linux::PTRACE_TRACEME => attach::me(),
        linux::PTRACE_ATTACH => attach::attach(id, None),
        linux::PTRACE_SEIZE => attach::seize(id, address, data),
        linux::PTRACE_KILL => resume::kill(id),
        linux::PTRACE_INTERRUPT => resume::interrupt(id),
        request => {
            with_stopped(id, |_, _| Ok(()))?;
            of_stopped(request, id, address, data)
        }
    }
}

/// Requests that need a stopped tracee.
fn of_stopped(request: u32, id: u32, address: u64, data: u64) -> Answer {
    match request {
        linux::PTRACE_PEEKTEXT | linux::PTRACE_PEEKDATA => memory::peek(id, address, data),
        linux::PTRACE_POKETEXT | linux::PTRACE_POKEDATA => memory::poke(id, address, data),
        linux::PTRACE_PEEKUSR => inspect::peek_user(id, address, data),
        linux::PTRACE_POKEUSR => inspect::poke_user(id, address, data),
        #[cfg(target_arch = "x86_64")]
        linux::PTRACE_GETREGS => inspect::registers(id, data),
        #[cfg(target_arch = "x86_64")]
        linux::PTRACE_SETREGS => inspect::set_registers(id, data),
        linux::PTRACE_GETREGSET => inspect::register_set(id, address, data),
        linux::PTRACE_SETREGSET => inspect::set_register_set(id, address, data),
        linux::PTRACE_GETSIGINFO => inspect::signal_info(id, data),
        linux::PTRACE_GETEVENTMSG => inspect::message(id, data),
        linux::PTRACE_CONT => resume::go_on(id, tracee::Goes::Freely, data),
        linux::PTRACE_SYSCALL => resume::go_on(id, tracee::Goes::ToCalls, data),
        linux::PTRACE_SINGLESTEP => resume::go_on(id, tracee::Goes::AStep, data),
        linux::PTRACE_DETACH => resume::detach(id, data),
        linux::PTRACE_SETOPTIONS => {
            let options = u32::try_from(data).ok().filter(|data| data & !OPTIONS == 0);
            let options = options.ok_or(EINVAL)?;
            with_stopped(id, |_, tracee| {
                tracee.options = options;
                Ok(0)
            })
        }
        _ => Err(EIO),
    }
}
