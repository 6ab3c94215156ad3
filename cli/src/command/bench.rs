//! `faultless bench`.

use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use comfy_table::{Cell, Table, presets};

use super::progress::Progress;
use crate::arch::Arch;
use crate::args::BenchArguments;
use crate::bench::{BENCHES, Bench, Better, Group, find};
use crate::interrupt;
use crate::plan::{self, Need, Urgency};
use crate::report::{BENCH, BenchFile, BenchResult, Destination, Row, draw};
use crate::show::{self, Sink};
use crate::table;

/// Takes figures. A figure that cannot be taken is an error, reported after all others are taken.
pub fn command(arguments: &BenchArguments) -> Result<ExitCode> {
    if arguments.list {
        return Ok(list());
    }
    let arch = arguments.arch;
    let benches = choose(&arguments.names, arch)?;
    if let Some(json) = &arguments.json {
        json.check()?;
    }
    if let Some(answer) = plan::answer(&needs(&benches, arch), Urgency::Required) {
        return Ok(answer);
    }
    interrupt::install()?;
    let mut results = Vec::new();
    let mut failed = Vec::new();
    for bench in benches {
        if interrupt::is_requested() {
            break;
        }
        match take(bench, arch) {
            Ok(result) => results.push(result),
            // The error of an interrupted run is no failure of the figure.
            Err(_) if interrupt::is_requested() => break,
            Err(error) => {
                eprintln!("faultless: {error:#}");
                failed.push(bench.name);
            }
        }
    }
    report(arguments, results)?;
    if interrupt::is_requested() {
        eprintln!("faultless: interrupted");
        return Ok(ExitCode::from(interrupt::STATUS));
    }
    if !failed.is_empty() {
        bail!(
            "{} of the figures could not be taken: {}",
            failed.len(),
            failed.join(", ")
        );
    }
    Ok(ExitCode::SUCCESS)
}

fn choose(names: &[String], arch: Arch) -> Result<Vec<&'static Bench>> {
    // All others are about this machine's processor.
    let has_arch = |bench: &Bench| bench.is_booted() || arch == Arch::default();
    if names.is_empty() {
        return Ok(BENCHES.iter().filter(|bench| has_arch(bench)).collect());
    }
    let named = |name: &String| {
        let bench = find(name)
            .with_context(|| format!("there is no figure '{name}': ./x bench --list names them"))?;
        if !has_arch(bench) {
            bail!(
                "{name} is taken on this machine's processor, not in a machine for {}: leave --arch out",
                arch.title()
            );
        }
        Ok(bench)
    };
    names.iter().map(named).collect()
}

fn needs(benches: &[&Bench], arch: Arch) -> Vec<Need> {
    let has = |group| benches.iter().any(|bench| bench.group == group);
    let mut needs = Vec::new();
    if has(Group::Kernel) || has(Group::KernelPair) {
        needs.extend([Need::Qemu(arch), Need::Kernel(arch), Need::Workloads(arch)]);
    }
    if has(Group::KernelPair) {
        needs.push(Need::KernelWithoutEvents(arch));
    }
    if has(Group::Record) && cfg!(not(record)) {
        needs.push(Need::Recorder);
    }
    needs
}

fn take(bench: &Bench, arch: Arch) -> Result<BenchResult> {
    let _progress = Progress::start(format!("{}: {}", bench.name, bench.about));
    let samples = bench.samples(arch).with_context(|| bench.name)?;
    Ok(BenchResult {
        name: bench.name,
        value: samples.median(),
        unit: bench.unit,
        better: bench.better,
        low: samples.percentile(10.0),
        high: samples.percentile(90.0),
        parts: samples.parts().to_vec(),
        samples,
    })
}

fn report(arguments: &BenchArguments, results: Vec<BenchResult>) -> Result<()> {
    let json = arguments.json.as_ref();
    if json != Some(&Destination::Stdout) {
        // A closed stdout is no error.
        let _ = Sink::Stdout.write(format!("{}\n", overview(&results)).as_bytes());
        for result in results.iter().filter(|result| !result.parts.is_empty()) {
            let _ = Sink::Stdout.write(format!("\n{}\n", parts(result)).as_bytes());
        }
    }
    let file = BenchFile::new(results, arguments.arch);
    if let Some(path) = &arguments.markdown {
        let rows = file.results.iter().map(|result| row(result, &file));
        let names: Vec<_> = BENCHES.iter().map(|bench| bench.name).collect();
        BENCH.update(path, rows.collect(), &names)?;
        if let Some(svg) = &arguments.svg {
            draw(path, svg)?;
        }
    }
    json.map_or(Ok(()), |json| json.write(&file))
}

fn row(result: &BenchResult, file: &BenchFile) -> Row {
    let about = find(result.name).map_or("", |bench| bench.about);
    let mut row = vec![format!("`{}`", result.name), about.to_owned()];
    row.extend([result.value, result.low, result.high].map(short));
    row.extend([result.unit, better(result)].map(str::to_owned));
    row.extend([file.host.cores.to_string(), file.commit.clone()]);
    row
}

fn better(result: &BenchResult) -> &'static str {
    match result.better {
        Better::Lower => "lower",
        Better::Higher => "higher",
    }
}

fn overview(results: &[BenchResult]) -> Table {
    let header = ["figure", "median", "10 %", "90 %", "unit", "better"];
    let mut table = table::new(header.into_iter().map(Cell::new).collect());
    for result in results {
        table.add_row([
            Cell::new(result.name),
            table::number(short(result.value)),
            table::number(short(result.low)),
            table::number(short(result.high)),
            Cell::new(result.unit),
            Cell::new(better(result)),
        ]);
    }
    table
}

/// The parts of one figure.
fn parts(result: &BenchResult) -> Table {
    let header = [result.name, result.unit, "from", "to", "remark"];
    let mut table = table::new(header.into_iter().map(Cell::new).collect());
    for part in &result.parts {
        table.add_row([
            Cell::new(&part.name),
            table::number(short(part.value)),
            table::number(format!("{:.0}", part.from)),
            table::number(format!("{:.0}", part.to)),
            Cell::new(part.remark),
        ]);
    }
    table
}

/// Four digits, more than the precision of any figure.
fn short(value: f64) -> String {
    match value.abs() {
        1000.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        _ => format!("{value:.3}"),
    }
}

fn list() -> ExitCode {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    for bench in BENCHES {
        table.add_row([bench.name, bench.group.name(), bench.unit, bench.about]);
    }
    show::print(table.trim_fmt() + "\n")
}
