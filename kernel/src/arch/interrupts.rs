//! The number of interrupts of each kind that each CPU has taken.

use core::sync::atomic::{AtomicU64, Ordering};

use super::percpu::{self, MAX_CPUS};
pub use super::sources::send;

/// A kind of interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Serial,
    Timer,
    Reschedule,
    Flush,
}

/// All kinds.
pub const ALL: &[Kind] = &[Kind::Serial, Kind::Timer, Kind::Reschedule, Kind::Flush];

/// A CPU's counts, on a cache line that only this CPU writes.
#[repr(align(64))]
struct Counts([AtomicU64; ALL.len()]);

static COUNTS: [Counts; MAX_CPUS] =
    [const { Counts([const { AtomicU64::new(0) }; ALL.len()]) }; MAX_CPUS];

/// Counts an interrupt of this CPU; interrupts are off.
#[inline]
pub fn add(kind: Kind) {
    let count = &COUNTS[percpu::cpu_number() as usize].0[kind as usize];
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// The number of interrupts that a CPU has taken.
pub fn count(cpu: u32, kind: Kind) -> u64 {
    COUNTS[cpu as usize].0[kind as usize].load(Ordering::Relaxed)
}
