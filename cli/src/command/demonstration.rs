//! `faultless run` without a program: ebizzy under the three fault policies, in one table.
//!
//! Without QEMU it runs on the soft machine, which needs nothing but this command.

use std::env;
use std::process::ExitCode;

use anyhow::{Result, bail};
use comfy_table::{Cell, Table};
use faultless_trace::Counter;

use super::progress::Progress;
use crate::arch::Arch;
use crate::args::RunArguments;
use crate::counters::FALLBACKS;
use crate::interrupt;
use crate::machine::kernel::qemu;
use crate::machine::{Accel, End, Files, MachineKind, Outcome, Policy, Request};
use crate::plan::{self, Urgency};
use crate::report::{Destination, Run, RunFile};
use crate::show::Sink;
use crate::table::{self, grouped};

/// The published workload: threads that map, touch and unmap, for three seconds.
const PROGRAM: [&str; 6] = ["ebizzy", "-mTRp", "-t", "8", "-S", "3"];

/// Runs the demonstration.
pub fn command(arguments: &RunArguments) -> Result<ExitCode> {
    let policies = arguments
        .policy
        .map_or(Policy::ALL.to_vec(), |policy| vec![policy]);
    let wanted = arguments.on.machine.unwrap_or(MachineKind::Kernel);
    let needs = wanted.machine().check(&request(arguments, policies[0]))?;
    let urgency = if arguments.on.machine.is_none() {
        Urgency::Wanted
    } else {
        Urgency::Required
    };
    if let Some(answer) = plan::answer(&needs, urgency) {
        return Ok(answer);
    }
    let kind = match why_not_the_kernel(arguments.on.arch.unwrap_or_default()) {
        Some(why) if arguments.on.machine.is_none() => {
            eprintln!("faultless: {why}; the demonstration runs on the soft machine instead");
            MachineKind::Soft
        }
        _ => wanted,
    };
    interrupt::install()?;
    let mut results = Vec::new();
    for policy in policies {
        let request = request(arguments, policy);
        let outcome = {
            let _progress = Progress::start(format!(
                "{} under {} on the {} machine, {} CPUs",
                PROGRAM.join(" "),
                policy.name(),
                kind.name(),
                request.cpus
            ));
            kind.machine().run(&request)?
        };
        let finished = outcome.end == End::Exited(0);
        results.push((request, outcome));
        if !finished {
            break;
        }
    }
    report(arguments, kind, &results)
}

fn request(arguments: &RunArguments, policy: Policy) -> Request {
    Request {
        program: PROGRAM.iter().map(Into::into).collect(),
        arch: arguments.on.arch.unwrap_or_default(),
        policy,
        cpus: match arguments.on.icount {
            true => 1,
            false => arguments.on.resources.cpus,
        },
        memory: arguments.on.resources.memory,
        swap: arguments.on.resources.swap,
        huge: arguments.on.resources.huge,
        kvm: arguments.on.resources.kvm.clone(),
        atomic_rmw: arguments.on.resources.atomic_rmw,
        accel: arguments.on.accel.unwrap_or(Accel::Tcg),
        timeout: arguments.on.resources.timeout,
        list_unknown: arguments.on.list_unknown,
        verify: arguments.on.verify,
        count_instructions: arguments.on.icount,
        stdout: Sink::Nowhere,
        files: Files::default(),
    }
}

/// The reason why the kernel cannot be booted here, if there is one.
fn why_not_the_kernel(arch: Arch) -> Option<String> {
    if let Ok(why) = env::var("FAULTLESS_NO_KERNEL") {
        return Some(why);
    }
    qemu::check(arch).err().map(|error| error.to_string())
}

/// Shows and writes the finished runs. The last one decides the exit status.
fn report(
    arguments: &RunArguments,
    kind: MachineKind,
    results: &[(Request, Outcome)],
) -> Result<ExitCode> {
    let text = format!("{}\n", comparison(results));
    let to_stdout = arguments.json == Some(Destination::Stdout);
    let sink = if to_stdout {
        Sink::Stderr
    } else {
        Sink::Stdout
    };
    // A closed stream is no error.
    let _ = sink.write(text.as_bytes());
    if let Some(json) = &arguments.json {
        let run = |(request, outcome): &(Request, Outcome)| Run::new(kind, request, outcome);
        json.write(&RunFile::new(results.iter().map(run).collect()))?;
    }
    let Some((request, last)) = results.last() else {
        return Ok(ExitCode::SUCCESS);
    };
    let policy = request.policy.name();
    match &last.end {
        End::Exited(0) => Ok(ExitCode::SUCCESS),
        End::Interrupted => {
            eprintln!("faultless: interrupted");
            Ok(ExitCode::from(interrupt::STATUS))
        }
        End::TimedOut => bail!("ebizzy under {policy} was stopped, as --timeout says"),
        End::Exited(status) => bail!("ebizzy under {policy} ended with status {status}"),
        End::Signalled(signal) => bail!("ebizzy under {policy} was killed by signal {signal}"),
        End::Failed(why) | End::Refused(why) => bail!("ebizzy under {policy}: {why}"),
    }
}

/// A column for each policy.
fn comparison(results: &[(Request, Outcome)]) -> Table {
    let policies = results
        .iter()
        .map(|(request, _)| request.policy.name().to_owned());
    let mut table = table::new(row(PROGRAM.join(" "), policies.collect()));
    let mut line = |label: &str, value: &dyn Fn(&Outcome) -> String| {
        let values = results.iter().map(|(_, outcome)| value(outcome)).collect();
        table.add_row(row(label.to_owned(), values));
    };
    let count = |counter: Counter| move |outcome: &Outcome| grouped(outcome.counters.get(counter));
    line("records/s", &|outcome| {
        let figure = outcome.figure.as_ref();
        figure.map_or("–".to_owned(), |figure| grouped(figure.value as u64))
    });
    line("faults", &count(Counter::Faults));
    line("spf", &count(Counter::Spf));
    line("share speculative", &|outcome| {
        let share = outcome.counters.share_speculative();
        share.map_or("–".to_owned(), |share| format!("{:.3} %", share * 100.0))
    });
    for reason in FALLBACKS {
        let name = reason.name().trim_start_matches("pagefault:");
        line(&format!("fallbacks: {name}"), &count(reason));
    }
    line("remote flushes", &count(Counter::TlbRemoteFlush));
    table
}

fn row(label: String, values: Vec<String>) -> Vec<Cell> {
    [Cell::new(label)]
        .into_iter()
        .chain(values.into_iter().map(table::number))
        .collect()
}
