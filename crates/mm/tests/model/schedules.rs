//! How whole operations are explored: in random interleavings.

use std::time::Instant;

use faultless_mm::Policy;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

/// Runs `scenario` under every policy, in `schedules` random interleavings and in
/// as many that switch at few but badly chosen moments (Burckhardt et al., "A
/// randomized scheduler with probabilistic guarantees", 2010). Of the policies whose writers take turns
/// a third as many: little happens at once there. `FAULTLESS_FULL=1` runs eight times as many under
/// all.
pub fn explore(schedules: usize, scenario: fn(Policy)) {
    explore_under(Policy::ALL, schedules, scenario);
}

/// The same under some policies.
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

/// Runs a broken model in a process of its own, and has it fail: what is broken may take memory from under
/// itself, and end by a signal. `test` is the name of the test that calls this.
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
    // It has run, and said why it ended, if it could.
    use std::os::unix::process::ExitStatusExt;
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.signal().is_some() || said.contains("1 failed"),
        "{said}"
    );
}
