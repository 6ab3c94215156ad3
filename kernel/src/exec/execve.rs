//! `execve`: replaces the program of the current process.
//!
//! Every check runs before the old program is gone. Then the process's other threads end, and the caller
//! becomes its first thread and switches to a new, empty address space. A failure after that point kills the
//! process, as on Linux.

use core::sync::atomic::Ordering;

use super::strings::{self, Strings};
use super::{Plan, elf, script, short_name, string};
use crate::arch::{context, fpu, percpu};
use crate::errno::{E2BIG, EINTR, ENOENT, Errno};
use crate::files::image;
use crate::memory::reclaim::or_reclaim;
use crate::process::{self, Process, UserSpace, alarm, end, family, space, usage};
use crate::ptrace::attach;
use crate::sched::thread::{Thread, Work};
use crate::sched::{self};
use crate::signal::action::Actions;
use crate::signal::pending::AlternateStack;
use crate::syscall::file::path;

/// Replaces the current program. After `Ok` the thread's frame is the new program's, or the process ends.
///
/// # Errors
/// As `execve(2)`.
pub fn execve(path: u64, arguments: u64, environment: u64) -> Result<(), Errno> {
    let plan = plan(path, arguments, environment)?;
    let policy = space::current().policy();
    let mut limits = process::current().limits.lock().memory();
    // No data limit applies during the load; `Plan::load` sets it afterwards.
    limits.data = u64::MAX;
    let new = or_reclaim(|| UserSpace::new(policy, &limits))?;
    new.set_huge_off(space::current().huge_is_off());
    let thread = sched::current();
    let process = process::current();
    process.end_others(thread)?;

    // Point of no return.
    if process.unshare().is_err() {
        process.kill(linux_raw_sys::general::SIGKILL);
        return Ok(());
    }
    end::tell_sharers(thread, process);
    let old = process.replace_space(new);
    let pointer = process
        .space()
        .map_or(core::ptr::null(), |new| &raw const *new);
    thread.space.set(pointer);
    space::enter(percpu::cpu_number(), percpu::this(), pointer);
    if let Some(old) = old {
        usage::leave_memory(process, &old);
    }
    process.release_parent();
    forget(thread, process);
    match plan.load(thread) {
        Ok(()) => {
            attach::executes(thread);
            // Reset the thread pointer and the FPU to their initial state.
            context::set_user_bases(context::UserBases::default());
            // SAFETY: The thread runs here, so the area is this CPU's.
            unsafe {
                *thread.fpu.get() = fpu::Area::initial();
                fpu::restore(&*thread.fpu.get());
            }
            family::with(|family| {
                if let Some(entry) = family.get(process.id) {
                    entry.has_execed = true;
                    entry.exit_signal = linux_raw_sys::general::SIGCHLD;
                }
            });
        }
        Err(elf::Error::NoMemory) => process.kill(linux_raw_sys::general::SIGKILL),
        Err(_) => process.kill(linux_raw_sys::general::SIGSEGV),
    }
    Ok(())
}

fn plan(path: u64, arguments: u64, environment: u64) -> Result<Plan, Errno> {
    let path = path::read(path)?;
    let path = core::str::from_utf8(&path).map_err(|_| ENOENT)?;
    if path.is_empty() {
        return Err(ENOENT);
    }
    let find = |path: &str| image::find(path.as_bytes());
    let mut image = find(path)?;
    let name = short_name(path);
    let mut path = string(&[path])?;
    let mut arguments = Strings::read(arguments)?;
    if arguments.len() == 0 {
        // As on Linux: otherwise a program would find its environment where it expects its name.
        arguments.push(b"")?;
    }
    let environment = Strings::read(environment)?;
    script::resolve(&mut path, &mut arguments, &mut image, find)?;
    if arguments.size() + environment.size() > strings::MOST {
        return Err(E2BIG);
    }
    Ok(Plan::new(path, name, (arguments, environment), image)?)
}

impl Process {
    /// Ends all threads but the caller and waits for them.
    ///
    /// # Errors
    /// `EINTR`: the process ends, or another thread is in `execve`.
    fn end_others(&self, thread: &'static Thread) -> Result<(), Errno> {
        if self.has_other_threads() {
            if self.alone.swap(true, Ordering::SeqCst) {
                return Err(EINTR);
            }
            self.for_each_thread(&mut |other| {
                if !core::ptr::eq(other, thread) {
                    sched::interrupt(other, Work::EXIT);
                }
            });
            self.await_others();
        }
        if self.is_ending() {
            return Err(EINTR);
        }
        self.staying.store(1, Ordering::Relaxed);
        attach::takes_number(thread, self.id);
        Ok(())
    }
}

impl Process {
    /// Gives the process its own copy of descriptors and handlers that it shares with other processes. The
    /// caller must be its only thread.
    ///
    /// # Errors
    /// `ENOMEM`.
    fn unshare(&self) -> Result<(), Errno> {
        // SAFETY: The caller is the only thread, and uses neither meanwhile.
        unsafe {
            self.signals.actions.unshare(Actions::copy)?;
        }
        self.unshare_descriptors()
    }
}

/// Resets the state that does not survive `execve`.
fn forget(thread: &Thread, process: &Process) {
    thread.clear_child_tid.set(0);
    thread.robust_list.set(0);
    thread.bases.set(context::UserBases::default());
    thread.signals.lock().stack = AlternateStack::NONE;
    process.signals.actions.get().forget_handlers();
    process.descriptors.get().close_on_exec();
    alarm::forget(process.id, false);
}
