//! Reports tracees to a tracer that waits. Stops and threads are reported even if the call does not ask for
//! them.

use super::tracee::{State, Stop};
use crate::process::family::{Ended, Family};
use crate::process::usage::Usage;
use crate::process::wait::{Child, Wanted, Which};
use crate::sched::thread::{Thread, Work};

/// News of a process's tracees. `None`: it has no tracee that matches `wanted`. `Some(None)`: no news yet.
pub fn find(family: &Family, by: u32, wanted: &Wanted) -> Option<Option<Child>> {
    let is_wanted = |process: u32, id: u32| match wanted.which {
        Which::Any => true,
        Which::Process(wanted) => id == wanted,
        Which::Group(group) => family
            .find(process)
            .is_some_and(|entry| entry.group == group),
    };
    let mut tracees = family
        .tracees
        .iter()
        .filter(|tracee| tracee.by == by && is_wanted(tracee.process, tracee.id))
        .peekable();
    tracees.peek()?;
    Some(tracees.find_map(|tracee| {
        let child = |status, usage, is_trapped| Child {
            id: tracee.id,
            status,
            usage,
            is_trapped,
            counts: false,
        };
        match tracee.state {
            State::Ended(Ended { status, usage }) => {
                wanted.ended.then(|| child(status, usage, false))
            }
            _ => {
                let Stop { code, .. } = tracee.news()?;
                // A tracee that is exiting reports only its end.
                let process = family.process(tracee.process)?;
                let stays = |thread: &Thread| !thread.work().contains(Work::EXIT);
                process
                    .with_thread(tracee.id, stays)
                    .filter(|stays| *stays)?;
                let status = code << 8 | 0x7f;
                Some(child(status, Usage::default(), true))
            }
        }
    }))
}

/// Marks a tracee's news as reported; returns whether it was the tracee's end.
pub fn told(family: &mut Family, id: u32) -> bool {
    let Some(tracee) = family.tracees.get(id) else {
        return false;
    };
    if !matches!(tracee.state, State::Ended(_)) {
        tracee.is_news = false;
        return false;
    }
    family.tracees.remove(id);
    true
}
