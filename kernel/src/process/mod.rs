//! Processes: an address space, threads, signals and files under one number.
//!
//! `family` knows all processes and how they are related, `space` the CPUs in an address space,
//! `fork` makes a process, `end` ends one, `wait` tells its parent, `usage` counts what it used,
//! `oom` chooses who dies when memory is exhausted, `part` is what `exec` unshares.
//!
//! A process is counted: its threads hold it, and the family until its parent has waited for it.
//! What a process has (space, files) goes when its last thread ends; what is left is a record.
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

/// The number of the first process: what the machine was started for.
pub const FIRST: u32 = 100;
/// The number that orphans know as their parent's.
pub const INIT: u32 = 1;

/// A process.
pub struct Process {
    pub id: u32,
    /// None once the process has ended.
    space: SpinLock<Option<Shared<UserSpace>>>,
    /// What it runs; replaced by `exec`.
    program: SpinLock<Shared<Program>>,
    threads: SpinLock<Vec<&'static Thread>>,
    /// Threads that have not called `exit`.
    pub staying: AtomicU32,
    /// Threads that have left the list and have still to say so to who traces them, or is traced by
    /// them.
    pub leaving: AtomicU32,
    /// All threads are to end.
    ending: AtomicBool,
    /// All threads but one are to end, because that one calls `exec`.
    pub alone: AtomicBool,
    /// Why it ends: an exit status, or `SIGNALLED` and a signal; `NO_REASON` until it does.
    reason: AtomicU64,
    /// Whether a signal has stopped it, so that its threads sleep.
    state: AtomicU32,
    /// The signal that has stopped it last.
    stop_signal: AtomicU32,
    /// Made by `vfork`, whose caller waits until this is false.
    holds_parent: AtomicBool,
    pub signals: Signals,
    pub limits: SpinLock<Limits>,
    pub descriptors: Part<Table>,
    pub place: Shared<Place>,
    /// Of threads that have ended.
    usage: SpinLock<Usage>,
    /// Of children that it waited for.
    pub children_usage: SpinLock<Usage>,
    /// Its memory was chosen to be given back.
    pub out_of_memory: AtomicBool,
    /// It ends, and has no memory any more.
    pub has_given_back: AtomicBool,
    /// Its last thread has ended, and its parent can know.
    pub is_over: AtomicBool,
    /// Who wants to know that.
    pub watchers: Readiness,
}

impl Process {
    /// A process without threads.
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

    /// What it runs.
    pub fn program(&self) -> Shared<Program> {
        self.program.lock().clone()
    }

    /// It runs another program from now on.
    pub fn set_program(&self, program: Shared<Program>) {
        let old = core::mem::replace(&mut *self.program.lock(), program);
        drop(old);
    }

    /// Gives it another address space; the one it had.
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

    /// Counts a thread among the process's, before it runs.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn add(&self, thread: &'static Thread) -> Result<(), Errno> {
        let mut threads = self.threads.lock();
        threads.try_reserve(1).map_err(|_| ENOMEM)?;
        threads.push(thread);
        drop(threads);
        // Before it runs, and its maker stays meanwhile: the count is 0 only after the last `exit`.
        self.staying.fetch_add(1, Ordering::Relaxed);
        // SeqCst: `end_all` sets the flag before it looks at the list.
        if self.ending.load(Ordering::SeqCst) || self.alone.load(Ordering::SeqCst) {
            thread.add_work(Work::EXIT);
        }
        Ok(())
    }

    /// Does something with each thread, under the list's lock.
    pub fn for_each_thread(&self, f: &mut dyn FnMut(&'static Thread)) {
        self.threads.lock().iter().for_each(|thread| f(thread));
    }

    /// Does something with the thread of this number, under the list's lock.
    pub fn with_thread<R>(&self, id: u32, f: impl FnOnce(&'static Thread) -> R) -> Option<R> {
        let threads = self.threads.lock();
        let thread = threads.iter().find(|thread| thread.id() == id)?;
        Some(f(thread))
    }

    /// How many threads it has.
    pub fn thread_count(&self) -> usize {
        self.threads.lock().len()
    }

    /// Whether all its threads are to end.
    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::SeqCst)
    }

    /// It ends, or was never begun: it has no files any more.
    fn leave_files(&self) {
        self.descriptors.get().leave();
        self.place.leave();
    }

    /// What a descriptor of it can be polled for: it is readable once the process has ended.
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
/// In a thread of the kernel's own.
#[inline]
pub fn current() -> &'static Process {
    sched::current().process()
}
