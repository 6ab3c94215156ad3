//! Synchronisation for kernels: locks, reclamation and waits that park through the machine.
//!
//! A machine says how its CPUs wait; every lock takes it:
//!
//! ```
//! use faultless_sync::atomic::AtomicU32;
//! use faultless_sync::{SpinLock, Wait};
//!
//! /// The CPUs of this machine are threads.
//! struct Threads;
//!
//! impl Wait for Threads {
//!     fn relax(&self, _turn: u32) {
//!         std::thread::yield_now();
//!     }
//!     fn park(&self, _word: &AtomicU32, _expected: u32) {
//!         std::thread::yield_now();
//!     }
//!     fn wake(&self, _word: &AtomicU32, _count: u32) {}
//! }
//!
//! let count = SpinLock::new(0);
//! std::thread::scope(|scope| {
//!     for _ in 0..4 {
//!         scope.spawn(|| *count.lock(&Threads) += 1);
//!     }
//! });
//! assert_eq!(*count.lock(&Threads), 4);
//! ```
//!
//! All other crates of Faultless use this one. Where to look:
//!
//! * [`atomic`]: the facade for all shared memory. The same source runs on the CPU's atomics, under loom, under
//!   shuttle, and with every written cache line recorded.
//! * [`fence_after_rmw`]: the full barrier of the claim-and-validate protocol.
//! * [`State`]: a word that only moves forward.
//! * [`SpinLock`] and [`RwLock`]: a lock for short critical sections, and a downgradable reader-writer lock
//!   that parks through the machine.
//! * [`Gate`] and [`WaitGroup`]: waits until earlier operations have left.
//! * [`IdleCpus`]: the CPUs that have nothing to run, and how one of them is found for work.
//! * [`RangeLock`]: exclusion of operations with overlapping ranges, first come, first served.
//! * [`prefetch_to_write`]: a hint for a line that a claim will wait for.
//! * [`reclaim`]: quiescent-state reclamation. Lock-free readers may use a retired object until they leave
//!   their section.
//!
//! Nothing here allocates, and nothing here knows a machine. A machine defines how it waits through [`Wait`],
//! and numbers its CPUs through [`Cpu`].
#![cfg_attr(not(any(loom, shuttle, record)), no_std)]

pub mod atomic;
mod cpu;
mod fence;
mod gate;
mod idle;
mod mutant;
mod order;
mod prefetch;
mod range_lock;
pub mod reclaim;
#[cfg(record)]
pub mod record;
mod rwlock;
mod spin;
mod spins;
mod state;
mod wait;

pub use cpu::{Cpu, CpuSet, MAX_CPUS};
pub use fence::fence_after_rmw;
pub use gate::{Gate, Ticket, WaitGroup};
pub use idle::{IdleCpus, TakenCpu};
pub use mutant::{Mutant, mutant};
#[cfg(any(loom, shuttle))]
pub use mutant::{is_flawed, with_flaw};
pub use order::check_park;
pub use prefetch::prefetch_to_write;
pub use range_lock::{
    BriefGuard, LockRequest, PLACES, RangeGuard, RangeLock, Set, SlotChunk, ZapGuard,
};
pub use rwlock::{ReadGuard, RwLock, WriteGuard};
pub use spin::{SpinGuard, SpinLock};
pub use spins::SpinGuards;
pub use state::{Phase, State};
pub use wait::{Backoff, Wait, cond_resched};

/// A value on cache lines of its own.
///
/// 128 bytes, because CPUs that prefetch lines in pairs make two neighbours share as if they were one. Under
/// shuttle without padding: atomics are larger there, and an address space still has to fit into a page.
#[cfg_attr(not(shuttle), repr(align(128)))]
#[derive(Debug, Default)]
pub struct Padded<T>(pub T);

impl<T> core::ops::Deref for Padded<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}
