//! The CPUs that have nothing to run, and how a CPU that queues work finds one of them.
//!
//! An idle CPU announces itself ([`IdleCpus::begin`]), polls the queues for a while, and then halts until an
//! interrupt ([`IdleCpus::may_halt`]). A CPU that has queued work *takes* an announced one
//! ([`IdleCpus::take`]), and interrupts it unless it polls.
//!
//! * No CPU halts beside work that it may run. Both sides write, pass a full barrier, and then read what the
//!   other side has written: an idle CPU announces itself and looks at the queues; a CPU that queues work looks
//!   for idle CPUs afterwards, even if it has done so before to choose the queue. At least one of the two
//!   sees the other.
//! * A CPU that halts is announced, or an interrupt is on its way to it. A CPU that was taken while it polled
//!   announces itself again before it halts, because the work for which it was taken may be gone.
//!
//! Interrupts are off from the call of [`IdleCpus::may_halt`] on, and the halt turns them on in the same step.
//! An interrupt that comes in between ends the halt.
//!
//! *Writes*: a word of announced CPUs, when a CPU becomes idle, is taken, or has found work; a word of polling
//! CPUs, when polling begins and ends.
//!
//! *Models*: loom `tests/loom/idle.rs`.

use crate::atomic::{AtomicU64, Ordering, fence};
use crate::cpu::Cpu;
use crate::fence_after_rmw;
use crate::mutant::{Mutant, mutant};

/// The idle CPUs among the first 64.
#[derive(Debug, Default)]
pub struct IdleCpus {
    /// A bit for each CPU that has announced that it has nothing to run, and was not taken.
    announced: AtomicU64,
    /// A bit for each idle CPU that polls the queues.
    polling: AtomicU64,
}

/// An idle CPU that was taken to run queued work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TakenCpu {
    /// Its number.
    pub cpu: Cpu,
    /// Whether it has to be interrupted, because it does not poll.
    pub needs_interrupt: bool,
}

fn bit(cpu: Cpu) -> u64 {
    1 << cpu.0
}

impl IdleCpus {
    /// Returns the state of a machine in which no CPU is idle.
    #[cfg(not(any(loom, shuttle)))]
    pub const fn new() -> Self {
        Self {
            announced: AtomicU64::new(0),
            polling: AtomicU64::new(0),
        }
    }

    /// Announces that this CPU has nothing to run.
    pub fn begin(&self, cpu: Cpu) {
        self.announced.fetch_or(bit(cpu), Ordering::Relaxed);
    }

    /// Announces that this CPU polls the queues, and need not be interrupted.
    pub fn begin_polling(&self, cpu: Cpu) {
        self.polling.fetch_or(bit(cpu), Ordering::Relaxed);
    }

    /// Ends polling. Returns whether this CPU may halt: it was not taken, and `finds_work`, which looks at the
    /// queues, finds none.
    pub fn may_halt(&self, cpu: Cpu, finds_work: impl FnOnce() -> bool) -> bool {
        self.polling.fetch_and(!bit(cpu), Ordering::Relaxed);
        // Partner: the fences of `take_from` and `is_polling`, which follow the store that queues work. A CPU
        // with the earlier fence is seen by the other: its announcement and the end of polling here, the work
        // and the taking there.
        if !mutant(Mutant::HaltWithoutFence) {
            fence_after_rmw();
        }
        let was_taken = self.announced.load(Ordering::Relaxed) & bit(cpu) == 0;
        (!was_taken || mutant(Mutant::HaltThoughTaken)) && !finds_work()
    }

    /// Ends the announcement of this CPU, which has halted or has found work.
    pub fn end(&self, cpu: Cpu) {
        self.announced.fetch_and(!bit(cpu), Ordering::Relaxed);
    }

    /// Returns the announced CPUs: a hint for the choice of a queue.
    #[inline]
    pub fn announced(&self) -> u64 {
        self.announced.load(Ordering::Relaxed)
    }

    /// Takes an idle CPU among those of `allowed`, if there is one. Called after work was seen in a queue that
    /// they may run. `allowed` is not called if no CPU is idle.
    pub fn take(&self, allowed: impl FnOnce() -> u64) -> Option<TakenCpu> {
        self.take_from(allowed, 0)
    }

    /// The same after work was put into the queue of `owner`. None is taken if `owner` itself is announced,
    /// because it looks at its queue before it halts.
    pub fn take_for(&self, owner: Cpu, allowed: u64) -> Option<TakenCpu> {
        self.take_from(|| allowed, bit(owner))
    }

    fn take_from(&self, allowed: impl FnOnce() -> u64, unless: u64) -> Option<TakenCpu> {
        // Partner: the fence of `may_halt`. Before it the work was queued, or was seen in a queue.
        if !mutant(Mutant::QueuedWithoutFence) {
            fence(Ordering::SeqCst);
        }
        if self.announced() == 0 {
            return None;
        }
        let allowed = allowed();
        loop {
            let announced = self.announced();
            let candidates = announced & allowed;
            if announced & unless != 0 || candidates == 0 {
                return None;
            }
            let cpu = Cpu(candidates.trailing_zeros());
            let before = self.announced.fetch_and(!bit(cpu), Ordering::Relaxed);
            if before & bit(cpu) == 0 {
                // Another CPU has taken it, or it has found work.
                continue;
            }
            fence_after_rmw();
            return Some(TakenCpu {
                cpu,
                needs_interrupt: !self.polls(cpu),
            });
        }
    }

    /// Whether a CPU polls the queues, and so sees work that was queued before this call.
    pub fn is_polling(&self, cpu: Cpu) -> bool {
        // Partner: the fence of `may_halt`.
        if !mutant(Mutant::QueuedWithoutFence) {
            fence(Ordering::SeqCst);
        }
        self.polls(cpu)
    }

    fn polls(&self, cpu: Cpu) -> bool {
        self.polling.load(Ordering::Relaxed) & bit(cpu) != 0
    }
}
