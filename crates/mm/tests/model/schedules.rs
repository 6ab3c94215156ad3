//! Explores whole operations in random interleavings.

use std::time::Instant;

use faultless_mm::Policy;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

/// Runs `scenario` under every policy, with two shuttle schedulers: `schedules` random interleavings, and as
/// many that switch at few but badly chosen moments (Burckhardt et al., "A randomized scheduler with
/// probabilistic guarantees", 2010). Policies that serialise writers get a third as many, because little
/// overlaps there. `FAULTLESS_FULL=1` runs eight times as many under all policies.
pub fn explore(schedules: usize, scenario: fn(Policy)) {
    explore_under(Policy::ALL, schedules, scenario);
}

/// Like `explore`, under the given policies.
pub fn explore_under(policies: &[Policy], schedules: usize, scenario: fn(Policy)) {
    let full = std::env::var_os("FAULTLESS_FULL").is_some_and(|v| v != "0");
    let (start, mut count) = (Instant::now(), 0);
    for &policy in policies {
        let schedules = match policy {
            _ if full => 8 * schedules,
            Policy::Speculative => schedules,
            _ => schedules.div_ceil(3),
        };
        count += 2 * schedules;
        let config = || {
            let mut config = Config::default();
            config.stack_size = 1 << 17;
            config
        };
        Runner::new(RandomScheduler::new(schedules), config()).run(move || scenario(policy));
        Runner::new(PctScheduler::new(3, schedules), config()).run(move || scenario(policy));
    }
    // Shown by `--nocapture`.
    println!("{count} schedules in {:.1?}", start.elapsed());
}

/// Runs a broken model in a process of its own and expects it to fail. A broken model may corrupt its own
/// memory and end by a signal. `test` is the name of the calling test.
pub fn fails(test: &str, model: impl FnOnce()) {
    if std::env::var_os(test).is_some() {
        return model();
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--nocapture"])
        .env(test, "1")
        .output()
        .unwrap();
    assert!(!output.status.success(), "the model did not notice");
    // The model has run and printed why it failed, if it could.
    use std::os::unix::process::ExitStatusExt;
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.signal().is_some() || said.contains("1 failed"),
        "{said}"
    );
}
