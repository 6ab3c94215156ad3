//! `./x test`: every check of the project, as a list of steps.
//!
//! The list is in `steps.rs`. A step that cannot run has failed: nothing is skipped silently.
//! Progress goes to stderr; a line for each step and the total go to stdout.

mod count;
mod record;
mod rooms;
mod run;
mod steps;

use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Instant;

use crate::layout::Layout;
use crate::refusal::Refusal;
use count::Count;
use steps::{STEPS, Step};

const TEXT: &str = "\
Run the tests.

Usage: ./x test [--full [--again]] [NAME...]

Arguments:
  NAME     Run these steps only

Options:
  --full   Longer variants: more schedules, more random cases, longer stress. Steps that have passed in this
           form on the same sources are left out, and named
  --again  With --full: leave nothing out
  --list   List the steps
  --help   Show this text

The last line on stdout is 'N passed, M failed', counted in tests; the exit status is 0 when none
failed, and 1 otherwise. The whole output of a step is kept in .faultless/log/.

Examples:
  ./x test
  ./x test clippy boot
  ./x test --full loom
";

/// `./x test`.
pub fn command(layout: &Layout, arguments: &[OsString]) -> Result<ExitCode, Refusal> {
    let (mut full, mut again) = (false, false);
    let mut names = Vec::new();
    for argument in arguments {
        match argument.to_str().unwrap_or_default() {
            "--help" | "-h" => return Ok(say(TEXT)),
            "--list" => return Ok(say(&list())),
            "--full" => full = true,
            "--again" => again = true,
            name => names.push(find(name)?),
        }
    }
    if again && !full {
        return Err(Refusal::new(
            "--again goes with --full, which alone leaves steps out".to_owned(),
        ));
    }
    let chosen = if names.is_empty() {
        let wanted = |step: &&Step| full || !step.is_for_full();
        STEPS.iter().filter(wanted).collect()
    } else {
        names
    };
    Ok(all(layout, &chosen, full, again))
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
        .map(|step| format!("{:<15} {}\n", step.name, step.about))
        .collect()
}

fn say(text: &str) -> ExitCode {
    print!("{text}");
    ExitCode::SUCCESS
}

/// Runs the steps one after the other, each to its end even if others fail.
fn all(layout: &Layout, steps: &[&Step], full: bool, again: bool) -> ExitCode {
    let start = Instant::now();
    let mut total = Count::default();
    let mut left_out = 0;
    for step in steps {
        // Without a hash no step is skipped, and none recorded.
        let hash = record::hash(layout, step, full).ok();
        let before = hash.and_then(|hash| record::passed(layout, step, hash));
        if let Some(passed) = before.filter(|_| full && !again) {
            println!(
                "{:<15} {:<6} {passed:>5} passed before, on the same sources (--again runs it)",
                step.name, "-"
            );
            left_out += 1;
            continue;
        }
        let begun = Instant::now();
        let count = run::step(layout, step, full);
        if let Some(hash) = hash {
            record::write(layout, step, hash, count);
        }
        let verdict = if count.failed == 0 { "ok" } else { "FAILED" };
        let seconds = begun.elapsed().as_secs_f64();
        println!(
            "{:<15} {verdict:<6} {:>5} passed {:>4} failed {seconds:>7.1} s",
            step.name, count.passed, count.failed
        );
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
