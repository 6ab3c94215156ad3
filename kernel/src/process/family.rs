//! All processes and their relations: one table under one lock.
//!
//! An entry outlives its process until the parent has waited for it. Parents, groups and sessions are
//! numbers, so that no process keeps another alive.

use alloc::vec::Vec;

use super::usage::Usage;
use super::{INIT, Process};
use crate::errno::{EAGAIN, ENOMEM, EPERM, ESRCH, Errno};
use crate::ptrace::Tracees;
use crate::shared::Shared;
use crate::sync::SpinLock;

/// The largest number, as on Linux.
const LAST_ID: u32 = 4_194_303;

/// The end of a process, of which its parent has not been told yet.
#[derive(Clone, Copy)]
pub struct Ended {
    /// As `wait4` stores it.
    pub status: u32,
    /// Usage of the process, and of the children it waited for.
    pub usage: Usage,
}

/// A change of a process that lives on.
#[derive(Clone, Copy)]
pub enum Change {
    /// By this signal.
    Stopped(u32),
    Continued,
}

impl Change {
    /// The status as `wait4` stores it.
    pub fn status(self) -> u32 {
        match self {
            Self::Stopped(signal) => signal << 8 | 0x7f,
            Self::Continued => 0xffff,
        }
    }
}

/// What the family records of a process.
pub struct Entry {
    pub id: u32,
    pub parent: u32,
    /// The thread of the parent that made it.
    pub maker: u32,
    pub group: u32,
    pub session: u32,
    /// None once it has ended.
    pub process: Option<Shared<Process>>,
    pub ended: Option<Ended>,
    /// Its last change, until the parent has been told.
    pub change: Option<Change>,
    /// Whether it has called `exec`: its parent can no longer change its group.
    pub has_execed: bool,
    /// The signal that its parent gets at its end; 0 for none.
    pub exit_signal: u32,
    /// Whether its stopped group was just orphaned, and it was not signalled yet (`orphans`).
    pub hangs_up: bool,
}

/// The table, in the order of the numbers.
pub struct Family {
    entries: Vec<Entry>,
    pub tracees: Tracees,
    next_id: u32,
    /// Whether numbers have wrapped around: the next one may be in use.
    wrapped: bool,
}

static FAMILY: SpinLock<Family> = SpinLock::new(Family {
    entries: Vec::new(),
    tracees: Tracees::new(),
    next_id: super::FIRST,
    wrapped: false,
});

/// Runs `f` under the family's lock.
pub fn with<R>(f: impl FnOnce(&mut Family) -> R) -> R {
    f(&mut FAMILY.lock())
}

impl Family {
    fn position(&self, id: u32) -> Result<usize, usize> {
        self.entries.binary_search_by_key(&id, |entry| entry.id)
    }

    /// The entry of a process that has not been waited for.
    pub fn get(&mut self, id: u32) -> Option<&mut Entry> {
        let at = self.position(id).ok()?;
        self.entries.get_mut(at)
    }

    /// All entries.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// All entries, to change them; their numbers stay.
    pub fn entries_mut(&mut self) -> &mut [Entry] {
        &mut self.entries
    }

    /// The same as `get`, read-only.
    pub fn find(&self, id: u32) -> Option<&Entry> {
        let at = self.position(id).ok()?;
        self.entries.get(at)
    }

    /// A process that has not ended.
    pub fn process(&self, id: u32) -> Option<Shared<Process>> {
        let at = self.position(id).ok()?;
        self.entries[at].process.clone()
    }

    /// Whether a number is that of a process, group, session, thread or tracee.
    fn is_used(&self, id: u32) -> bool {
        self.tracees.find(id).is_some()
            || self.entries.iter().any(|entry| {
                entry.id == id
                    || entry.group == id
                    || entry.session == id
                    || entry
                        .process
                        .as_ref()
                        .is_some_and(|process| process.with_thread(id, |_| ()).is_some())
            })
    }

