//! Tracing: one thread, the *tracer*, stops others, its *tracees*, looks at them, changes them and
//! lets them go on, as `ptrace(2)` has it.
//!
//! `attach` makes a thread a tracee and ends that, `stop` is how a tracee stops, `call` where it
//! does at system calls, `resume` how its tracer lets it go on, `inspect` what the tracer sees
//! and changes meanwhile, `memory` the same of memory, `wait` how it learns of stops and ends.
//!
//! A tracee has a record in the family's table, under the family's lock, from when it is attached
//! until its tracer lets go of it, ends, or has been told of its end. So who stops, who resumes, who
//! waits and who ends come one after the other. Beside the record a tracee has marks in its word of
//! work, which the ways to user mode look at anyway: [`Work::TRACED`], and [`Work::CALLS`] while it
//! has to stop at system calls. Nobody else pays anything.
//!
//! A tracee stops where all its user registers are saved at the top of its kernel stack. Its
//! tracer reads and writes them under the family's lock, if the record says that it has stopped. A
//! stopped tracee that has to end takes that lock once more before it goes on (`stop`), so that
//! nobody touches registers that move.

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

/// Options that are built. What stops at `clone`, `exec` and the end is not.
const OPTIONS: u32 = linux::PTRACE_O_TRACESYSGOOD | linux::PTRACE_O_EXITKILL;

/// How many records there are: a thread that ends need not look whom it traces if there is none.
static RECORDS: AtomicU32 = AtomicU32::new(0);

/// Whether anybody is traced, or was a moment ago.
pub fn is_used() -> bool {
    // SeqCst: pairs with `attach`, which counts before it looks whether the tracer still lives.
    RECORDS.load(Ordering::SeqCst) != 0
}

/// Does something with a tracee of the current thread, if it has stopped, and with its record.
///
/// # Errors
/// `ESRCH`: it is nobody's tracee, or another's, or runs.
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
        // Under the list's lock the thread's record stays its own.
        let result = process.with_thread(id, |thread| {
            // It is on its way to its end.
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

/// What a tracer can ask of a tracee that has stopped.
fn of_stopped(request: u32, id: u32, address: u64, data: u64) -> Answer {
    match request {
        linux::PTRACE_PEEKTEXT | linux::PTRACE_PEEKDATA => memory::peek(id, address, data),
        linux::PTRACE_POKETEXT | linux::PTRACE_POKEDATA => memory::poke(id, address, data),
        linux::PTRACE_PEEKUSR => inspect::peek_user(id, address, data),
        linux::PTRACE_POKEUSR => inspect::poke_user(id, address, data),
        linux::PTRACE_GETREGS => inspect::registers(id, data),
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
