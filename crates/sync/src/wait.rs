//! How a CPU waits: the machine's part of every lock and every claim.

use crate::atomic::AtomicU32;
use crate::order::check_park;

/// Turns of spinning before a waiter parks.
const SPIN: u32 = if cfg!(any(loom, shuttle)) { 0 } else { 64 };

/// What a machine provides so that its CPUs can wait for each other.
///
/// Every wait of the core goes through here, and every implementation answers
/// TLB shootdowns while it waits; otherwise two CPUs that wait for each other's
/// acknowledgement stand still for ever.
pub trait Wait {
    /// One turn of a wait that should be short. `turn` counts from 0: spin at
    /// first, let others run later.
    fn relax(&self, turn: u32);

    /// Answers shootdowns that have come, without waiting: called now and then in
    /// the midst of long work, which may run with interrupts off.
    #[inline]
    fn poll(&self) {}

    /// Lets somebody else have this CPU if it is his turn, as Linux's function of that name
    /// does: called between the parts of work that may be of any length, with nothing held
    /// for which anybody spins, neither claim nor spin lock, and outside read sections. The
    /// caller may be on another CPU afterwards. A machine that preempts the core anyway, or
    /// runs nothing else, does nothing. Called through [`cond_resched`].
    #[inline]
    fn cond_resched(&self) {}

    /// Sleeps while `*word == expected`; may return at any time without reason.
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

/// Lets somebody else have the CPU ([`Wait::cond_resched`]). Models of whole operations check that
/// the caller may.
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
    /// A wait that begins.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits one turn.
    pub fn turn<W: Wait + ?Sized>(&mut self, machine: &W) {
        machine.relax(self.turn);
        self.turn = self.turn.saturating_add(1);
    }

    /// Waits one turn for somebody who may have let go of his CPU ([`cond_resched`]), perhaps of this one:
    /// under the same conditions. Who waits by [`Backoff::turn`] alone keeps others from running here.
    pub fn rest<W: Wait + ?Sized>(&mut self, machine: &W) {
        self.turn(machine);
        cond_resched(machine);
    }

    /// Spins for some turns, and then parks on `word`: `announce` has said that this CPU parks, and returns the value
    /// on which it does, or `None` to look again.
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

    /// How many turns it has been.
    pub fn turns(&self) -> u32 {
        self.turn
    }
}
