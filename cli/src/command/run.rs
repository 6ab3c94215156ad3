//! `faultless run`.

use std::ffi::OsStr;
use std::process::ExitCode;

use anyhow::{Result, bail};
use faultless_trace::Counter;

use super::demonstration;
use crate::args::RunArguments;
use crate::machine::{Accel, End, Files, MachineKind, Outcome, Policy, Request};
use crate::plan::{self, Urgency};
use crate::report::{Destination, Run, RunFile};
use crate::show::Sink;
use crate::{interrupt, refusal};

/// Runs a program, or the demonstration, and passes on how it ended.
pub fn command(arguments: &RunArguments) -> Result<ExitCode> {
    if let Some(json) = &arguments.json {
        json.check()?;
    }
    if arguments.machine == Some(MachineKind::Soft) && arguments.accel.is_some() {
        bail!("--accel is for the kernel: the soft machine runs on host threads");
    }
    if arguments.machine == Some(MachineKind::Soft)
        && (arguments.root.is_some() || !arguments.files.is_empty())
    {
        bail!("--file and --root are for the kernel: the soft machine has no files");
    }
    if let Some(word) = arguments
        .program
        .first()
        .filter(|word| begins_with_dash(word))
    {
        bail!(
            "unexpected argument '{}': ./x run --help lists the options",
            word.display()
        );
    }
    if arguments.program.is_empty() {
        return demonstration::command(arguments);
    }
    let kind = arguments.machine.unwrap_or(MachineKind::Kernel);
    let machine = kind.machine();
    let request = request(arguments);
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
    Ok(pass_on(&outcome.end, arguments))
}

/// A mistyped option is no program; one that begins so can be named by `./-program`.
fn begins_with_dash(word: &OsStr) -> bool {
    word.as_encoded_bytes().starts_with(b"-")
}

fn request(arguments: &RunArguments) -> Request {
    Request {
        program: arguments.program.clone(),
        policy: arguments.policy.unwrap_or(Policy::Speculative),
        cpus: arguments.cpus,
        memory: arguments.memory,
        accel: arguments.accel.unwrap_or(Accel::Tcg),
        timeout: arguments.timeout,
        list_unknown: arguments.list_unknown,
        count_instructions: false,
        stdout: match arguments.json {
            Some(Destination::Stdout) => Sink::Stderr,
            _ => Sink::Stdout,
        },
        files: Files {
            root: arguments.root.clone(),
            added: arguments.files.clone(),
            input: true,
        },
    }
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
}

/// The exit status that tells how the program ended, with a line where it did not by itself.
fn pass_on(end: &End, arguments: &RunArguments) -> ExitCode {
    match end {
        End::Exited(status) => ExitCode::from(*status),
        End::Signalled(signal) => {
            eprintln!("faultless: the program was killed by signal {signal}");
            ExitCode::from(128_u8.saturating_add(*signal))
        }
        End::TimedOut => {
            let limit = arguments.timeout.unwrap_or_default().as_secs_f64();
            eprintln!("faultless: stopped after {limit} s, as --timeout says");
            ExitCode::from(refusal::STATUS)
        }
        End::Interrupted => {
            eprintln!("faultless: interrupted");
            ExitCode::from(interrupt::STATUS)
        }
        End::Failed(why) => {
            eprintln!("faultless: {why}");
            ExitCode::from(refusal::STATUS)
        }
        End::Refused(_) => ExitCode::from(refusal::STATUS),
    }
}
