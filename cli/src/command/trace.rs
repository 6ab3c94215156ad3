//! `faultless trace`.

use std::fs::File;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use faultless_trace::Kind;
use serde_json::json;

use super::program;
use super::progress::Progress;
use crate::args::{SummaryArguments, TraceArguments, TraceCommand};
use crate::machine::watch::Watch;
use crate::machine::{End, MachineKind, Policy, Request};
use crate::plan::{self, Urgency};
use crate::report::Destination;
use crate::show::Sink;
use crate::table::grouped;
use crate::trace::filter::Filter;
use crate::trace::perfetto::Writer;
use crate::trace::recorder::{Recorded, Recorder, Wanted};
use crate::trace::seen::Field;
use crate::trace::summary::Summary;
use crate::{interrupt, paths, select};

/// Runs the program and writes its events to a file, or shows the summary of a file.
pub fn command(arguments: &TraceArguments) -> Result<ExitCode> {
    match &arguments.command {
        Some(TraceCommand::Summary(arguments)) => return summary(arguments),
        None if arguments.list => return Ok(list()),
        None => {}
    }
    let wanted = wanted(arguments)?;
    let output = arguments.output.as_deref();
    let output = output.context("a file to write is missing: -o FILE")?;
    Destination::File(output.to_path_buf()).check()?;
    program::check(&arguments.on, &arguments.program.words)?;
    let kind = arguments.on.kind();
    let machine = kind.machine();
    let policy = arguments.policy.unwrap_or(Policy::Speculative);
    let request = program::request(
        &arguments.on,
        &arguments.program.words,
        policy,
        Sink::Stdout,
    )?;
    let needs = machine.check(&request)?;
    if let Some(answer) = plan::answer(&needs, Urgency::Required) {
        return Ok(answer);
    }
    interrupt::install()?;
    let record = wanted.mask();
    let file = File::create(output).with_context(cannot(output))?;
    let writer = Writer::new(file, &about(kind, &request))?;
    let mut recorder = Recorder::new(wanted, writer);
    let outcome = {
        let name = request.program[0].display();
        let _progress = Progress::start(format!(
            "tracing {name} on the {} machine, {} CPUs",
            kind.name(),
            request.cpus
        ));
        let watch = Watch {
            record,
            sink: Some(&mut recorder),
        };
        machine.watch(&request, watch)
    };
    // The file is completed however the run ended.
    let counters = outcome.as_ref().ok().map(|outcome| &outcome.counters);
    let recorded = recorder.finish(counters)?;
    let outcome = outcome?;
    if !matches!(outcome.end, End::Failed(_) | End::Refused(_)) {
        summarise(output, recorded);
    }
    Ok(program::pass_on(
        &outcome.end,
        arguments.on.resources.timeout,
    ))
}

fn wanted(arguments: &TraceArguments) -> Result<Wanted> {
    let names: Vec<_> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    let chosen = select::choose(&arguments.events, &names, "event")?;
    let kinds = match chosen.is_empty() {
        true => Kind::ALL.to_vec(),
        false => chosen.iter().map(|&place| Kind::ALL[place]).collect(),
    };
    let filter = arguments.filter.as_deref().map(Filter::parse).transpose();
    let filter = filter.context("--filter")?;
    Ok(Wanted { kinds, filter })
}

/// The description of the run in the file.
fn about(kind: MachineKind, request: &Request) -> serde_json::Value {
    let program = request.program.iter();
    json!({
        "schema": crate::report::SCHEMA,
        "machine": kind.name(),
        "arch": request.arch.name(),
        "policy": request.policy.name(),
        "cpus": request.cpus,
        "memory": request.memory.0,
        "commit": paths::commit(),
        "program": program.map(|word| word.to_string_lossy()).collect::<Vec<_>>(),
    })
}

fn summarise(output: &Path, recorded: Recorded) {
    let Recorded { written, lost } = recorded;
    let lost = match lost {
        0 => "none lost".to_owned(),
        lost => format!("{} lost, because they came too fast", grouped(lost)),
    };
    let name = output.display();
    eprintln!("faultless: {name}: {} events, {lost}", grouped(written));
}

fn cannot(path: &Path) -> impl Fn() -> String {
    move || format!("cannot write {}", path.display())
}

fn summary(arguments: &SummaryArguments) -> Result<ExitCode> {
    if let Some(json) = &arguments.json {
        json.check()?;
    }
    if !arguments.file.exists() {
        bail!("there is no file {}", arguments.file.display());
    }
    if let Some(answer) = plan::answer(&[], Urgency::Required) {
        return Ok(answer);
    }
    let summary = Summary::of(&arguments.file, arguments.slowest)?;
    match &arguments.json {
        Some(json) => json.write(&summary)?,
        // A closed stdout is no error.
        None => drop(Sink::Stdout.write(summary.text().as_bytes())),
    }
    Ok(ExitCode::SUCCESS)
}

fn list() -> ExitCode {
    let names = |fields: &[Field]| {
        let names: Vec<_> = fields.iter().map(|field| field.name()).collect();
        names.join(", ")
    };
    let mut text = String::new();
    for kind in Kind::ALL {
        let line = format!("{:<26} {}", kind.name(), names(Field::of(*kind)));
        text.push_str(line.trim_end());
        text.push('\n');
    }
    let own = |field: &&Field| {
        Kind::ALL
            .iter()
            .any(|kind| Field::of(*kind).contains(field))
    };
    let of_all: Vec<Field> = Field::ALL.iter().filter(|f| !own(f)).copied().collect();
    text.push_str(&format!("\nevery event: {}\n", names(&of_all)));
    // A closed stdout is no error.
    let _ = Sink::Stdout.write(text.as_bytes());
    ExitCode::SUCCESS
}
