//! Lets one thread run while every other CPU is idle and no thread is in the memory core.
//!
//! The caller closes a gate. From then on CPUs pick no threads, and running threads give up their CPU when
//! they sleep or return to user mode. Threads that sleep inside the memory core, for one of its locks, are
//! exempt: they continue, for else the core would never be at rest. When all CPUs are at the gate and no
//! thread sleeps in the core, the core's state is consistent.
//!
//! A thread that ran, or was picked, while the gate was closed is in the state [`Work::GATE`] until it has come to
//! user mode. There, and in long calls, it gives up its CPU if the gate is still closed.
//!
//! Threads hold none of the kernel's spin locks while they sleep, so those are free, too.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::thread::{Thread, Work};
use super::wait::{self, Interruptible};
use super::{current, timer};
use crate::arch::{percpu, time};

/// Whether a caller has stopped the machine, or is about to.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// Whether the gate is closed: only threads that pass are picked.
static CLOSED: AtomicBool = AtomicBool::new(false);
/// CPUs that nap at the gate, a bit each.
static OUT: AtomicU64 = AtomicU64::new(0);
/// How often CPUs have left the gate.
static LEFT: AtomicU64 = AtomicU64::new(0);
/// Threads that sleep in the memory core.
static INSIDE: AtomicU32 = AtomicU32::new(0);

/// Nanoseconds between two checks whether all CPUs are at the gate.
const LOOK: u64 = 50_000;

/// Marks a thread that is about to sleep inside the memory core, until this is dropped.
pub struct Inside(());

/// See [`Inside`].
pub fn go_on_inside() -> Inside {
    INSIDE.fetch_add(1, Ordering::SeqCst);
    current().passes.store(true, Ordering::SeqCst);
    Inside(())
}

impl Drop for Inside {
    fn drop(&mut self) {
        current().passes.store(false, Ordering::SeqCst);
        INSIDE.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether a thread may be picked, or keep its CPU.
#[inline]
pub fn lets(thread: &Thread) -> bool {
    !is_closed() || thread.passes.load(Ordering::SeqCst)
}

/// Whether the gate is closed.
#[inline]
fn is_closed() -> bool {
    CLOSED.load(Ordering::SeqCst)
}

/// Marks a thread that this CPU runs, or is about to run, while the gate is closed.
pub fn mark(thread: &Thread) {
    if is_closed() {
        thread.add_work(Work::GATE);
    }
}

/// Whether a thread that has come to user mode has to give up its CPU. It is marked again if it is picked while
/// the gate is closed, or still runs when the gate is closed again.
pub fn stops(thread: &Thread) -> bool {
    // Before the look at the gate: a CPU that closes it later has this CPU mark the thread.
    thread.remove_work(Work::GATE);
    !lets(thread)
}

/// Naps at the gate if it is closed; an idle CPU calls this when it has found nothing to run. Returns whether
/// it napped: then the CPU should look for a thread that passes.
pub fn nap_at_gate(cpu: u32) -> bool {
    if !is_closed() {
        return false;
    }
    OUT.fetch_or(1 << cpu, Ordering::SeqCst);
    timer::nap();
    // In this order, and before the CPU looks for a thread. A caller that sees the CPU at the gate before and
    // after sees in the count that it was away meanwhile.
    OUT.fetch_and(!(1 << cpu), Ordering::SeqCst);
    LEFT.fetch_add(1, Ordering::SeqCst);
    true
}

/// Whether only the caller runs, and no thread is in the core.
fn is_quiet() -> bool {
    let others =
        (1u64 << (percpu::count() - 1) << 1).wrapping_sub(1) & !(1 << percpu::cpu_number());
    let are_out = || OUT.load(Ordering::SeqCst) & others == others;
    let left = LEFT.load(Ordering::SeqCst);
    // No other CPU runs at either check, and none did in between. So no thread began or ended a sleep in the
    // core meanwhile.
    are_out()
        && INSIDE.load(Ordering::SeqCst) == 0
        && are_out()
        && LEFT.load(Ordering::SeqCst) == left
}

/// Sleeps for a moment, whatever work the thread has.
pub fn nap(nanoseconds: u64) {
    let key = core::ptr::from_ref(current()) as u64;
    let deadline = Some(time::now().saturating_add(nanoseconds));
    let _ = wait::sleep(key, u32::MAX, deadline, Interruptible::No, || Ok(true));
}

/// Runs `f` while nothing else runs.
pub fn stop_machine<R>(f: impl FnOnce() -> R) -> R {
    while TAKEN.swap(true, Ordering::SeqCst) {
        nap(LOOK);
    }
    current().passes.store(true, Ordering::SeqCst);
    CLOSED.store(true, Ordering::SeqCst);
    super::tell_others();
    while !is_quiet() {
        nap(LOOK);
    }
    let result = f();
    CLOSED.store(false, Ordering::SeqCst);
    current().passes.store(false, Ordering::SeqCst);
    TAKEN.store(false, Ordering::SeqCst);
    super::tell_others();
    result
}
