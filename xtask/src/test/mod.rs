//! `./x test`: every check of the project, as a list of steps.
//!
//! The list is in `steps.rs`. A step that cannot run has failed: nothing is skipped silently.
//! Progress goes to stderr; a line for each step and the total go to stdout.

mod budgets;
mod count;
mod packed;
mod record;
mod rooms;
mod run;
mod steps;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Instant;

use crate::layout::Layout;
use crate::refusal::Refusal;
use budgets::Budget;
use count::Count;
use steps::{STEPS, Step};

const TEXT: &str = "\
Run the tests.

Usage: ./x test [--full [--again] [--budget STEP=SECONDS]...] [NAME...]

Arguments:
  NAME     Run these steps only

Options:
  --full   Longer variants: more schedules, more random cases, longer stress, each within a budget of seconds.
           Steps that have passed in this form on the same sources are left out, and named
  --again  With --full: leave nothing out
  --budget STEP=SECONDS
           With --full: give this step more, or fewer, seconds than the table says
  --list   List the steps
  --help   Show this text

The last line on stdout is 'N passed, M failed', counted in tests; the exit status is 0 when none
failed, and 1 otherwise. The whole output of a step is kept in .faultless/log/.

Budgets of --full, and what the steps need besides on two CPUs, once built:
{BUDGETS}
A step shares its seconds among its scenarios; each does at least one whole round, and says in the log how much it
did and with which seed. FAULTLESS_SEED=N in front of the command repeats it. All of --full takes up to 45 minutes.

Examples:
  ./x test
  ./x test clippy boot
  ./x test --full loom
  ./x test --full --budget shuttle=3600 shuttle
";

/// What is wanted beside the steps.
struct Wish {
    full: bool,
    again: bool,
    /// Seconds of steps, in place of those of the table.
    budgets: Vec<(&'static str, u32)>,
}

impl Wish {
    /// The budget of a step and its seconds, in the long form.
    fn budget(&self, step: &Step) -> Option<(&'static Budget, u32)> {
        let row = budgets::of(step.name).filter(|_| self.full)?;
        let given = self.budgets.iter().rfind(|(name, _)| *name == row.step);
        Some((row, given.map_or(row.seconds, |(_, seconds)| *seconds)))
    }
}

/// `./x test`.
pub fn command(layout: &Layout, arguments: &[OsString]) -> Result<ExitCode, Refusal> {
    let mut wish = Wish {
        full: false,
        again: false,
        budgets: Vec::new(),
    };
    let mut names = Vec::new();
    let mut arguments = arguments.iter();
    while let Some(argument) = arguments.next() {
        match argument.to_str().unwrap_or_default() {
            "--help" | "-h" => return Ok(say(&TEXT.replace("{BUDGETS}\n", &budgets::table()))),
            "--list" => return Ok(say(&list())),
            "--full" => wish.full = true,
            "--again" => wish.again = true,
            "--budget" => {
                let value = arguments.next().and_then(|value| value.to_str());
                wish.budgets.push(budget(value.unwrap_or_default())?);
            }
            name => names.push(find(name)?),
        }
    }
    if (wish.again || !wish.budgets.is_empty()) && !wish.full {
        return Err(Refusal::new(
            "--again and --budget go with --full".to_owned(),
        ));
    }
    let chosen = if names.is_empty() {
        let wanted = |step: &&Step| wish.full || !step.is_for_full();
        STEPS.iter().filter(wanted).collect()
    } else {
        names
    };
    Ok(all(layout, &chosen, &wish))
}

/// The step and the seconds of `STEP=SECONDS`.
fn budget(text: &str) -> Result<(&'static str, u32), Refusal> {
    let (name, seconds) = text.split_once('=').unwrap_or_default();
    let row = budgets::of(name);
    match (row, seconds.parse()) {
        (Some(row), Ok(seconds)) => Ok((row.step, seconds)),
        _ => Err(Refusal::new(format!(
            "--budget {text}: not STEP=SECONDS with a step that has a budget: ./x test --help names them"
        ))),
    }
}

fn find(name: &str) -> Result<&'static Step, Refusal> {
    STEPS.iter().find(|step| step.name == name).ok_or_else(|| {
        Refusal::new(format!(
            "there is no test step '{name}': ./x test --list names them"
        ))
    })
}

fn list() -> String {
    STEPS
        .iter()
        .map(|step| format!("{:<20} {}\n", step.name, step.about))
        .collect()
}

fn say(text: &str) -> ExitCode {
    print!("{text}");
    ExitCode::SUCCESS
}

/// Runs the steps one after the other, each to its end even if others fail.
fn all(layout: &Layout, steps: &[&Step], wish: &Wish) -> ExitCode {
    let start = Instant::now();
    let mut total = Count::default();
    let mut left_out = 0;
    for step in steps {
        // Without a hash no step is skipped, and none recorded.
        let budget = wish.budget(step);
        let seconds = budget.map(|(_, seconds)| seconds);
        let hash = record::hash(layout, step, wish.full, seconds).ok();
        let before = hash.and_then(|hash| record::passed(layout, step, hash));
        if let Some(passed) = before.filter(|_| wish.full && !wish.again) {
            println!(
                "{:<20} {:<6} {passed:>5} passed before, on the same sources (--again runs it)",
                step.name, "-"
            );
            left_out += 1;
            continue;
        }
        let begun = Instant::now();
        let (count, did) = run::step(layout, step, wish.full, budget);
        if let Some(hash) = hash {
            record::write(layout, step, hash, count);
        }
        let verdict = if count.failed == 0 { "ok" } else { "FAILED" };
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "{:<20} {verdict:<6} {:>5} passed {:>4} failed {seconds:>7.1} s",
            step.name, count.passed, count.failed
        );
        if let Some(did) = did {
            println!("{:<20} {did}", "");
        }
        total += count;
    }
    println!("total time {:.1} s", start.elapsed().as_secs_f64());
    if left_out > 0 {
        println!("{left_out} steps left out");
    }
    println!("{} passed, {} failed", total.passed, total.failed);
    if total.failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
