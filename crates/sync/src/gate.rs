//! Counts operations that are inside, and waits until they have left.
//!
//! A [`WaitGroup`] counts entries, and one waiter waits until the count is 0. Use it where nothing can enter
//! any more, or where a wait may include later entries.
//!
//! A [`Gate`] has two groups, its *generations*. A wait includes all earlier entries, and a stream of later
//! ones cannot delay it forever. An entry reads the generation and then counts itself, so it may be counted
//! in a generation that has just ended. Therefore a wait ends both generations, one after the other.
//! Sleepable RCU waits in the same way (McKenney, "Sleepable RCU", 2006). Here one count serves all CPUs,
//! because an operation that enters has written other shared lines already.
//!
//! * An entry has no ordering of its own. A waiter has seen a store with release that follows the entry, and
//!   therefore sees the entry.
//! * Work inside precedes what follows the wait: release when it leaves, acquire in the wait.
//!
//! *Writes*: the count; the generation, by a wait.
//!
//! *Models*: loom `tests/loom/gate.rs`; for the users, those of `faultless-mm`, `rmap` and `object`.

use crate::atomic::{AtomicU32, Ordering};
use crate::mutant::{Mutant, mutant};
use crate::rwlock::RwLock;
use crate::wait::{Backoff, Wait};

/// Bit of a count: the waiter is parked, or about to park.
const AWAITED: u32 = 1 << 31;

/// A count of operations inside, with one waiter.
#[derive(Debug, Default)]
pub struct WaitGroup {
    count: AtomicU32,
}

impl WaitGroup {
    /// Returns an empty group.
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts an entry.
    #[inline]
    pub fn enter(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a leave. The last one wakes the waiter.
    #[inline]
    pub fn leave<W: Wait + ?Sized>(&self, machine: &W) {
        if self.is_last() {
            machine.wake(&self.count, u32::MAX);
        }
    }

    /// Counts a leave of a group that may be freed once its count is 0. Its waiter parks on `turn`, which
    /// stays.
    #[inline]
    pub fn leave_for<W: Wait + ?Sized>(&self, turn: &AtomicU32, machine: &W) {
        if self.is_last() {
            // Release: a waiter that has read the new value sees this leave.
            turn.fetch_add(1, Ordering::Release);
            machine.wake(turn, u32::MAX);
        }
    }

    /// Counts a leave. Returns whether a waiter is to be woken.
    #[inline]
    fn is_last(&self) -> bool {
        // Release: pairs with the acquire in `wait_on`.
        let before = self.count.fetch_sub(1, Ordering::Release);
        before == AWAITED | 1 && !mutant(Mutant::LastWakesNone)
    }

    /// Waits until the count is 0. One waiter at a time.
    pub fn wait<W: Wait + ?Sized>(&self, machine: &W) {
        self.wait_on(&self.count, machine);
    }

    /// The same for [`WaitGroup::leave_for`].
    pub fn wait_on<W: Wait + ?Sized>(&self, turn: &AtomicU32, machine: &W) {
        let mut backoff = Backoff::new();
        loop {
            // Acquire, both: pair with the releases of leaves. The turn is read first: a leave that has
            // changed it is then also seen in the count.
            let before = turn.load(Ordering::Acquire);
            let now = self.count.load(Ordering::Acquire);
            if now & !AWAITED == 0 {
                if now != 0 {
                    self.count.fetch_and(!AWAITED, Ordering::Relaxed);
                }
                return;
            }
            backoff.spin_or_park(machine, turn, || match now & AWAITED {
                // A later leave sees the bit, and wakes. An earlier one is found by another look at the count.
                0 => {
                    self.count.fetch_or(AWAITED, Ordering::Relaxed);
                    None
                }
                _ => Some(before),
            });
        }
    }
}

/// A gate that can be entered at any time, with a wait for earlier entries.
#[derive(Debug, Default)]
pub struct Gate {
    /// Serialises waiters: two at once would end generations that the other one waits for.
    turn: RwLock,
    generation: AtomicU32,
    inside: [WaitGroup; 2],
}

/// The generation of an entry: 0 or 1.
pub type Ticket = usize;

impl Gate {
    /// Returns a gate with nothing inside.
    #[track_caller]
    pub fn new() -> Self {
        Self {
            turn: RwLock::new(),
            generation: AtomicU32::new(0),
            inside: Default::default(),
        }
    }

    /// Enters. A wait includes this entry if its caller has seen a store with release that follows the entry.
    #[inline]
    pub fn enter(&self) -> Ticket {
        let generation = self.generation.load(Ordering::Relaxed) as Ticket % 2;
        self.inside[generation].enter();
        generation
    }

    /// Leaves, with the ticket of [`Gate::enter`].
    #[inline]
    pub fn leave<W: Wait + ?Sized>(&self, ticket: Ticket, machine: &W) {
        self.inside[ticket % 2].leave(machine);
    }

    /// Waits until all entries have left for which the caller has seen a later store ([`Gate::enter`]).
    pub fn wait<W: Wait + ?Sized>(&self, machine: &W) {
        let _turn = self.turn.write(machine);
        let generations = if mutant(Mutant::OneGenerationAwaited) {
            1
        } else {
            2
        };
        for _ in 0..generations {
            let old = self.generation.fetch_add(1, Ordering::Relaxed);
            self.inside[old as usize % 2].wait(machine);
        }
    }
}
