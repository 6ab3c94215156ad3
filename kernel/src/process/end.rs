//! The end of processes and threads.
//!
//! A process ends with its last thread. Either that thread ends alone, or all end after `exit_group`, a fatal
//! signal or exhausted memory. The first reason given is reported. The last thread frees the memory and the
//! files, and notifies the parent. When the first process ends, so does the run.

use core::sync::atomic::Ordering;

use linux_raw_sys::general as linux;

use super::alarm;
use super::family::{self, Ended, Family};
use super::{FIRST, INIT, Process, current, oom, orphans, space, usage};
use crate::arch::{percpu, uaccess};
use crate::files::readiness::Events;
use crate::futex::{self, Word};
use crate::ptrace;
use crate::ptrace::attach::Heard;
use crate::report::{self, End};
use crate::sched::thread::{DEAD, Thread, Work};
use crate::sched::{self, wait};
use crate::shared::Shared;
use crate::signal::COUNT;
use crate::signal::action::{self, Action};
use crate::signal::pending::Info;
use crate::signal::send;
use crate::verify;

const SIGNALLED: u64 = 1 << 32;
/// The process does not end yet.
pub(super) const NO_REASON: u64 = u64::MAX;

impl Process {
    /// Ends all threads. Running ones exit on their way to user mode, and sleeping ones are woken.
    fn end_all(&self, reason: u64) {
        // The reason first: a thread that sees `ending` may be the last one and report the reason.
        let _ =
            self.reason
                .compare_exchange(NO_REASON, reason, Ordering::AcqRel, Ordering::Relaxed);
        if self.ending.swap(true, Ordering::SeqCst) {
            return;
        }
        self.for_each_thread(&mut |thread| sched::interrupt(thread, Work::EXIT));
    }

    /// `exit_group`.
    pub fn exit(&self, status: i32) {
        self.end_all(u64::from(status as u32 & 0xff));
    }

    /// Ends the process by a signal.
    pub fn kill(&self, signal: u32) {
        self.end_all(SIGNALLED | u64::from(signal));
    }

    /// The status that `wait4` stores.
    pub fn status(&self) -> u32 {
        let reason = self.reason.load(Ordering::Acquire);
        match reason & SIGNALLED {
            0 => (reason as u32) << 8,
            _ => reason as u32 & 0x7f,
        }
    }

    /// Releases the caller of `vfork`.
    pub fn release_parent(&self) {
        if self.holds_parent.swap(false, Ordering::AcqRel) {
            wait::wake_address(self.key(), u32::MAX, u32::MAX);
        }
    }
}

/// Ends only the current thread (`exit`). The last one's status is the process's.
pub fn exit_alone(status: i32) -> ! {
    // One count decides which thread is last, so exactly one of several concurrent exits is. Only that thread
    // leaves a status, which is not read before that thread has ended, too.
    let process = current();
    if sched::current().is_traced() {
        ptrace::attach::exits_alone(sched::current(), (status as u32 & 0xff) << 8);
    }
    if process.staying.fetch_sub(1, Ordering::Relaxed) == 1 {
        process.exit(status);
    }
    exit_thread(sched::current())
}

/// Ends the current thread.
pub fn exit_thread(thread: &'static Thread) -> ! {
    let process = current();
    tell_sharers(thread, process);
    usage::charge(thread);
    let mut threads = process.threads.lock();
    process.usage.lock().add(&thread.usage.get());
    process.leaving.fetch_add(1, Ordering::SeqCst);
    threads.retain(|other| !core::ptr::eq(*other, thread));
    let left = threads.len();
    drop(threads);
    ptrace::attach::thread_ends(thread, process);
    process.leaving.fetch_sub(1, Ordering::SeqCst);
    if left == 0 {
        finish(process);
    } else {
        if process.alone.load(Ordering::SeqCst) {
            // A thread that calls `exec`, or unshares descriptors, waits for this.
            wait::wake_address(process.key(), u32::MAX, u32::MAX);
        }
        let blocked = thread.signals.lock().blocked;
        send::hand_on(process, !blocked);
    }
    // The thread can no longer be found, and no longer looks at its process.
    thread.forget_process();
    thread.state.store(DEAD, Ordering::Relaxed);
    sched::block();
    unreachable!("a dead thread runs");
}

/// Notifies the threads that stay in a space when this thread leaves it, by its robust list and
/// `clear_child_tid`.
pub fn tell_sharers(thread: &Thread, process: &Process) {
    // One reference is the process's, and one is taken for this check. The latter is dropped at once, because
    // a caller may never return.
    let is_shared = process.space().is_some_and(|space| space.references() > 2);
    if is_shared || process.thread_count() > 1 && !process.is_ending() {
        crate::syscall::thread::release_robust_list(thread);
        let address = thread.clear_child_tid.get();
        if address != 0 && uaccess::write(address, &0u32).is_ok() {
            futex::wake(Word::anyones(address), 1, u32::MAX);
        }
    }
}

