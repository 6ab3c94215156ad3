//! One thread alone: every other CPU is idle, and nobody is in the memory core.
//!
//! Whoever wants that closes a gate. From then on CPUs pick no threads, and those that run give up
//! their CPU when they sleep or return to user mode. Not so threads that sleep inside the memory
//! core, for one of its locks: they go on, for else the core would never be at rest. When all CPUs
//! are at the gate and nobody sleeps in the core, what it keeps is whole.
//!
//! Threads hold none of the kernel's spin locks while they sleep; so those are free, too.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use super::thread::Thread;
use super::wait::{self, Interruptible};
use super::{current, timer};
use crate::arch::{percpu, time};

/// Somebody is alone, or wants to be.
static TAKEN: AtomicBool = AtomicBool::new(false);
/// Threads that do not pass are not picked.
static CLOSED: AtomicBool = AtomicBool::new(false);
/// CPUs that nap at the gate, a bit each.
static OUT: AtomicU64 = AtomicU64::new(0);
/// How often a CPU has left the gate.
static LEFT: AtomicU64 = AtomicU64::new(0);
/// Threads that sleep in the memory core.
static INSIDE: AtomicU32 = AtomicU32::new(0);

/// Nanoseconds between two looks whether everybody is at the gate.
const LOOK: u64 = 50_000;

/// A thread is about to sleep inside the memory core, until this is dropped.
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

/// Whether a thread may be picked.
#[inline]
pub fn lets(thread: &Thread) -> bool {
    !CLOSED.load(Ordering::SeqCst) || thread.passes.load(Ordering::SeqCst)
}

/// Whether CPUs should give up their threads.
#[inline]
pub fn is_wanted() -> bool {
    CLOSED.load(Ordering::SeqCst)
}

/// An idle CPU has found nothing to run: if the gate is closed it naps there, and then should look
/// for a thread that passes. Whether it did.
pub fn nap_at_gate(cpu: u32) -> bool {
    if !CLOSED.load(Ordering::SeqCst) {
        return false;
    }
    OUT.fetch_or(1 << cpu, Ordering::SeqCst);
    timer::nap();
    // In this order, and before it looks for a thread: whoever sees it at the gate before and after
    // sees in the count that it was away meanwhile.
    OUT.fetch_and(!(1 << cpu), Ordering::SeqCst);
    LEFT.fetch_add(1, Ordering::SeqCst);
    true
}

/// Whether nobody runs but the caller, and nobody is in the core.
fn is_quiet() -> bool {
    let others =
        (1u64 << (percpu::count() - 1) << 1).wrapping_sub(1) & !(1 << percpu::cpu_number());
    let are_out = || OUT.load(Ordering::SeqCst) & others == others;
    let left = LEFT.load(Ordering::SeqCst);
    // Nobody runs at either look, and nobody did between them: then nobody came to sleep in the
    // core, or went, either.
    are_out()
        && INSIDE.load(Ordering::SeqCst) == 0
        && are_out()
        && LEFT.load(Ordering::SeqCst) == left
}

/// Sleeps for a moment, whatever the thread still has to do.
pub fn nap(nanoseconds: u64) {
    let key = core::ptr::from_ref(current()) as u64;
    let deadline = Some(time::now().saturating_add(nanoseconds));
    let _ = wait::sleep(key, u32::MAX, deadline, Interruptible::No, || Ok(true));
}

/// Does something while nobody else does anything.
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
