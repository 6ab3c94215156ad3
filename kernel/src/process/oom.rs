//! Out-of-memory handling: takes the lazily freed pages of processes (`MADV_FREE`). If there are none, it
//! kills the largest process, as on Linux, and everything else goes on. The core has tried to swap pages out before.
//!
//! One process is chosen at a time. While it still frees its memory, no other is chosen, and a thread that
//! needs memory pauses and tries again. A process that ends anyway counts as chosen while it is the largest.
//! It also does after its last thread has left, while it frees its memory.
//!
//! A thread that may have looked for memory before a process freed its own does not choose: each thread looks
//! once more after that.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{Process, current, family};
use crate::sched;
use crate::shared::Shared;
use crate::syscall::time;
use linux_raw_sys::general::SIGKILL;

/// Nanoseconds between a fault that found no memory and its next try.
const PAUSE: u64 = 1_000_000;

/// The process with the most pages, in memory or swapped out, and how many. None while the end of a process is waited for.
fn largest() -> Option<(Shared<Process>, u64)> {
    let mut found: Option<(Shared<Process>, u64)> = None;
    let mut is_waited_for = false;
    family::for_each(|entry| entry.process.is_some(), &mut |process| {
        let space = process.space();
        let was_chosen = process.out_of_memory.load(Ordering::Acquire);
        let gives_back = space.is_none() && !process.has_given_back.load(Ordering::Acquire);
        is_waited_for |= process.is_ending() && (was_chosen || gives_back);
        let pages = space.map_or(0, |space| {
            let rss = space.rss();
            rss.resident() + rss.swapped + rss.tables
        });
        if found.as_ref().is_none_or(|(_, most)| pages >= *most) {
            found = Some((process.clone(), pages));
        }
    });
    found.filter(|(process, _)| !is_waited_for && !process.is_ending())
}

/// Takes lazily freed pages of processes. Returns whether there were any.
fn take_let_go() -> bool {
    let mut taken = false;
    family::for_each(|entry| entry.process.is_some(), &mut |process| {
        taken |= process.space().is_some_and(|space| space.take_lazyfree());
    });
    taken
}

/// Whether a thread is choosing.
static CHOOSING: AtomicBool = AtomicBool::new(false);

/// Processes that have freed their memory.
static GIVEN_BACK: AtomicU64 = AtomicU64::new(0);

/// Records that a process has freed its memory, and is about to be gone.
pub fn gave_back(process: &Process) {
    // In this order, and before the family forgets it: a thread that no longer waits for it sees that it has
    // freed its memory.
    GIVEN_BACK.fetch_add(1, Ordering::Release);
    process.has_given_back.store(true, Ordering::Release);
}

/// Whether the current thread has found no memory since a process last freed its own. If not, it has the next
/// time.
fn has_looked_since() -> bool {
    let given_back = GIVEN_BACK.load(Ordering::Acquire);
    sched::current().without_memory.replace(given_back) == given_back
}

/// Handles a fault of the current thread that found no memory. Takes lazily freed pages, or kills a process,
/// perhaps this one, and pauses. The fault can then be tried again.
pub fn fault_found_none() {
    if current().is_ending() {
        return;
    }
    if CHOOSING.swap(true, Ordering::Acquire) {
        return time::pause(PAUSE);
    }
    if take_let_go() {
        return CHOOSING.store(false, Ordering::Release);
    }
    // In this order: see `gave_back`.
    let chosen = largest().filter(|_| has_looked_since());
    if let Some((victim, pages)) = &chosen {
        victim.out_of_memory.store(true, Ordering::Release);
        log::error!(
            "out of memory: killed process {} ({}), which had {} KiB in memory and swap",
            victim.id,
            victim.program().name(),
            pages * 4
        );
        victim.kill(SIGKILL);
    }
    CHOOSING.store(false, Ordering::Release);
    drop(chosen);
    time::pause(PAUSE);
}
