//! Making threads and processes: `clone` and the calls built on it.

use core::sync::atomic::Ordering;

use linux_raw_sys::general as linux;

use super::alarm::{self, limit};
use super::family::{self, Entry};
use super::{Process, UserSpace, current};
use crate::arch::context::{self, UserBases};
use crate::arch::{TrapFrame, fpu, registers, uaccess};
use crate::errno::{Answer, EINVAL, EPERM, Errno};
use crate::files::descriptors::Table;
use crate::files::place::Place;
use crate::memory::reclaim::or_reclaim;
use crate::memory::stacks;
use crate::sched::thread::{Thread, Work};
use crate::sched::wait::{self, Interruptible};
use crate::sched::{self};
use crate::shared::Shared;
use crate::signal::Signals;
use crate::signal::pending::AlternateStack;

/// The arguments of `clone` and `clone3`.
#[derive(Clone, Copy, Default)]
pub struct Arguments {
    pub flags: u64,
    /// The child's stack pointer; 0: the parent's.
    pub stack: u64,
    /// Where the child's number is stored, in the parent's memory and in the child's.
    pub parent_id: u64,
    pub child_id: u64,
    /// The child's thread pointer, if asked for.
    pub tls: u64,
    /// The signal that the parent gets when the child ends.
    pub exit_signal: u32,
}

impl Arguments {
    fn has(&self, flag: u32) -> bool {
        self.flags & u64::from(flag) != 0
    }

    fn clears_handlers(&self) -> bool {
        self.flags & linux::CLONE_CLEAR_SIGHAND != 0
    }

    fn check(&self) -> Result<(), Errno> {
        let needs = |flag, other| self.has(flag) && !self.has(other);
        if needs(linux::CLONE_SIGHAND, linux::CLONE_VM)
            || needs(linux::CLONE_THREAD, linux::CLONE_SIGHAND)
            || self.has(linux::CLONE_SIGHAND) && self.clears_handlers()
        {
            return Err(EINVAL);
        }
        let namespaces = linux::CLONE_NEWNS
            | linux::CLONE_NEWCGROUP
            | linux::CLONE_NEWUTS
            | linux::CLONE_NEWIPC
            | linux::CLONE_NEWUSER
            | linux::CLONE_NEWPID
            | linux::CLONE_NEWNET
            | linux::CLONE_PIDFD
            | linux::CLONE_PTRACE;
        if self.flags & u64::from(namespaces) != 0 {
            return Err(EINVAL);
        }
        if self.has(linux::CLONE_SETTLS) && !UserBases::accept(self.tls) {
            return Err(EPERM);
        }
        Ok(())
    }
}

/// Makes a thread, or a process with one thread. Returns its number.
///
/// # Errors
/// As `clone(2)`; `EINVAL` for namespaces, which do not exist here.
pub fn clone(frame: &TrapFrame, arguments: &Arguments) -> Answer {
    arguments.check()?;
    let id = family::new_id()?;
    if arguments.has(linux::CLONE_THREAD) {
        let process = sched::current().process_reference();
        let thread = new_thread(frame, arguments, id, &process)?;
        write_id(arguments, id);
        if arguments.has(linux::CLONE_CHILD_SETTID) {
            let _ = uaccess::write(arguments.child_id, &id);
        }
        if let Err(error) = process.add(thread) {
            discard(thread);
            return Err(error);
        }
        sched::enqueue(thread);
        return Ok(u64::from(id));
    }
    let child = new_process(arguments, id)?;
    let thread = new_thread(frame, arguments, id, &child).inspect_err(|_| {
        child.leave_files();
    })?;
    if arguments.has(linux::CLONE_CHILD_SETTID) {
        // The child writes it itself, in its own memory.
        thread.set_child_tid.set(arguments.child_id);
    }
    if let Err(error) = child
        .add(thread)
        .and_then(|()| limit::prepare(&child))
        .and_then(|()| enter_family(arguments, &child))
    {
        alarm::forget(id, true);
        child.leave_files();
        discard(thread);
        return Err(error);
    }
    limit::begin(&child);
    write_id(arguments, id);
    let waits = arguments.has(linux::CLONE_VFORK);
    child.holds_parent.store(waits, Ordering::Release);
    sched::enqueue(thread);
    if waits {
        wait_for_release(&child);
    }
    Ok(u64::from(id))
}

fn write_id(arguments: &Arguments, id: u32) {
    if arguments.has(linux::CLONE_PARENT_SETTID) {
        let _ = uaccess::write(arguments.parent_id, &id);
    }
}

/// Frees a thread that never ran.
fn discard(thread: &'static Thread) {
    thread.forget_process();
    stacks::free(thread);
}

