//! How long a scenario of a test goes on: a fixed number of rounds, or for a share of its step's budget.
//!
//! `./x test --full` gives each long step a number of seconds (`xtask/src/test/budgets.rs`), and each scenario its
//! share of them in `FAULTLESS_SECONDS`. Other crates use this file too.
//!
//! - A scenario always does its quick form, which is at least one whole round.
//! - It begins another round only if the time left is enough for a round as long as the mean of those before.
//! - At its end, also by a panic, it prints how much it did, and the seed. `./x test` adds these lines up.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Whether the long variants were requested (`./x test --full`).
pub fn full() -> bool {
    std::env::var_os("FAULTLESS_FULL").is_some_and(|v| v != "0")
}

/// The time of one scenario in the long form, if that was requested.
pub fn share() -> Option<Duration> {
    let seconds = std::env::var("FAULTLESS_SECONDS").ok()?;
    Duration::try_from_secs_f64(seconds.parse().ok()?).ok()
}

/// The seed of this run: `FAULTLESS_SEED`, or else a constant in quick runs and a new one each time in full
/// runs.
pub fn seed() -> u64 {
    let given = std::env::var("FAULTLESS_SEED").ok();
    if let Some(seed) = given.and_then(|text| text.parse().ok()) {
        return seed;
    }
    match full() {
        true => clock(),
        false => 1,
    }
}

/// A seed from the clock, the same in the whole process.
pub fn clock() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    let now = || SystemTime::now().duration_since(UNIX_EPOCH);
    *SEED.get_or_init(|| now().map_or(1, |now| now.as_nanos() as u64))
}

/// What one scenario may use, and has done.
#[derive(Debug)]
pub struct Budget {
    least: u64,
    unit: &'static str,
    share: Option<Duration>,
    start: Instant,
    done: AtomicU64,
    amount: AtomicU64,
    seed: Option<u64>,
    /// What was added to the seed for the present round.
    turn: AtomicU64,
}

impl Budget {
    /// `least` rounds, or as many more as there is time for, drawn from `seed`. A scenario without random numbers
    /// has none.
    pub fn new(least: u64, unit: &'static str, seed: Option<u64>) -> Self {
        Budget {
            least,
            unit,
            share: share(),
            start: Instant::now(),
            done: AtomicU64::new(0),
            amount: AtomicU64::new(0),
            seed,
            turn: AtomicU64::new(0),
        }
    }

    /// The seed of a round that has one of its own. If the round fails, this is the seed that is printed.
    pub fn seed_of(&self, round: u64) -> u64 {
        self.turn.store(round, Relaxed);
        self.seed.unwrap_or(0).wrapping_add(round)
    }

    /// The number of rounds in the quick form.
    pub fn least(&self) -> u64 {
        self.least
    }

    /// Rounds that were begun.
    pub fn done(&self) -> u64 {
        self.done.load(Relaxed)
    }

    /// Whether a thread that has done `done` rounds begins another.
    pub fn goes_on(&self, done: u64) -> bool {
        let goes_on = done < self.least
            || self.share.is_some_and(|share| {
                let elapsed = self.start.elapsed();
                elapsed + elapsed.div_f64(done.max(1) as f64) <= share
            });
        if goes_on {
            self.done.fetch_max(done + 1, Relaxed);
        }
        goes_on
    }

    /// The numbers of the rounds, from 0. Several threads may each count for themselves.
    pub fn rounds(&self) -> impl Iterator<Item = u64> {
        (0..).take_while(|&done| self.goes_on(done))
    }

    /// Adds to the amount that is printed, if that is not the number of rounds.
    pub fn add(&self, amount: u64) {
        self.amount.fetch_add(amount, Relaxed);
    }

    /// The time that is left of the share.
    pub fn left(&self) -> Duration {
        let share = self.share.unwrap_or_default();
        share.saturating_sub(self.start.elapsed())
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        let thread = std::thread::current();
        let (failed, turn) = match std::thread::panicking() {
            true => (", FAILED", self.turn.load(Relaxed)),
            false => ("", 0),
        };
        let amount = match self.amount.load(Relaxed) {
            0 => self.done(),
            amount => amount,
        };
        let seed = self.seed.map(|seed| seed.wrapping_add(turn));
        let seed = seed.map_or(String::new(), |seed| format!(", FAULTLESS_SEED={seed}"));
        println!(
            "budget: {}: {amount} {} in {:.1} s{failed}{seed}",
            thread.name().unwrap_or("a thread"),
            self.unit,
            self.start.elapsed().as_secs_f64(),
        );
    }
}
