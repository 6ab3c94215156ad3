//! Processes: an address space, threads, signals and files under one number.
//!
//! `family` holds all processes and their relations, and `space` the CPUs in an address space. `fork` makes a
//! process, `end` ends one, and `wait` reports that to its parent. `usage` counts what it used, `oom` chooses
//! the process to kill when memory is exhausted, and `part` is what `exec` unshares.
//!
//! A process is reference-counted: its threads hold it, and the family does until its parent has waited for
//! it. Its space and files are released when its last thread ends; what is left is a record.
//!
//! Lock order: family, then a process's threads, then a thread's signals, then the process's.

pub mod alarm;
pub mod capabilities;
pub mod end;
pub mod family;
pub mod fork;
pub mod limits;
mod number;
pub mod oom;
pub mod orphans;
mod part;
pub mod space;
pub mod stop;
pub mod usage;
pub mod wait;

use alloc::vec::Vec;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use crate::errno::{ENOMEM, Errno};
use crate::exec::Program;
use crate::files::descriptors::Table;
use crate::files::place::Place;
use crate::files::readiness::{Events, Readiness};
use crate::sched;
use crate::sched::thread::{Thread, Work};
use crate::shared::Shared;
use crate::signal::Signals;
use crate::sync::SpinLock;
use limits::Limits;
pub use part::Part;
pub use space::{UserSpace, current as space};
use usage::Usage;

/// The number of the first process, for which the machine was started.
pub const FIRST: u32 = 100;
/// The number of the parent of orphans.
pub const INIT: u32 = 1;

/// A process.
pub struct Process {
    pub id: u32,
    /// None once the process has ended.
    space: SpinLock<Option<Shared<UserSpace>>>,
    /// The program that it runs; replaced by `exec`.
    program: SpinLock<Shared<Program>>,
    threads: SpinLock<Vec<&'static Thread>>,
    /// Threads that have not called `exit`.
    pub staying: AtomicU32,
    /// Threads that have left the list, and still have to tell that to their tracers or tracees.
    pub leaving: AtomicU32,
    /// Whether all threads have to exit.
    ending: AtomicBool,
    /// Whether all threads but one exit, and that one waits for it: it calls `exec`, or unshares descriptors.
    pub alone: AtomicBool,
    /// The reason of its end: an exit status, or `SIGNALLED` and a signal; `NO_REASON` before.
    reason: AtomicU64,
    /// Whether a signal has stopped it, so that its threads sleep.
    state: AtomicU32,
    /// The signal that last stopped it.
    stop_signal: AtomicU32,
    /// Set in a child of `vfork`: the caller waits until this is false.
    holds_parent: AtomicBool,
    pub signals: Signals,
    pub limits: SpinLock<Limits>,
    pub descriptors: Part<Table>,
    pub place: Shared<Place>,
    /// Usage of threads that have ended.
    usage: SpinLock<Usage>,
    /// Usage of children that it waited for.
    pub children_usage: SpinLock<Usage>,
    /// Whether it was chosen to be killed for its memory.
    pub out_of_memory: AtomicBool,
    /// Whether it ends, and has freed its memory.
    pub has_given_back: AtomicBool,
    /// Whether its last thread has ended, and its parent can know.
    pub is_over: AtomicBool,
    /// The watchers of that.
    pub watchers: Readiness,
}

impl Process {
    /// Makes a process without threads.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn new(
        id: u32,
        space: Shared<UserSpace>,
        program: Shared<Program>,
        signals: Signals,
        limits: Limits,
        (descriptors, place): (Shared<Table>, Shared<Place>),
    ) -> Result<Shared<Self>, Errno> {
        Shared::new(Self {
            id,
            space: SpinLock::new(Some(space)),
            program: SpinLock::new(program),
            threads: SpinLock::new(Vec::new()),
            staying: AtomicU32::new(0),
            leaving: AtomicU32::new(0),
            ending: AtomicBool::new(false),
            alone: AtomicBool::new(false),
            reason: AtomicU64::new(end::NO_REASON),
            state: AtomicU32::new(stop::RUNS),
            stop_signal: AtomicU32::new(0),
            holds_parent: AtomicBool::new(false),
            signals,
            limits: SpinLock::new(limits),
            descriptors: Part::new(descriptors),
            place,
            usage: SpinLock::new(Usage::default()),
            children_usage: SpinLock::new(Usage::default()),
            out_of_memory: AtomicBool::new(false),
            has_given_back: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            watchers: Readiness::new(),
        })
    }

    /// The program that it runs.
    pub fn program(&self) -> Shared<Program> {
        self.program.lock().clone()
    }

    /// Changes the program that it runs.
    pub fn set_program(&self, program: Shared<Program>) {
        let old = core::mem::replace(&mut *self.program.lock(), program);
        drop(old);
    }

    /// Replaces its address space. Returns the old one.
    pub fn replace_space(&self, new: Shared<UserSpace>) -> Option<Shared<UserSpace>> {
        self.space.lock().replace(new)
    }

    /// Its address space, unless it has ended.
    pub fn space(&self) -> Option<Shared<UserSpace>> {
        self.space.lock().clone()
    }

    /// The same, unless it is borrowed from the parent (`vfork`).
    pub fn own_space(&self) -> Option<Shared<UserSpace>> {
        let borrows = self.holds_parent.load(Ordering::Acquire);
        self.space().filter(|_| !borrows)
    }

    /// Adds a thread to the process, before the thread runs.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn add(&self, thread: &'static Thread) -> Result<(), Errno> {
        let mut threads = self.threads.lock();
        threads.try_reserve(1).map_err(|_| ENOMEM)?;
        threads.push(thread);
        drop(threads);
        // Before it runs, and while its maker stays: the count is 0 only after the last `exit`.
        self.staying.fetch_add(1, Ordering::Relaxed);
        // SeqCst: `end_all` sets the flag before it looks at the list.
        if self.ending.load(Ordering::SeqCst) || self.alone.load(Ordering::SeqCst) {
            thread.add_work(Work::EXIT);
        }
        Ok(())
    }

    /// Calls `f` with each thread, under the list's lock.
    pub fn for_each_thread(&self, f: &mut dyn FnMut(&'static Thread)) {
        self.threads.lock().iter().for_each(|thread| f(thread));
    }

    /// Calls `f` with the thread of this number, under the list's lock.
    pub fn with_thread<R>(&self, id: u32, f: impl FnOnce(&'static Thread) -> R) -> Option<R> {
        let threads = self.threads.lock();
        let thread = threads.iter().find(|thread| thread.id() == id)?;
        Some(f(thread))
    }

    /// The number of its threads.
    pub fn thread_count(&self) -> usize {
        self.threads.lock().len()
    }

    /// Whether all its threads have to exit.
    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }

    /// Releases its files, because it ends or was never started.
    fn leave_files(&self) {
        self.descriptors.get().leave();
        self.place.leave();
    }

    /// The events of a descriptor of it: readable once the process has ended.
    pub fn events(&self) -> Events {
        match self.is_over.load(Ordering::SeqCst) {
            true => Events::READABLE,
            false => Events::empty(),
        }
    }

    /// A key for sleeping until something about this process changes.
    pub fn key(&self) -> u64 {
        core::ptr::from_ref(self) as u64
    }
}

/// The current thread's process.
///
/// # Panics
/// In a kernel thread.
#[inline]
pub fn current() -> &'static Process {
    sched::current().process()
}
