//! How a CPU waits: the part of every lock and every claim that the machine provides.

use crate::atomic::AtomicU32;
use crate::order::check_park;

/// Turns of spinning before a waiter parks.
const SPIN: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 64 };

/// The operations by which a machine's CPUs wait for each other.
///
/// Every wait of the core uses them, and every implementation answers TLB shootdowns while it waits.
/// Otherwise two CPUs that wait for each other's acknowledgement deadlock.
pub trait Wait {
    /// Waits one turn of a wait that should be short. `turn` counts from 0: an implementation spins at first,
    /// and may pause or let other threads run later.
    fn relax(&self, turn: u32);

    /// Answers pending shootdowns without waiting. Called from time to time during long work, which may run
    /// with interrupts off.
    #[inline]
    fn poll(&self) {}

    /// Yields if a reschedule is pending, like Linux's function of that name. Called between the parts of
    /// work that may be of any length, outside read sections, with no claim and no spin lock held. The caller
    /// may be on another CPU afterwards. A machine that preempts the core anyway, or runs nothing else, does
    /// nothing. Called through [`cond_resched`].
    #[inline]
    fn cond_resched(&self) {}

    /// Sleeps while `*word == expected`; may return spuriously.
    fn park(&self, word: &AtomicU32, expected: u32);

    /// Wakes up to `count` CPUs or threads that are parked on `word`.
    fn wake(&self, word: &AtomicU32, count: u32);
}

impl<W: Wait + ?Sized> Wait for &W {
    fn relax(&self, turn: u32) {
        (**self).relax(turn);
    }
    fn poll(&self) {
        (**self).poll();
    }
    fn cond_resched(&self) {
        (**self).cond_resched();
    }
    fn park(&self, word: &AtomicU32, expected: u32) {
        (**self).park(word, expected);
    }
    fn wake(&self, word: &AtomicU32, count: u32) {
        (**self).wake(word, count);
    }
}

/// Yields if a reschedule is pending ([`Wait::cond_resched`]). Models of whole operations check that the
/// caller may.
#[inline]
pub fn cond_resched<W: Wait + ?Sized>(machine: &W) {
    check_park();
    machine.cond_resched();
}

/// Counts the turns of one wait.
#[derive(Debug, Default)]
pub struct Backoff {
    turn: u32,
}

impl Backoff {
    /// Begins a wait.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits one turn.
    pub fn turn<W: Wait + ?Sized>(&mut self, machine: &W) {
        machine.relax(self.turn);
        self.turn = self.turn.saturating_add(1);
    }

    /// Waits one turn for a thread that may have yielded ([`cond_resched`]), perhaps on this CPU. The caller
    /// may yield, too, under the same conditions. With [`Backoff::turn`] alone that thread could not run
    /// here.
    pub fn rest<W: Wait + ?Sized>(&mut self, machine: &W) {
        self.turn(machine);
        cond_resched(machine);
    }

    /// Spins for some turns, and then parks on `word`. `announce` records that this CPU parks, and returns
    /// the value to park on, or `None` to look again.
    #[allow(clippy::absurd_extreme_comparisons, reason = "models do not spin")]
    pub fn spin_or_park<W: Wait + ?Sized>(
        &mut self,
        machine: &W,
        word: &AtomicU32,
        announce: impl FnOnce() -> Option<u32>,
    ) {
        if self.turn < SPIN {
            self.turn(machine);
        } else if let Some(expected) = announce() {
            check_park();
            machine.park(word, expected);
        }
    }

    /// Returns the number of turns so far.
    pub fn turns(&self) -> u32 {
        self.turn
    }
}