/// Frees everything after the last thread has ended, and notifies the parent.
fn finish(process: &Process) {
    sched::current().space.set(core::ptr::null());
    space::leave(percpu::cpu_number(), percpu::this());
    if process.id == FIRST {
        report::program_ends();
        verify::with_those_that_live();
    }
    let space = process.space.lock().take();
    if let Some(space) = space {
        usage::leave_memory(process, &space);
    }
    let used = usage::of(process);
    // Virtual machines keep their process's memory.
    process.leave_files();
    oom::gave_back(process);
    alarm::forget(process.id, true);
    process.release_parent();
    if process.id == FIRST {
        finish_run(process);
    }
    let status = process.status();
    let mut used_with_children = used;
    used_with_children.add(&process.children_usage.lock());
    let mut orphans = false;
    let ended = Ended {
        status,
        usage: used_with_children,
    };
    let mut looks_again = None;
    let told = family::with(|family| {
        orphans = orphans::mark(family, process.id);
        family.orphan_children_of(process.id);
        let entry = family.get(process.id)?;
        entry.process = None;
        entry.ended = Some(ended);
        match ptrace::attach::process_ends(family, process.id, ended) {
            Some(Heard {
                tracer,
                waits: true,
            }) => Some(Told::at_once(tracer)),
            heard => {
                looks_again = heard.map(|heard| heard.tracer);
                tell_parent(family, process.id)
            }
        }
    });
    process.is_over.store(true, Ordering::SeqCst);
    process.watchers.changed(Events::READABLE);
    if orphans {
        orphans::hang_up();
    }
    finish_telling(told);
    if let Some(tracer) = looks_again {
        wait::wake_address(tracer.key(), u32::MAX, u32::MAX);
    }
}

/// The process to notify of an end.
struct Told {
    process: Shared<Process>,
    /// The signal still to be sent, the process that ended, and its status.
    late: Option<(u32, u32, u32)>,
}

impl Told {
    fn at_once(process: Shared<Process>) -> Self {
        Self {
            process,
            late: None,
        }
    }
}

/// Notifies the parent of a process that has ended, and forgets the process unless the parent waits.
fn tell_parent(family: &mut Family, id: u32) -> Option<Told> {
    let entry = family.get(id)?;
    let (parent, signal) = (entry.parent, entry.exit_signal);
    let status = entry.ended?.status;
    let alive = family.process(parent);
    match &alive {
        Some(parent) if !wants_no_zombies(parent, signal) => {}
        _ => family.remove(id),
    }
    let process = alive?;
    // SIGCHLD under the lock: a thread that sees the end finds the signal, too. Other signals may need the
    // family themselves.
    let late = signal != linux::SIGCHLD;
    if !late {
        tell(&process, id, signal, status);
    }
    Some(Told {
        process,
        late: late.then_some((signal, id, status)),
    })
}

fn finish_telling(told: Option<Told>) {
    let Some(told) = told else {
        return;
    };
    if let Some((signal, id, status)) = told.late {
        tell(&told.process, id, signal, status);
    }
    wait::wake_address(told.process.key(), u32::MAX, u32::MAX);
}

/// Notifies the parent, after the tracer of an ended process was notified or has ended.
pub fn tell_late(id: u32) {
    finish_telling(family::with(|family| tell_parent(family, id)));
}

/// Whether a parent has said that it will not wait.
pub fn wants_no_zombies(parent: &Process, signal: u32) -> bool {
    if signal != linux::SIGCHLD {
        return false;
    }
    let action: Action = parent.signals.action(signal);
    action.handler == action::IGNORE || action.has(linux::SA_NOCLDWAIT)
}

pub fn tell(parent: &Process, child: u32, exit_signal: u32, status: u32) {
    let (code, value) = match status & 0x7f {
        0 => (linux::CLD_EXITED, status >> 8),
        signal => (linux::CLD_KILLED, signal),
    };
    // As on Linux: `clone` takes any number, and one that is no signal notifies no process.
    if (1..=COUNT).contains(&exit_signal) {
        let info = Info {
            signal: exit_signal,
            code: code as i32,
            fields: u64::from(child),
            value: u64::from(value),
        };
        send::info_to_process(parent, info);
    }
}

/// Reports the end of the first process.
fn finish_run(process: &Process) -> ! {
    verify::without_processes();
    let reason = process.reason.load(Ordering::Acquire);
    let error = process
        .out_of_memory
        .load(Ordering::Acquire)
        .then_some("out of memory: the program was killed");
    let end = match reason & SIGNALLED {
        0 => End::Exit(reason as i32),
        _ => End::Signal(reason as u32),
    };
    match error {
        Some(error) => report::finish(end, Some(format_args!("{error}"))),
        None => report::finish(end, None),
    }
}

const _: () = assert!(INIT < FIRST);
