//! `faultless stat`: a program's counters in the manner of `perf stat`.

use std::process::ExitCode;

use anyhow::{Context as _, Result};
use faultless_trace::Counter;

use super::program;
use super::progress::Progress;
use crate::args::{PolicyChoice, StatArguments};
use crate::machine::watch::Watch;
use crate::machine::{End, Outcome, Request};
use crate::plan::{self, Urgency};
use crate::report::{Destination, Run, RunFile, stat_table};
use crate::show::Sink;
use crate::{interrupt, latencies, select};

/// The names that can be chosen: counters and latencies.
fn names() -> Vec<String> {
    let mut names: Vec<String> = Counter::ALL
        .iter()
        .map(|counter| counter.name().to_owned())
        .collect();
    for name in latencies::names() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Runs the program under each policy, and shows the runs side by side.
pub fn command(arguments: &StatArguments) -> Result<ExitCode> {
    let names = names();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    if arguments.list {
        let _ = Sink::Stdout.write(format!("{}\n", names.join("\n")).as_bytes());
        return Ok(ExitCode::SUCCESS);
    }
    let chosen = select::choose(&arguments.events, &names, "event")?;
    let chosen: Vec<&str> = chosen.iter().map(|&place| names[place]).collect();
    if let Some(json) = &arguments.json {
        json.check()?;
    }
    program::check(&arguments.on, &arguments.program.words)?;
    let kind = arguments.on.kind();
    let machine = kind.machine();
    let requests: Vec<Request> = PolicyChoice::policies(&arguments.policy)
        .into_iter()
        .map(|policy| {
            let stdout = match arguments.json {
                Some(Destination::Stdout) => Sink::Stderr,
                _ => Sink::Stdout,
            };
            program::request(&arguments.on, &arguments.program.words, policy, stdout)
        })
        .collect::<Result<_>>()?;
    let first = requests.first().context("no policy")?;
    let needs = machine.check(first)?;
    if let Some(answer) = plan::answer(&needs, Urgency::Required) {
        return Ok(answer);
    }
    interrupt::install()?;
    let mut results: Vec<(Request, Outcome)> = Vec::new();
    for request in requests {
        let outcome = {
            let _progress = Progress::start(format!(
                "{} under {} on the {} machine, {} CPUs",
                request.program[0].display(),
                request.policy.name(),
                kind.name(),
                request.cpus
            ));
            machine.watch(&request, Watch::latencies())?
        };
        let goes_on = matches!(outcome.end, End::Exited(_) | End::Signalled(_));
        results.push((request, outcome));
        if !goes_on {
            break;
        }
    }
    let has_run = |(_, outcome): &&(Request, Outcome)| {
        !matches!(outcome.end, End::Failed(_) | End::Refused(_))
    };
    let shown: Vec<_> = results.iter().filter(has_run).collect();
    if !shown.is_empty() {
        // A closed stderr is no error.
        let _ = Sink::Stderr.write(stat_table::of(&shown, &chosen).as_bytes());
    }
    if let Some(json) = &arguments.json {
        let run = |(request, outcome): &(Request, Outcome)| Run::new(kind, request, outcome);
        json.write(&RunFile::new(results.iter().map(run).collect()))?;
    }
    let statuses = results
        .iter()
        .map(|(_, outcome)| program::status(&outcome.end, arguments.on.resources.timeout));
    // Every run prints its line; the first status that is not 0 counts.
    let statuses: Vec<u8> = statuses.collect();
    let status = statuses.into_iter().find(|&status| status != 0);
    Ok(ExitCode::from(status.unwrap_or(0)))
}
