//! Attaching to threads, and the end of a tracer or of a tracee.

use core::sync::atomic::Ordering;

use linux_raw_sys::general::{SI_KERNEL, SI_USER, SIGCHLD, SIGKILL, SIGSTOP, SIGTRAP};
use linux_raw_sys::ptrace as linux;

use super::tracee::{Goes, State};
use super::{OPTIONS, RECORDS, Tracee, resume};
use crate::arch::registers;
use crate::errno::{Answer, EIO, EPERM, ESRCH, Errno};
use crate::process::family::{self, Ended, Family};
use crate::process::{Process, end};
use crate::sched;
use crate::sched::thread::{Thread, Work};
use crate::sched::wait;
use crate::shared::Shared;
use crate::signal::pending::Info;
use crate::signal::send;

/// `PTRACE_TRACEME`: the tracer is the thread that created this process, or another thread of the parent.
/// Without such a parent the call does nothing.
pub fn me() -> Answer {
    let thread = sched::current();
    let own = thread.process();
    family::with(|family| {
        if family.tracees.find(thread.id()).is_some() {
            return Err(EPERM);
        }
        let parent = family.find(own.id).map(|entry| (entry.parent, entry.maker));
        let Some((parent, maker)) = parent else {
            return Ok(0);
        };
        let Some(parent) = family.process(parent) else {
            return Ok(0);
        };
        let mut tracer = parent.with_thread(maker, |maker| maker.id());
        parent.for_each_thread(&mut |other| {
            tracer.get_or_insert(other.id());
        });
        if let Some(tracer) = tracer {
            add(family, (own, thread.id()), (&parent, tracer), None)?;
        }
        Ok(0)
    })
}

/// `PTRACE_SEIZE`: the tracee keeps running.
pub fn seize(id: u32, address: u64, options: u64) -> Answer {
    let options = u32::try_from(options).map_err(|_| EIO)?;
    if address != 0 || options & !OPTIONS != 0 {
        return Err(EIO);
    }
    attach(id, Some(options))
}

/// `PTRACE_ATTACH`, which sends the tracee SIGSTOP; with options, `PTRACE_SEIZE`.
pub fn attach(id: u32, seized: Option<u32>) -> Answer {
    let tracer = sched::current();
    let own = tracer.process_reference();
    let process = match family::find_thread(id) {
        Some(process) => process,
        None => {
            let is_over = family::with(|family| {
                family.find(id).is_some() || family.tracees.find(id).is_some()
            });
            return Err(if is_over { EPERM } else { ESRCH });
        }
    };
    if process.id == own.id {
        return Err(EPERM);
    }
    family::with(|family| match family.tracees.find(id) {
        Some(_) => Err(EPERM),
        None => add(family, (&process, id), (&own, tracer.id()), seized),
    })?;
    if seized.is_none() {
        let info = Info {
            signal: SIGSTOP,
            code: SI_KERNEL as i32,
            ..Info::default()
        };
        let _ = send::to_thread(&process, id, info);
    }
    // A thread of a stopped process stops again, as a tracee.
    if process.is_stopped() {
        process.with_thread(id, |thread| sched::interrupt(thread, Work::STOP));
        process.wake_stopped();
    }
    Ok(0)
}

/// Adds the record of a tracee: a thread of one process, traced by a thread of another. `seized`: the options
/// of `PTRACE_SEIZE`.
///
/// # Errors
/// `EPERM`: one of them has ended. `ENOMEM`.
fn add(
    family: &mut Family,
    (process, id): (&Process, u32),
    (by, tracer): (&Process, u32),
    seized: Option<u32>,
) -> Result<(), Errno> {
    family.tracees.reserve()?;
    // SeqCst: before the check of the tracer, which leaves the list before it reads this.
    RECORDS.fetch_add(1, Ordering::SeqCst);
    let lives = by.with_thread(tracer, |_| ()).is_some();
    // Under the lock of the list: an exiting thread leaves the list before it tests its mark.
    let mark = |thread: &'static Thread| thread.add_work(Work::TRACED);
    if !lives || process.with_thread(id, mark).is_none() {
        RECORDS.fetch_sub(1, Ordering::SeqCst);
        return Err(EPERM);
    }
    family.tracees.add(Tracee {
        id,
        process: process.id,
        tracer,
        by: by.id,
        seized: seized.is_some(),
        options: seized.unwrap_or(0),
        state: State::Runs,
        is_news: false,
        interrupted: false,
        message: 0,
        goes: Goes::Freely,
        steps: false,
        exits: None,
    });
    Ok(())
}

/// Handles a thread that has left its process's list and exits. Its tracees continue untraced. Its own tracer
/// is told, unless the thread has the number of its process, which reports its end by itself.
pub fn thread_ends(thread: &Thread, process: &Process) {
    if !is_concerned(thread) {
        return;
    }
    let_all_go(thread.id());
    if !thread.is_traced() || thread.id() == process.id {
        return;
    }
    let tracer = family::with(|family| {
        let tracee = family.tracees.find(thread.id())?;
        let status = match tracee.exits {
            _ if process.is_ending() => process.status(),
            // None: another thread is in `execve`.
            exits => exits.unwrap_or(0),
        };
        let usage = thread.usage.get();
        tell_tracer(family, thread.id(), Ended { status, usage })
    });
    if let Some(Heard { tracer, .. }) = tracer {
        wait::wake_address(tracer.key(), u32::MAX, u32::MAX);
    }
}

