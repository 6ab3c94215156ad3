//! Orphaned process groups: no member has a parent in another group of the same session, so no process is
//! left to continue them.
//!
//! Terminal stop signals do not stop an orphaned group. If the end of a process orphans a group that is
//! already stopped, the group gets SIGHUP and SIGCONT.

use linux_raw_sys::general as linux;

use super::family::{self, Entry, Family};
use crate::signal::pending::Info;
use crate::signal::send;

/// Whether a group is orphaned. The process `ending` counts neither as a member nor as a parent.
fn is_orphaned(family: &Family, group: u32, ending: Option<u32>) -> bool {
    let keeps = |entry: &Entry| {
        let is_member = entry.group == group && entry.process.is_some();
        let ends = ending.is_some_and(|ending| entry.id == ending || entry.parent == ending);
        is_member
            && !ends
            && family
                .find(entry.parent)
                .is_some_and(|parent| parent.group != group && parent.session == entry.session)
    };
    !family.entries().iter().any(keeps)
}

/// Whether a process's group is orphaned.
pub fn is_in_orphaned_group(id: u32) -> bool {
    family::with(|family| {
        let group = family.find(id).map(|entry| entry.group);
        group.is_none_or(|group| is_orphaned(family, group, None))
    })
}

fn is_stopped(family: &Family, group: u32) -> bool {
    let stopped = |entry: &Entry| {
        let process = entry.process.as_ref();
        entry.group == group && process.is_some_and(|process| process.is_stopped())
    };
    family.entries().iter().any(stopped)
}

/// Marks the stopped groups that the end of a process orphans, before its children get another parent.
/// Returns whether there are any.
pub fn mark(family: &mut Family, ending: u32) -> bool {
    let Some(own) = family.find(ending) else {
        return false;
    };
    let (group, session) = (own.group, own.session);
    let kept_by_parent = family
        .find(own.parent)
        .is_some_and(|parent| parent.group != group && parent.session == session);
    let mut any = kept_by_parent && mark_group(family, group, ending);
    for at in 0..family.entries().len() {
        let child = &family.entries()[at];
        if child.parent == ending && child.session == session && child.group != group {
            let group = child.group;
            any |= mark_group(family, group, ending);
        }
    }
    any
}

fn mark_group(family: &mut Family, group: u32, ending: u32) -> bool {
    if !is_stopped(family, group) || !is_orphaned(family, group, Some(ending)) {
        return false;
    }
    for entry in family.entries_mut() {
        entry.hangs_up |= entry.group == group && entry.id != ending;
    }
    true
}

/// Signals the marked processes.
pub fn hang_up() {
    let next = |family: &mut Family| {
        let mut entries = family.entries_mut().iter_mut();
        entries.find_map(|entry| {
            let marked = core::mem::take(&mut entry.hangs_up);
            marked.then(|| entry.process.clone()).flatten()
        })
    };
    while let Some(process) = family::with(next) {
        for signal in [linux::SIGHUP, linux::SIGCONT] {
            let info = Info {
                signal,
                code: linux::SI_KERNEL as i32,
                ..Info::default()
            };
            send::info_to_process(&process, info);
        }
    }
}
