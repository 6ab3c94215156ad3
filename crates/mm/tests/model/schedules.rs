//! Explores whole operations in random interleavings.

use faultless_mm::Policy;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner};

#[allow(dead_code)]
#[path = "../../../sync/tests/model/budget.rs"]
mod budget;

use budget::Budget;

/// Runs `scenario` under every policy, with two shuttle schedulers: `schedules` random interleavings, and as
/// many that switch at few but badly chosen moments (Burckhardt et al., "A randomized scheduler with
/// probabilistic guarantees", 2010). Policies that serialise writers get a third as many, because little
/// overlaps there. That is one round; `./x test --full` runs as many as fit into the scenario's share of the budget.
pub fn explore(schedules: usize, scenario: fn(Policy)) {
    explore_under(Policy::ALL, schedules, scenario);
}

/// Like `explore`, under the given policies.
pub fn explore_under(policies: &[Policy], schedules: usize, scenario: fn(Policy)) {
    let given = std::env::var_os("FAULTLESS_SEED").is_some();
    let first = if given {
        budget::seed()
    } else {
        budget::clock()
    };
    let budget = Budget::new(1, "schedules", Some(first));
    for round in budget.rounds() {
        let seed = budget.seed_of(round);
        for &policy in policies {
            let schedules = match policy {
                Policy::Speculative => schedules,
                _ => schedules.div_ceil(3),
            };
            let config = || {
                let mut config = Config::default();
                config.stack_size = 1 << 17;
                config
            };
            let random = RandomScheduler::new_from_seed(seed, schedules);
            Runner::new(random, config()).run(move || scenario(policy));
            let few = PctScheduler::new_from_seed(seed, 3, schedules);
            Runner::new(few, config()).run(move || scenario(policy));
            budget.add(2 * schedules as u64);
        }
    }
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
