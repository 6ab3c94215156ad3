//! Waiting for children.

use super::current;
use super::family::{self, Ended, Entry};
use crate::errno::{ECHILD, Errno, RESTART};
use crate::sched::wait::{self, Interruptible, Woken};

/// Which children are waited for.
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

/// A child that has ended.
pub struct Child {
    pub id: u32,
    pub ended: Ended,
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

/// A child that has ended, if there is one; it is forgotten unless it is to `stay`.
///
/// # Errors
/// `ECHILD`: there is no such child, ended or not.
fn take(parent: u32, which: Which, kind: Kind, stay: bool) -> Result<Option<Child>, Errno> {
    family::with(|family| {
        let mut found = None;
        let mut any = false;
        for entry in family.entries() {
            if entry.parent == parent && which.accepts(entry) && kind.accepts(entry) {
                any = true;
                if let Some(ended) = entry.ended {
                    found = Some(Child {
                        id: entry.id,
                        ended,
                    });
                    break;
                }
            }
        }
        match &found {
            None if !any => return Err(ECHILD),
            Some(child) if !stay => family.remove(child.id),
            _ => {}
        }
        Ok(found)
    })
}

/// Waits for a child to end; `None` if `block` is not set and none has.
///
/// # Errors
/// `ECHILD`, or a signal came.
pub fn wait(which: Which, kind: Kind, stay: bool, block: bool) -> Result<Option<Child>, Errno> {
    let process = current();
    loop {
        if let Some(child) = take(process.id, which, kind, stay)? {
            if !stay {
                process.children_usage.lock().add(&child.ended.usage);
            }
            return Ok(Some(child));
        }
        if !block {
            return Ok(None);
        }
        let check = || take(process.id, which, kind, true).map(|found| found.is_none());
        let woken = wait::sleep(process.key(), u32::MAX, None, Interruptible::Yes, check)?;
        if woken == Some(Woken::Signal) {
            return Err(RESTART);
        }
    }
}
