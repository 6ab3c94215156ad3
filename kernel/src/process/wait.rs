//! Waiting for children.

use super::family::{self, Change, Ended, Entry, Family};
use super::usage::Usage;
use super::{current, end};
use crate::errno::{ECHILD, Errno, RESTART};
use crate::ptrace;
use crate::sched;
use crate::sched::wait::{self, Interruptible, Woken};

/// The children to wait for.
#[derive(Clone, Copy)]
pub enum Which {
    Any,
    Process(u32),
    Group(u32),
}

impl Which {
    fn accepts(self, entry: &Entry) -> bool {
        match self {
            Self::Any => true,
            Self::Process(id) => entry.id == id,
            Self::Group(group) => entry.group == group,
        }
    }
}

/// A child that has ended, stopped or continued.
pub struct Child {
    pub id: u32,
    /// As `wait4` stores it.
    pub status: u32,
    pub usage: Usage,
    /// Whether this is a tracee's stop.
    pub is_trapped: bool,
    /// Whether its usage becomes that of the caller's children.
    pub counts: bool,
}

/// What a process waits for.
#[derive(Clone, Copy)]
pub struct Wanted {
    pub which: Which,
    pub kind: Kind,
    pub ended: bool,
    pub stopped: bool,
    pub continued: bool,
    /// Whether the children can be waited for again.
    pub stay: bool,
}

impl Wanted {
    /// Returns what there is to report of a child.
    fn find(&self, family: &Family, entry: &Entry) -> Option<Child> {
        let tracee = family.tracees.find(entry.id);
        let child = |status, usage| Child {
            id: entry.id,
            status,
            usage,
            is_trapped: false,
            counts: true,
        };
        if let Some(Ended { status, usage }) = entry.ended {
            // The tracer is told first.
            return (self.ended && tracee.is_none()).then(|| child(status, usage));
        }
        let change = entry.change?;
        let wanted = match change {
            // A parent that traces the child is told only of the tracee's stops.
            Change::Stopped(_) => self.stopped && tracee.is_none_or(|t| t.by != entry.parent),
            Change::Continued => self.continued,
        };
        wanted.then(|| child(change.status(), Usage::default()))
    }
}

/// Children that end with SIGCHLD, those that do not (`__WCLONE`), or all (`__WALL`).
#[derive(Clone, Copy)]
pub enum Kind {
    Usual,
    Clones,
    All,
}

impl Kind {
    fn accepts(self, entry: &Entry) -> bool {
        let usual = entry.exit_signal == linux_raw_sys::general::SIGCHLD;
        match self {
            Self::Usual => usual,
            Self::Clones => !usual,
            Self::All => true,
        }
    }
}

/// Returns a child with something to report, if there is one. Forgets the report unless it is to stay.
///
/// # Errors
/// `ECHILD`: there is no such child, with or without something to report.
fn take(parent: u32, wanted: &Wanted) -> Result<Option<Child>, Errno> {
    let (found, is_tracees_end) = family::with(|family| {
        let accepts = |entry: &&Entry| {
            let is_tracee = || {
                family
                    .tracees
                    .find(entry.id)
                    .is_some_and(|t| t.by == parent)
            };
            entry.parent == parent
                && wanted.which.accepts(entry)
                && (wanted.kind.accepts(entry) || is_tracee())
        };
        let mut children = family.entries().iter().filter(accepts).peekable();
        let has_children = children.peek().is_some();
        if let Some(child) = children.find_map(|entry| wanted.find(family, entry)) {
            if !wanted.stay {
                match family.get(child.id) {
                    Some(entry) if entry.ended.is_none() => entry.change = None,
                    _ => family.remove(child.id),
                }
            }
            return Ok((Some(child), false));
        }
        match ptrace::wait::find(family, parent, wanted) {
            Some(Some(tracee)) => {
                let ended = !wanted.stay && ptrace::wait::told(family, tracee.id);
                Ok((Some(tracee), ended))
            }
            None if !has_children => Err(ECHILD),
            _ => Ok((None, false)),
        }
    })?;
    if let (Some(tracee), true) = (&found, is_tracees_end) {
        end::tell_late(tracee.id);
    }
    Ok(found)
}

/// Waits for a child. Returns `None` if `block` is not set and no child has anything to report.
///
/// # Errors
/// `ECHILD`, or a signal came.
pub fn wait(wanted: &Wanted, block: bool) -> Result<Option<Child>, Errno> {
    let process = current();
    let mut interrupted = false;
    loop {
        if let Some(child) = take(process.id, wanted)? {
            if !wanted.stay && child.counts {
                process.children_usage.lock().add(&child.usage);
            }
            return Ok(Some(child));
        }
        if !block {
            return Ok(None);
        }
        if interrupted {
            return Err(RESTART);
        }
        let look = Wanted {
            stay: true,
            ..*wanted
        };
        let check = || take(process.id, &look).map(|found| found.is_none());
        let woken = wait::sleep(process.key(), u32::MAX, None, Interruptible::Yes, check)?;
        // A child's report comes before its SIGCHLD, and not every wake-up is a signal.
        interrupted = woken == Some(Woken::Signal) && sched::current().is_interrupted();
    }
}
