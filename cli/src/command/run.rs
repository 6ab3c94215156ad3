//! `faultless run`.

use std::process::ExitCode;

use anyhow::Result;
use faultless_trace::Counter;

use super::{demonstration, program};
use crate::args::RunArguments;
use crate::interrupt;
use crate::machine::{End, Outcome, Policy, Request};
use crate::plan::{self, Urgency};
use crate::report::{Destination, Run, RunFile};
use crate::show::Sink;

/// Runs a program, or the demonstration, and passes on how it ended.
pub fn command(arguments: &RunArguments) -> Result<ExitCode> {
    if let Some(json) = &arguments.json {
        json.check()?;
    }
    program::check(&arguments.on, &arguments.program.words)?;
    if arguments.program.words.is_empty() {
        return demonstration::command(arguments);
    }
    let kind = arguments.on.kind();
    let machine = kind.machine();
    let request = request(arguments)?;
    let needs = machine.check(&request)?;
    if let Some(answer) = plan::answer(&needs, Urgency::Required) {
        return Ok(answer);
    }
    interrupt::install()?;
    let outcome = machine.run(&request)?;
    if !matches!(outcome.end, End::Failed(_) | End::Refused(_)) {
        summarise(&request, &outcome);
    }
    if let Some(json) = &arguments.json {
        json.write(&RunFile::new(vec![Run::new(kind, &request, &outcome)]))?;
    }
    Ok(program::pass_on(
        &outcome.end,
        arguments.on.resources.timeout,
    ))
}

fn request(arguments: &RunArguments) -> Result<Request> {
    let stdout = match arguments.json {
        Some(Destination::Stdout) => Sink::Stderr,
        _ => Sink::Stdout,
    };
    let policy = arguments.policy.unwrap_or(Policy::Speculative);
    program::request(&arguments.on, &arguments.program.words, policy, stdout)
}

/// One line about what the run cost.
fn summarise(request: &Request, outcome: &Outcome) {
    let faults = outcome.counters.get(Counter::Faults);
    let share = outcome.counters.share_speculative();
    let share = share.map_or_else(String::new, |share| format!(", {:.2} % spf", share * 100.0));
    eprintln!(
        "faultless: {}, {} CPUs, {:.2} s: {faults} faults{share}",
        request.policy.name(),
        request.cpus,
        outcome.seconds
    );
    if let Some(verified) = &outcome.verified {
        eprintln!("faultless: {}", verified.line());
    }
}
