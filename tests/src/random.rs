//! Seeds, and random numbers.

use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

/// The seed of this run: `FAULTLESS_SEED`, or else a constant in quick runs
/// and a new one each time in full runs. A failing test prints it.
pub fn seed() -> u64 {
    let given = std::env::var("FAULTLESS_SEED").ok();
    if let Some(seed) = given.and_then(|text| text.parse().ok()) {
        return seed;
    }
    if !crate::full() {
        return 1;
    }
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(1, |now| now.as_nanos() as u64)
}

/// A proptest runner for `cases` cases from `seed`.
pub fn runner(cases: u64, seed: u64) -> TestRunner {
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