    /// Returns a number for a process or thread, which nothing else has.
    ///
    /// # Errors
    /// `EAGAIN`: all are taken.
    fn new_id(&mut self) -> Result<u32, Errno> {
        for _ in 0..LAST_ID {
            let id = self.next_id;
            let fresh = !self.wrapped;
            self.next_id += 1;
            if id == LAST_ID {
                self.next_id = super::FIRST + 1;
                self.wrapped = true;
            }
            if fresh || !self.is_used(id) {
                return Ok(id);
            }
        }
        Err(EAGAIN)
    }

    /// Adds a process.
    ///
    /// # Errors
    /// `ENOMEM`.
    pub fn add(&mut self, entry: Entry) -> Result<(), Errno> {
        self.entries.try_reserve(1).map_err(|_| ENOMEM)?;
        let at = self.position(entry.id).unwrap_or_else(|at| at);
        self.entries.insert(at, entry);
        Ok(())
    }

    /// Removes an entry.
    pub fn remove(&mut self, id: u32) {
        if let Ok(at) = self.position(id) {
            self.entries.remove(at);
        }
    }

    /// Gives the children of a process that ends to `INIT`, which immediately reaps those that have ended.
    pub fn orphan_children_of(&mut self, parent: u32) {
        for entry in self.entries.iter_mut() {
            if entry.parent == parent {
                entry.parent = INIT;
            }
        }
        self.entries
            .retain(|entry| entry.parent != INIT || entry.ended.is_none());
    }

    /// The first wanted process with a number greater than `after` that has not ended. Repeated calls find
    /// all of them.
    pub fn next_of(&self, after: u32, wanted: impl Fn(&Entry) -> bool) -> Option<Shared<Process>> {
        let from = self.position(after).map_or_else(|at| at, |at| at + 1);
        self.entries[from..]
            .iter()
            .filter(|entry| wanted(entry))
            .find_map(|entry| entry.process.clone())
    }

    /// `setpgid` by the process `caller`.
    ///
    /// # Errors
    /// As on Linux: `ESRCH`, `EACCES`, `EPERM`.
    pub fn set_group(&mut self, caller: u32, id: u32, group: u32) -> Result<(), Errno> {
        let own = self.get(caller).map_or(0, |entry| entry.session);
        let group_session = self
            .entries
            .iter()
            .find(|entry| entry.group == group)
            .map(|entry| entry.session);
        let entry = self.get(id).ok_or(ESRCH)?;
        if entry.id != caller {
            if entry.parent != caller {
                return Err(ESRCH);
            }
            if entry.session != own {
                return Err(EPERM);
            }
            if entry.has_execed {
                return Err(crate::errno::EACCES);
            }
        }
        // A session leader stays in its group.
        if entry.session == entry.id {
            return Err(EPERM);
        }
        if group != entry.id && group_session != Some(own) {
            return Err(EPERM);
        }
        entry.group = group;
        Ok(())
    }

    /// `setsid` by the process `caller`.
    ///
    /// # Errors
    /// `EPERM`: it leads a group.
    pub fn set_session(&mut self, caller: u32) -> Result<u32, Errno> {
        if self.entries.iter().any(|entry| entry.group == caller) {
            return Err(EPERM);
        }
        let entry = self.get(caller).ok_or(ESRCH)?;
        entry.group = caller;
        entry.session = caller;
        Ok(caller)
    }
}

/// Returns a number for a process or thread.
///
/// # Errors
/// `EAGAIN`.
pub fn new_id() -> Result<u32, Errno> {
    with(Family::new_id)
}

/// A process that has not ended.
pub fn find(id: u32) -> Option<Shared<Process>> {
    with(|family| family.process(id))
}

/// The process that has a thread of this number.
pub fn find_thread(id: u32) -> Option<Shared<Process>> {
    with(|family| {
        family.process(id).or_else(|| {
            family
                .entries()
                .iter()
                .filter_map(|entry| entry.process.as_ref())
                .find(|process| process.with_thread(id, |_| ()).is_some())
                .cloned()
        })
    })
}

/// Calls `f` with each wanted process that has not ended, without the family's lock.
pub fn for_each(wanted: impl Fn(&Entry) -> bool, f: &mut dyn FnMut(&Shared<Process>)) {
    let mut after = 0;
    while let Some(process) = with(|family| family.next_of(after, &wanted)) {
        after = process.id;
        f(&process);
    }
}
