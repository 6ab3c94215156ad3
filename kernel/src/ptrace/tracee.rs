//! The records of tracees, a part of the process table.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use super::RECORDS;
use crate::errno::{ENOMEM, Errno};
use crate::process::family::Ended;
use crate::signal::pending::Info;

/// A traced thread, or one that has ended and was not reported to its tracer yet.
pub struct Tracee {
    pub id: u32,
    pub process: u32,
    /// The tracing thread and its process (`by`), any thread of which can wait for the tracee.
    pub tracer: u32,
    pub by: u32,
    /// Whether `PTRACE_SEIZE` attached it.
    pub seized: bool,
    pub options: u32,
    pub state: State,
    /// Whether it has stopped, and its tracer has not been told.
    pub is_news: bool,
    /// Whether it has to stop for `PTRACE_INTERRUPT`.
    pub interrupted: bool,
    /// The message that `PTRACE_GETEVENTMSG` returns.
    pub message: u64,
    pub goes: Goes,
    /// Whether it was last resumed for a step, which it takes even if its tracer ends, as on Linux.
    pub steps: bool,
    /// Its status, if it calls `exit` (not `exit_group`).
    pub exits: Option<u32>,
}

/// The state of a tracee.
#[derive(Clone, Copy)]
pub enum State {
    Runs,
    Stopped(Stop),
    Ended(Ended),
}

/// Why a tracee has stopped.
#[derive(Clone, Copy)]
pub struct Stop {
    /// As `wait4` stores it, 8 bits further up: a signal, or 0x80 and SIGTRAP, or an event above one.
    pub code: u32,
    /// None for a stop of the whole process, unless the tracee is seized.
    pub info: Option<Info>,
    pub message: u64,
}

/// How a tracee continues after a stop.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Goes {
    Freely,
    /// To the entry or exit of the next system call.
    ToCalls,
    /// One instruction.
    AStep,
}

impl Tracee {
    pub fn has_stopped(&self) -> bool {
        matches!(self.state, State::Stopped(_))
    }

    /// Its stop, if its tracer has not been told of it.
    pub fn news(&self) -> Option<Stop> {
        match self.state {
            State::Stopped(stop) if self.is_news => Some(stop),
            _ => None,
        }
    }

    pub fn has(&self, option: u32) -> bool {
        self.options & option != 0
    }
}

/// The records of all tracees.
pub struct Tracees(Vec<Tracee>);

impl Tracees {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Reserves room for one record.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn reserve(&mut self) -> Result<(), Errno> {
        self.0.try_reserve(1).map_err(|_| ENOMEM)
    }

    /// Adds a record, for which room is reserved and which `RECORDS` counts already.
    pub fn add(&mut self, tracee: Tracee) {
        self.0.push(tracee);
    }

    /// Removes a thread's record.
    pub fn remove(&mut self, id: u32) -> Option<Tracee> {
        let at = self.0.iter().position(|tracee| tracee.id == id)?;
        RECORDS.fetch_sub(1, Ordering::SeqCst);
        let tracee = self.0.swap_remove(at);
        if self.0.is_empty() {
            self.0 = Vec::new();
        }
        Some(tracee)
    }

    /// A thread's record.
    pub fn get(&mut self, id: u32) -> Option<&mut Tracee> {
        self.0.iter_mut().find(|tracee| tracee.id == id)
    }

    /// The same, by a shared reference.
    pub fn find(&self, id: u32) -> Option<&Tracee> {
        self.0.iter().find(|tracee| tracee.id == id)
    }

    /// A thread's record, if `tracer` traces it.
    pub fn of(&mut self, id: u32, tracer: u32) -> Option<&mut Tracee> {
        self.get(id).filter(|tracee| tracee.tracer == tracer)
    }

    pub fn iter_mut(&mut self) -> core::slice::IterMut<'_, Tracee> {
        self.0.iter_mut()
    }

    pub fn iter(&self) -> core::slice::Iter<'_, Tracee> {
        self.0.iter()
    }
}
