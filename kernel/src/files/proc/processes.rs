//! All that `/proc` asks about processes.

use crate::errno::{ESRCH, Errno};
use crate::process::{self, Process, family};
use crate::shared::Shared;

/// The relations and the state of a process.
pub struct Kin {
    pub parent: u32,
    pub group: u32,
    pub session: u32,
    /// The tracer of its first thread; 0 for none.
    pub tracer: u32,
    /// The letter that `ps` shows.
    pub state: char,
}

/// The calling process.
pub fn current() -> u32 {
    process::current().id
}

/// Whether a process runs, or has ended and was not reaped.
pub fn exists(number: u32) -> bool {
    family::with(|family| family.get(number).is_some())
}

/// A process that has not ended.
///
/// # Errors
/// `ESRCH`.
pub fn find(number: u32) -> Result<Shared<Process>, Errno> {
    family::find(number).ok_or(ESRCH)
}

/// The first process with at least this number.
pub fn next(from: u32) -> Option<u32> {
    family::with(|family| {
        let mut numbers = family.entries().iter().map(|entry| entry.id);
        numbers.find(|&number| number >= from)
    })
}

/// The number of processes.
pub fn count() -> usize {
    family::with(|family| family.entries().len())
}

/// The relations and the state of a process.
///
/// # Errors
/// `ESRCH`.
pub fn kin(number: u32) -> Result<Kin, Errno> {
    let (kin, process) = family::with(|family| {
        let entry = family.find(number)?;
        let tracee = family.tracees.find(number);
        let state = match tracee {
            Some(tracee) if tracee.has_stopped() => 't',
            _ => 'S',
        };
        let kin = Kin {
            parent: entry.parent,
            group: entry.group,
            session: entry.session,
            tracer: tracee.map_or(0, |tracee| tracee.tracer),
            state,
        };
        Some((kin, entry.process.clone()))
    })
    .ok_or(ESRCH)?;
    let state = match process {
        None => 'Z',
        Some(_) if kin.state == 't' => 't',
        Some(process) if process.is_stopped() => 'T',
        Some(process) if runs(&process) => 'R',
        Some(_) => 'S',
    };
    Ok(Kin { state, ..kin })
}

fn runs(process: &Process) -> bool {
    let mut runs = false;
    process.for_each_thread(&mut |thread| runs |= thread.runs());
    runs
}

pub fn has_thread(number: u32, thread: u32) -> bool {
    find(number).is_ok_and(|process| process.with_thread(thread, |_| ()).is_some())
}

/// The first thread of a process with at least this number.
pub fn next_thread(number: u32, from: u32) -> Option<u32> {
    let mut least = None;
    find(number).ok()?.for_each_thread(&mut |thread| {
        let id = thread.id();
        if id >= from && least.is_none_or(|least| id < least) {
            least = Some(id);
        }
    });
    least
}

/// The number of threads of a process.
pub fn thread_count(number: u32) -> usize {
    find(number).map_or(0, |process| process.thread_count())
}

/// A process's name, which is that of its first thread.
pub fn name(number: u32) -> [u8; 16] {
    let name = |process: Shared<Process>| {
        let mut name = process.with_thread(number, |thread| thread.name.get());
        process.for_each_thread(&mut |thread| {
            name.get_or_insert(thread.name.get());
        });
        name
    };
    find(number).ok().and_then(name).unwrap_or_default()
}