fn new_thread(
    frame: &TrapFrame,
    arguments: &Arguments,
    id: u32,
    process: &Shared<Process>,
) -> Result<&'static Thread, Errno> {
    let parent = sched::current();
    let mut child_frame = *frame;
    child_frame.begin_child();
    if parent.stops_at_calls() {
        // The child does not inherit a single step.
        registers::set_step(&mut child_frame, false);
    }
    if arguments.stack != 0 {
        child_frame.set_stack_pointer(arguments.stack);
    }
    let child = or_reclaim(|| Thread::new(id, true, begin, &child_frame))?;
    child.set_process(process.clone());
    let bases = context::user_bases(parent.bases.get());
    child.bases.set(match arguments.has(linux::CLONE_SETTLS) {
        true => bases.with_thread_pointer(arguments.tls),
        false => bases,
    });
    child.name.set(parent.name.get());
    child.no_new_privileges.set(parent.no_new_privileges.get());
    child.memory_policy.set(parent.memory_policy.get());
    let affinity = parent.affinity.load(Ordering::Relaxed);
    child.affinity.store(affinity, Ordering::Relaxed);
    let (blocked, stack) = {
        let signals = parent.signals.lock();
        (signals.blocked, signals.stack)
    };
    let mut signals = child.signals.lock();
    signals.blocked = blocked;
    // As on Linux: a child that shares memory starts without an alternate signal stack, unless it only
    // borrows the memory for a while.
    let borrows = arguments.has(linux::CLONE_VFORK) || !arguments.has(linux::CLONE_VM);
    signals.stack = if borrows { stack } else { AlternateStack::NONE };
    drop(signals);
    // SAFETY: The registers hold the parent's state; the child does not run yet.
    unsafe { fpu::save(&mut *child.fpu.get()) };
    if arguments.has(linux::CLONE_CHILD_CLEARTID) {
        child.clear_child_tid.set(arguments.child_id);
    }
    Ok(child)
}

fn new_process(arguments: &Arguments, id: u32) -> Result<Shared<Process>, Errno> {
    let parent = current();
    let space: Shared<UserSpace> = parent.space().ok_or(EINVAL)?;
    let actions = if arguments.has(linux::CLONE_SIGHAND) {
        parent.signals.actions.get()
    } else {
        parent.signals.actions.get().copy()?
    };
    let limits = *parent.limits.lock();
    let space = if arguments.has(linux::CLONE_VM) {
        space
    } else {
        let copy = or_reclaim(|| space.fork())?;
        // Not the limits of the space, which may be borrowed from another process.
        copy.set_limits(&limits.memory());
        copy
    };
    if arguments.clears_handlers() {
        actions.forget_handlers();
    }
    let files = files(arguments, parent)?;
    let signals = Signals::new(actions);
    let program = parent.program();
    let (table, place) = files.clone();
    Process::new(id, space, program, signals, limits, files).inspect_err(|_| {
        table.leave();
        place.leave();
    })
}

/// The child's descriptors and working directory.
fn files(arguments: &Arguments, parent: &Process) -> Result<(Shared<Table>, Shared<Place>), Errno> {
    let place = if arguments.has(linux::CLONE_FS) {
        None
    } else {
        Some(Shared::new(parent.place.duplicate())?)
    };
    let descriptors = if arguments.has(linux::CLONE_FILES) {
        let table = parent.descriptors.get();
        table.share();
        table
    } else {
        Shared::new(parent.descriptors.get().duplicate()?)?
    };
    // Nothing fails from here on.
    let place = place.unwrap_or_else(|| {
        parent.place.share();
        parent.place.clone()
    });
    Ok((descriptors, place))
}

fn enter_family(arguments: &Arguments, child: &Shared<Process>) -> Result<(), Errno> {
    let caller = current().id;
    family::with(|family| {
        let own = family.get(caller).map(|entry| {
            (
                entry.group,
                entry.session,
                (entry.parent, entry.exit_signal),
            )
        });
        let child_of_caller = (caller, arguments.exit_signal);
        let (group, session, brother) = own.unwrap_or((caller, caller, child_of_caller));
        // As on Linux: a sibling notifies the common parent as the caller does.
        let (parent, exit_signal) = if arguments.has(linux::CLONE_PARENT) {
            brother
        } else {
            child_of_caller
        };
        family.add(Entry {
            id: child.id,
            parent,
            maker: sched::current().id(),
            group,
            session,
            process: Some(child.clone()),
            ended: None,
            change: None,
            has_execed: false,
            exit_signal,
            hangs_up: false,
        })
    })
}

/// Stores a new thread's number in its own memory: the thread's first act.
fn begin(thread: &'static Thread) {
    let address = thread.set_child_tid.get();
    if address != 0 {
        let _ = uaccess::write(address, &thread.id());
    }
}

/// `vfork`: the child uses the caller's memory, and the caller waits until it no longer does. Only the end of
/// the caller's own process ends the wait early.
fn wait_for_release(child: &Process) {
    let waits = || child.holds_parent.load(Ordering::Acquire);
    while waits() && !sched::current().work().contains(Work::EXIT) {
        let check = || Ok(waits());
        let _ = wait::sleep(child.key(), u32::MAX, None, Interruptible::ByEnd, check);
    }
}
