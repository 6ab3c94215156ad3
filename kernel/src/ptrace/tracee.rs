//! What is known of tracees: the part of the family's table that is theirs.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use super::RECORDS;
use crate::errno::{ENOMEM, Errno};
use crate::process::family::Ended;
use crate::signal::pending::Info;

/// A thread that is traced, or that has ended and of which its tracer was not told.
pub struct Tracee {
    pub id: u32,
    pub process: u32,
    /// The thread that traces it, and that thread's process, of which all threads can wait for it.
    pub tracer: u32,
    pub by: u32,
    /// By `PTRACE_SEIZE`.
    pub seized: bool,
    pub options: u32,
    pub state: State,
    /// It has stopped, and its tracer was not told.
    pub is_news: bool,
    /// `PTRACE_INTERRUPT`: it has to stop.
    pub interrupted: bool,
    /// What `PTRACE_GETEVENTMSG` says.
    pub message: u64,
    pub goes: Goes,
    /// It was last resumed for a step. As on Linux it goes one even if its tracer ends.
    pub steps: bool,
    /// It calls `exit` alone, with this status.
    pub exits: Option<u32>,
}

/// What a tracee does.
#[derive(Clone, Copy)]
pub enum State {
    Runs,
    Stopped(Stop),
    Ended(Ended),
}

/// Why it has stopped.
#[derive(Clone, Copy)]
pub struct Stop {
    /// As `wait4` stores it, 8 bits further up: a signal, or 0x80 and SIGTRAP, or an event above one.
    pub code: u32,
    /// A stop of the whole process has none, unless the tracee is seized.
    pub info: Option<Info>,
    pub message: u64,
}

/// How a tracee goes on after a stop.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Goes {
    Freely,
    /// To the next system call's begin or end.
    ToCalls,
    /// An instruction.
    AStep,
}

impl Tracee {
    pub fn has_stopped(&self) -> bool {
        matches!(self.state, State::Stopped(_))
    }

    /// Its stop, if its tracer was not told of it.
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

/// All of them.
pub struct Tracees(Vec<Tracee>);

impl Tracees {
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Makes room for one.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn reserve(&mut self) -> Result<(), Errno> {
        self.0.try_reserve(1).map_err(|_| ENOMEM)
    }

    /// Adds one, for which there is room; `RECORDS` has it already.
    pub fn add(&mut self, tracee: Tracee) {
        self.0.push(tracee);
    }

    /// Takes out a thread's.
    pub fn remove(&mut self, id: u32) -> Option<Tracee> {
        let at = self.0.iter().position(|tracee| tracee.id == id)?;
        RECORDS.fetch_sub(1, Ordering::SeqCst);
        let tracee = self.0.swap_remove(at);
        if self.0.is_empty() {
            self.0 = Vec::new();
        }
        Some(tracee)
    }

    /// A thread's.
    pub fn get(&mut self, id: u32) -> Option<&mut Tracee> {
        self.0.iter_mut().find(|tracee| tracee.id == id)
    }

    /// The same, to look only.
    pub fn find(&self, id: u32) -> Option<&Tracee> {
        self.0.iter().find(|tracee| tracee.id == id)
    }

    /// The same, if that thread traces it.
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
