//! How many seconds each long step of `./x test --full` has.
//!
//! A long step has many scenarios: a test, or a part of one, which draws random programs, schedules or addresses. Each
//! gets the same share of the step's seconds, does at least one whole round, and prints a line with what it did and its
//! seed (`crates/sync/tests/model/budget.rs`). What a step does besides takes as long as without `--full`, or is in
//! the table as *fixed*.

use std::collections::BTreeMap;
use std::thread;

/// One long step.
#[derive(Debug)]
pub struct Budget {
    /// Its name in `steps.rs`.
    pub step: &'static str,
    /// What its seconds are for.
    pub about: &'static str,
    /// Seconds for all scenarios together.
    pub seconds: u32,
    /// Seconds for everything else that the step does on two CPUs, once built.
    pub fixed: u32,
    /// The number of scenarios. A run says so if it counts others.
    pub scenarios: u32,
    /// How many run at once; 0: as many as there are CPUs.
    pub at_once: u32,
}

/// Seconds of the steps without a budget, and of building for tests what changed.
const OTHERS: u32 = 940;

/// Every step that has a budget.
pub const BUDGETS: &[Budget] = &[
    Budget {
        step: "workspace",
        about: "random programs against Linux and models, stress",
        seconds: 230,
        fixed: 90,
        scenarios: 107,
        at_once: 0,
    },
    Budget {
        step: "loom",
        about: "one more preemption in each bounded model",
        seconds: 200,
        fixed: 60,
        scenarios: 214,
        at_once: 0,
    },
    Budget {
        step: "shuttle",
        about: "random schedules of each scenario",
        seconds: 240,
        fixed: 30,
        scenarios: 117,
        at_once: 0,
    },
    Budget {
        step: "boot",
        about: "hostile system calls, with and without failing allocations",
        seconds: 100,
        fixed: 420,
        scenarios: 14,
        at_once: 2,
    },
    Budget {
        step: "stress-ng",
        about: "each stressor of memory",
        seconds: 80,
        fixed: 10,
        scenarios: 17,
        at_once: 1,
    },
    Budget {
        step: "aarch64-stress-ng",
        about: "the same on AArch64",
        seconds: 50,
        fixed: 10,
        scenarios: 17,
        at_once: 1,
    },
    Budget {
        step: "differential",
        about: "random programs in kernels with 1 and 2 CPUs",
        seconds: 90,
        fixed: 60,
        scenarios: 2,
        at_once: 1,
    },
    Budget {
        step: "differential-aarch64",
        about: "the same on AArch64",
        seconds: 40,
        fixed: 50,
        scenarios: 2,
        at_once: 1,
    },
];

/// The row of a step, if it has one.
pub fn of(step: &str) -> Option<&'static Budget> {
    BUDGETS.iter().find(|budget| budget.step == step)
}

impl Budget {
    /// The seconds of one scenario, if all together have `seconds`.
    pub fn share(&self, seconds: u32) -> f64 {
        let cpus = thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
        let at_once = if self.at_once == 0 {
            cpus
        } else {
            self.at_once
        };
        f64::from(seconds) * f64::from(at_once) / f64::from(self.scenarios)
    }

    /// What the scenarios say they did, added up over the output of the step.
    pub fn summary(&self, seconds: u32, output: &str) -> String {
        let (mut scenarios, mut amounts) = (0, BTreeMap::<_, u64>::new());
        for (amount, unit, failed) in output.lines().filter_map(done) {
            // A model with a defect has to fail, and does so soon.
            scenarios += u32::from(!failed);
            *amounts.entry(unit).or_default() += amount;
        }
        let amounts: Vec<_> = amounts
            .iter()
            .map(|(unit, amount)| format!("{amount} {unit}"))
            .collect();
        let other = match scenarios == self.scenarios {
            true => String::new(),
            false => format!(" (budgets.rs says {})", self.scenarios),
        };
        format!(
            "budget {seconds} s: {scenarios} scenarios{other}, {}",
            amounts.join(", ")
        )
    }
}

/// The 120 and `rounds` of `budget: NAME: 120 rounds in 3.0 s, FAULTLESS_SEED=1`.
///
/// And whether it failed.
fn done(line: &str) -> Option<(u64, &str, bool)> {
    let (_, rest) = line.split_once("budget: ")?;
    let (_, rest) = rest.split_once(": ")?;
    let (amount, rest) = rest.split_once(' ')?;
    let (unit, _) = rest.split_once(" in ")?;
    Some((amount.parse().ok()?, unit, rest.contains("FAILED")))
}

/// The table for the help text.
pub fn table() -> String {
    let mut text = String::new();
    for row in BUDGETS {
        text += &format!(
            "  {:<21}{:>5} s  {:>3} scenarios; besides {:>3} s   {}\n",
            row.step, row.seconds, row.scenarios, row.fixed, row.about
        );
    }
    text + &format!("  all others, and building: {OTHERS} s\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test::steps::STEPS;

    #[test]
    fn each_is_a_step() {
        for row in BUDGETS {
            assert!(STEPS.iter().any(|step| step.name == row.step), "{row:?}");
        }
    }

    #[test]
    fn everything_takes_45_minutes() {
        let all: u32 = BUDGETS.iter().map(|row| row.seconds + row.fixed).sum();
        assert!(all + OTHERS <= 45 * 60, "{all} s, and {OTHERS} s");
    }

    #[test]
    fn a_step_says_what_it_did() {
        let output = "budget: a::b: 12 rounds in 0.5 s, FAULTLESS_SEED=3\n\
                      test c ... ok\n\
                      budget: c: 7 cases in 1.0 s, FAILED, FAULTLESS_SEED=3\n\
                      budget: d::e: 30 rounds in 0.5 s\n";
        let row = of("loom").unwrap();
        let said = row.summary(9, output);
        let scenarios = format!("2 scenarios (budgets.rs says {})", row.scenarios);
        assert_eq!(said, format!("budget 9 s: {scenarios}, 7 cases, 42 rounds"));
    }
}
