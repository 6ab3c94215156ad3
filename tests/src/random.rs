//! Seeds, and random numbers.

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::budget::Budget;

pub use crate::budget::seed;

/// Tests `least` values of `strategy`, or as many times more as there is time for. A failure comes with the seed
/// that makes its values the first.
pub fn cases<S: Strategy>(
    least: u64,
    strategy: &S,
    test: impl Fn(S::Value) -> Result<(), TestCaseError>,
) -> Result<(), (u64, TestError<S::Value>)> {
    let budget = Budget::new(1, "cases", Some(seed()));
    for round in budget.rounds() {
        let seed = budget.seed_of(round);
        let tested = runner(least, seed).run(strategy, &test);
        tested.map_err(|failure| (seed, failure))?;
        budget.add(least);
    }
    Ok(())
}

/// A proptest runner for `cases` cases from `seed`.
fn runner(cases: u64, seed: u64) -> TestRunner {
    let config = Config {
        cases: cases as u32,
        failure_persistence: None,
        max_shrink_iters: 20_000,
        max_shrink_time: 60_000,
        ..Config::default()
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
}

/// Random numbers for threads (SplitMix64).
#[derive(Clone, Debug)]
pub struct Numbers(pub u64);

impl Numbers {
    /// The next one.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// One below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound
    }
}