/// A tracer that has to check its tracees again.
pub struct Heard {
    pub tracer: Shared<Process>,
    /// Whether it was told of an end, before any other process: false if it does not wait for ends.
    pub waits: bool,
}

/// Tells the tracer of a tracee that the tracee has ended, if the tracer waits for ends. `None` without a
/// tracer.
fn tell_tracer(family: &mut Family, id: u32, ended: Ended) -> Option<Heard> {
    let by = family.tracees.find(id)?.by;
    let tracer = family.process(by);
    let waits = |tracer: &Shared<Process>| !end::wants_no_zombies(tracer, SIGCHLD);
    let waits = tracer.as_ref().is_some_and(waits);
    match family.tracees.get(id) {
        Some(tracee) if waits => tracee.state = State::Ended(ended),
        _ => drop(family.tracees.remove(id)),
    }
    let tracer = tracer?;
    if waits {
        end::tell(&tracer, id, SIGCHLD, ended.status);
    }
    Some(Heard { tracer, waits })
}

/// Records that the current thread, a tracee, calls `exit` (not `exit_group`).
pub fn exits_alone(thread: &Thread, status: u32) {
    family::with(|family| {
        if let Some(tracee) = family.tracees.get(thread.id()) {
            tracee.exits = Some(status);
        }
    });
}

fn is_concerned(thread: &Thread) -> bool {
    thread.is_traced() || super::is_used()
}

/// Releases the tracees of a tracer that ends; kills them if it has asked for that.
fn let_all_go(tracer: u32) {
    let next = |family: &mut Family| {
        let tracee = family
            .tracees
            .iter()
            .find(|tracee| tracee.tracer == tracer)?;
        let (id, process, kill) = (
            tracee.id,
            tracee.process,
            tracee.has(linux::PTRACE_O_EXITKILL),
        );
        let is_over = matches!(tracee.state, State::Ended(_));
        // A resumed tracee keeps the signal that it was given, even if it has not run since.
        let given = tracee.news().map(|stop| stop.code);
        let steps = tracee.steps && tracee.has_stopped();
        let process = family.process(process);
        if let Some(process) = &process {
            if kill {
                // Before it can run.
                process.kill(SIGKILL);
            }
            process.with_thread(id, |thread| {
                resume::let_go(thread, process, given);
                if steps {
                    // SAFETY: A stopped tracee resumes only after this lock is released.
                    registers::set_step(unsafe { &mut *thread.frame() }, true);
                }
            });
        }
        family.tracees.remove(id);
        Some((id, process, is_over))
    };
    while let Some((id, process, is_over)) = family::with(next) {
        if is_over {
            end::tell_late(id);
        }
        if let Some(process) = process {
            // Not under the lock of the list: sleepers take the family lock under the bucket's lock.
            if let Some(thread) = process.with_thread(id, |thread| thread) {
                resume::wake(thread);
            }
        }
    }
}

/// Handles the end of a process. If a process other than its parent traces it, that tracer is told first, and
/// returned.
pub fn process_ends(family: &mut Family, id: u32, ended: Ended) -> Option<Heard> {
    let parent = family.find(id)?.parent;
    if family.tracees.find(id)?.by == parent {
        family.tracees.remove(id);
        return None;
    }
    let heard = tell_tracer(family, id, ended)?;
    if heard.waits && family.process(parent).is_none() {
        // No parent waits for it.
        family.remove(id);
    }
    Some(heard)
}

/// Gives the current thread, the only one of its process, the process's number, in its records as a tracee
/// and as a tracer, too. The thread that had the number has ended.
pub fn takes_number(thread: &Thread, number: u32) {
    if thread.id() == number {
        return;
    }
    let waits = family::with(|family| {
        let ended = family.tracees.remove(number);
        for tracee in family.tracees.iter_mut() {
            if tracee.id == thread.id() {
                tracee.id = number;
            }
            if tracee.tracer == thread.id() {
                tracee.tracer = number;
            }
        }
        // Under the lock: a new tracer finds the thread by one number or the other.
        thread.set_id(number);
        ended.and_then(|tracee| family.process(tracee.by))
    });
    if let Some(tracer) = waits {
        wait::wake_address(tracer.key(), u32::MAX, u32::MAX);
    }
}

/// Handles a successful `execve` of the current thread. A tracee that was not seized gets SIGTRAP, as if it
/// had sent it itself.
pub fn executes(thread: &Thread) {
    if !thread.is_traced() {
        return;
    }
    let seized = family::with(|family| {
        let tracee = family.tracees.find(thread.id());
        tracee.is_none_or(|tracee| tracee.seized)
    });
    if !seized {
        let info = send::info(SIGTRAP, SI_USER as i32);
        let _ = send::to_thread(thread.process(), thread.id(), info);
    }
}
