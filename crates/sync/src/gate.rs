//! Waiting until what was inside has left.
//!
//! A [`WaitGroup`] counts what is inside, and one waiter waits until that is nothing. It is right where nothing can
//! enter any more, or where a wait may take in what enters meanwhile.
//!
//! A [`Gate`] has two groups, its *generations*, so that a wait takes in what had entered before it and never what
//! enters later, however much that is. An entry reads the generation and then counts itself: it may be counted in a
//! generation that has just ended. So a wait ends both, one after the other. This is how sleepable RCU waits
//! (McKenney, "Sleepable RCU", 2006), with one count for all CPUs: who enters has written other shared lines
//! already.
//!
//! * An entry has no order of its own: a waiter has seen something that was stored, with release, after the entry,
//!   and so sees the entry.
//! * What was done inside comes before what follows the wait: release when it leaves, acquire in the wait.
//!
//! *Writes*: the count; the generation, by a wait.
//!
//! *Models*: loom `tests/loom/gate.rs`; of their users those of `faultless-mm`, `rmap` and `object`.

use crate::atomic::{AtomicU32, Ordering};
use crate::mutant::{Mutant, mutant};
use crate::rwlock::RwLock;
use crate::wait::{Backoff, Wait};

/// In a count: the waiter is parked, or about to be.
const AWAITED: u32 = 1 << 31;

/// A count of what is inside, and one waiter for it.
#[derive(Debug, Default)]
pub struct WaitGroup {
    count: AtomicU32,
}

impl WaitGroup {
    /// An empty group.
    pub fn new() -> Self {
        Self::default()
    }

    /// One more is inside.
    #[inline]
    pub fn enter(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// One has left; the last wakes the waiter.
    #[inline]
    pub fn leave<W: Wait + ?Sized>(&self, machine: &W) {
        if self.is_last() {
            machine.wake(&self.count, u32::MAX);
        }
    }

    /// One has left a group that may be gone once nothing is inside: its waiter parks on `turn`, which stays.
    #[inline]
    pub fn leave_for<W: Wait + ?Sized>(&self, turn: &AtomicU32, machine: &W) {
        if self.is_last() {
            // Release: a waiter that has read the new value sees that this one is out.
            turn.fetch_add(1, Ordering::Release);
            machine.wake(turn, u32::MAX);
        }
    }

    /// Leaves; whether a waiter is to be woken.
    #[inline]
    fn is_last(&self) -> bool {
        // Release: pairs with the acquire in `wait_on`.
        let before = self.count.fetch_sub(1, Ordering::Release);
        before == AWAITED | 1 && !mutant(Mutant::LastWakesNobody)
    }

    /// Waits until nothing is inside. One waiter at a time.
    pub fn wait<W: Wait + ?Sized>(&self, machine: &W) {
        self.wait_on(&self.count, machine);
    }

    /// The same for [`WaitGroup::leave_for`].
    pub fn wait_on<W: Wait + ?Sized>(&self, turn: &AtomicU32, machine: &W) {
        let mut backoff = Backoff::new();
        loop {
            // Acquire, both: of the releases of what leaves. The turn first: what changes it is out then.
            let before = turn.load(Ordering::Acquire);
            let now = self.count.load(Ordering::Acquire);
            if now & !AWAITED == 0 {
                if now != 0 {
                    self.count.fetch_and(!AWAITED, Ordering::Relaxed);
                }
                return;
            }
            backoff.spin_or_park(machine, turn, || match now & AWAITED {
                // To be seen by what leaves before this parks: looked at again.
                0 => {
                    self.count.fetch_or(AWAITED, Ordering::Relaxed);
                    None
                }
                _ => Some(before),
            });
        }
    }
}

/// A gate that lets in at any time, and waits for what had entered before.
#[derive(Debug, Default)]
pub struct Gate {
    /// Waiters take turns: two would end generations that the other waits for.
    turn: RwLock,
    generation: AtomicU32,
    inside: [WaitGroup; 2],
}

/// In which generation something has entered: 0 or 1.
pub type Ticket = usize;

impl Gate {
    /// One that nothing has entered.
    #[track_caller]
    pub fn new() -> Self {
        Self {
            turn: RwLock::new(),
            generation: AtomicU32::new(0),
            inside: Default::default(),
        }
    }

    /// Enters. What is stored with release from now on shows it to whoever waits afterwards.
    #[inline]
    pub fn enter(&self) -> Ticket {
        let generation = self.generation.load(Ordering::Relaxed) as Ticket % 2;
        self.inside[generation].enter();
        generation
    }

    /// Leaves, with what [`Gate::enter`] has said.
    #[inline]
    pub fn leave<W: Wait + ?Sized>(&self, ticket: Ticket, machine: &W) {
        self.inside[ticket % 2].leave(machine);
    }

    /// Waits until everything has left that had entered when the caller saw what was stored after it.
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
