//! `faultless compare`.

use std::path::Path;
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use comfy_table::{Cell, Table, presets};

use super::progress::Progress;
use crate::arch::Arch;
use crate::args::CompareArguments;
use crate::compare::{self, CompareResult, Conditions, Counts, Job, Peer, SUITE, Series};
use crate::interrupt;
use crate::machine::{Machine as _, Policy, kernel};
use crate::plan::{self, Need, Urgency};
use crate::program::Program;
use crate::report::{COMPARE, CompareFile, Destination, Row, draw};
use crate::show::{self, Sink};
use crate::table::{self, grouped};

/// Seconds for which a workload of the suite measures, without and with `--quick`.
const SECONDS: [u32; 2] = [2, 1];
/// Pairs of runs with more than one CPU, without and with `--quick`.
const PAIRS: [u32; 2] = [5, 2];

/// Runs the program, or the suite, on all sides. A comparison that fails is an error, reported after all
/// others are done.
pub fn command(arguments: &CompareArguments) -> Result<ExitCode> {
    if arguments.list {
        return Ok(list());
    }
    let jobs = jobs(arguments)?;
    let conditions = Conditions {
        arch: arch(arguments)?,
        cpus: arguments.resources.cpus,
        memory: match arguments.suite {
            true => arguments.resources.memory.max(compare::MEMORY),
            false => arguments.resources.memory,
        },
        swap: None,
        huge: arguments.resources.huge,
        kvm: arguments.resources.kvm.clone(),
        atomic_rmw: arguments.resources.atomic_rmw,
        timeout: arguments.resources.timeout,
        output: if arguments.output {
            Sink::Stderr
        } else {
            Sink::Nowhere
        },
        files: arguments.given.files(false),
    };
    let needs = needs(&jobs, &conditions, &arguments.linux)?;
    if let Some(json) = &arguments.json {
        json.check()?;
    }
    if let Some(answer) = plan::answer(&needs, Urgency::Required) {
        return Ok(answer);
    }
    interrupt::install()?;
    let mut failed = Vec::new();
    let mut peers = find_peers(&arguments.linux, conditions.arch, &mut failed);
    if arguments.policies {
        peers.extend([Policy::Classic, Policy::VmaLock].map(Peer::Policy));
    }
    ensure!(!peers.is_empty(), "there is no kernel to compare with");
    let mut file = CompareFile::new(&conditions, &peers);
    for job in &jobs {
        if interrupt::is_requested() {
            break;
        }
        let conditions = Conditions {
            cpus: conditions.cpus.max(job.from_cpus),
            swap: job.swap,
            memory: job.memory.unwrap_or(conditions.memory),
            huge: job.huge.unwrap_or(conditions.huge),
            ..conditions.clone()
        };
        let mut progress = None;
        let repeat = repeat(arguments, conditions.cpus);
        let results = compare::take(job, &conditions, &peers, repeat, |what| {
            progress = None;
            progress = Some(Progress::start(what));
        });
        drop(progress);
        for result in &results {
            if let Some(error) = &result.error {
                eprintln!("faultless: {}: {error}", result.name);
                failed.push(format!("{} against {}", result.name, result.peer));
            }
        }
        file.results.extend(results);
        // Written after each job, so that no result is lost however this ends.
        if let Some(json @ Destination::File(_)) = &arguments.json {
            json.write(&file)?;
        }
    }
    report(arguments.json.as_ref(), &file, &peers)?;
    if let Some(path) = &arguments.markdown {
        let rows = file.results.iter().map(|result| row(result, &file.commit));
        let names: Vec<_> = SUITE.iter().map(|entry| entry.name).collect();
        COMPARE.update(path, rows.collect(), &names)?;
        if let Some(svg) = &arguments.svg {
            draw(path, svg)?;
        }
    }
    if interrupt::is_requested() {
        eprintln!("faultless: interrupted");
        return Ok(ExitCode::from(interrupt::STATUS));
    }
    if !failed.is_empty() {
        eprintln!("faultless: not compared: {}", failed.join(", "));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}

/// The architecture of the machines: that of the program.
fn arch(arguments: &CompareArguments) -> Result<Arch> {
    let Some(name) = arguments.program.words.first() else {
        return Ok(arguments.arch.unwrap_or_default());
    };
    let root = arguments.given.root.as_deref();
    Program::find(name, root)?.arch(arguments.arch, root)
}

fn jobs(arguments: &CompareArguments) -> Result<Vec<Job>> {
    // clap does not enforce a required argument that conflicts with a given one.
    let about_the_suite = arguments.quick || !arguments.only.is_empty();
    ensure!(
        arguments.suite || !about_the_suite,
        "--quick and --only are for --suite"
    );
    ensure!(
        !arguments.suite || arguments.given.is_nothing(),
        "--file, --root and --env are for a program, not for --suite"
    );
    if let Some(word) = arguments.program.words.first() {
        if word.as_encoded_bytes().starts_with(b"-") {
            bail!(
                "unexpected argument '{}': ./x compare --help lists the options",
                word.display()
            );
        }
        let name = Path::new(word).file_name().unwrap_or(word);
        return Ok(vec![Job {
            name: name.to_string_lossy().into_owned(),
            program: arguments.program.words.clone(),
            from_cpus: 1,
            swap: arguments.resources.swap,
            memory: None,
            huge: None,
        }]);
    }
    ensure!(
        arguments.suite,
        "a program is missing: name one, or --suite"
    );
    for name in &arguments.only {
        ensure!(
            SUITE.iter().any(|entry| entry.name == name),
            "there is no workload '{name}': ./x compare --list names them"
        );
    }
    let chosen =
        |name: &str| arguments.only.is_empty() || arguments.only.iter().any(|only| only == name);
    let seconds = SECONDS[usize::from(arguments.quick)];
    let cpus = arguments.resources.cpus;
    // A workload that needs more CPUs gets them if it is named.
    let entries = SUITE.iter().filter(|entry| {
        chosen(entry.name) && (entry.from_cpus <= cpus || !arguments.only.is_empty())
    });
    Ok(entries
        .map(|entry| entry.job(cpus.max(entry.from_cpus), seconds))
        .collect())
}

fn repeat(arguments: &CompareArguments, cpus: u32) -> u32 {
    let default = match cpus {
        1 => 1,
        _ => PAIRS[usize::from(arguments.quick)],
    };
    arguments.repeat.unwrap_or(default)
}

/// Checks everything that can be checked beforehand.
fn needs(jobs: &[Job], conditions: &Conditions, series: &[Series]) -> Result<Vec<Need>> {
    let mut needs = Vec::new();
    for job in jobs {
        for need in kernel::Kernel.check(&conditions.request(&job.program))? {
            if !needs.contains(&need) {
                needs.push(need);
            }
        }
    }
    let arch = conditions.arch;
    needs.push(Need::LinuxInit(arch));
    needs.extend(series.iter().map(|&series| Need::Linux(series, arch)));
    if conditions.kvm.is_some() || jobs.iter().any(|job| job.swap.is_some()) {
        let modules = |&series| Need::LinuxModules(series, arch);
        needs.extend(series.iter().map(modules));
    }
    Ok(needs)
}

/// Finds the kernels that are installed; adds the others to `failed`.
fn find_peers(series: &[Series], arch: Arch, failed: &mut Vec<String>) -> Vec<Peer> {
    let mut peers: Vec<Peer> = Vec::new();
    for &series in series {
        if peers.iter().any(|peer| peer.name() == series.peer()) {
            continue;
        }
        match Peer::find(series, arch) {
            Ok(peer) => peers.push(peer),
            Err(error) => {
                eprintln!("faultless: {error:#}");
                failed.push(series.peer().to_owned());
            }
        }
    }
    peers
}

fn report(json: Option<&Destination>, file: &CompareFile, peers: &[Peer]) -> Result<()> {
    if json == Some(&Destination::Stdout) {
        return Destination::Stdout.write(file);
    }
    let mut text = format!("{}\n", overview(&file.results));
    for peer in peers {
        let settings = peer.settings().join(" ");
        text += &format!("{} ({}): {settings}\n", peer.name(), peer.version());
    }
    // A closed stdout is no error.
    let _ = Sink::Stdout.write(text.as_bytes());
    Ok(())
}

fn overview(results: &[CompareResult]) -> Table {
    let header = [
        "workload",
        "against",
        "metric",
        "ours",
        "theirs",
        "ratio",
        "10 %",
        "90 %",
        "faults",
        "flushes",
        "flushes/op",
        "switches",
    ];
    let mut table = table::new(header.into_iter().map(Cell::new).collect());
    for result in results {
        let ours = |count: fn(&Counts) -> Option<u64>| {
            format!(
                "{} / {}",
                whole(count(&result.our_counts)),
                whole(count(&result.their_counts))
            )
        };
        table.add_row([
            Cell::new(&result.name),
            Cell::new(result.peer),
            Cell::new(result.metric.map_or("–", |metric| metric.name())),
            table::number(whole(middle(&result.ours))),
            table::number(whole(middle(&result.theirs))),
            table::number(short(result.ratio)),
            table::number(short(result.low)),
            table::number(short(result.high)),
            table::number(ours(|counts| counts.faults)),
            table::number(ours(|counts| counts.flushes_received)),
            table::number(format!(
                "{} / {}",
                rare(result.our_counts.flushes_per_op),
                rare(result.their_counts.flushes_per_op)
            )),
            table::number(ours(|counts| counts.context_switches)),
        ]);
    }
    table
}

fn row(result: &CompareResult, commit: &str) -> Row {
    let entry = SUITE.iter().find(|entry| entry.name == result.name);
    vec![
        format!("`{}`", result.name),
        result.peer.to_owned(),
        result.cpus.to_string(),
        entry.map_or("", |entry| entry.about).to_owned(),
        result.metric.map_or("–", |metric| metric.name()).to_owned(),
        whole(middle(&result.ours)),
        whole(middle(&result.theirs)),
        short(result.ratio),
        short(result.low),
        short(result.high),
        commit.to_owned(),
    ]
}

fn middle(figures: &[f64]) -> Option<u64> {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
        .get(sorted.len() / 2)
        .map(|&figure| figure.round() as u64)
}

fn whole(count: Option<u64>) -> String {
    count.map_or_else(|| "–".to_owned(), grouped)
}

fn rare(count: Option<f64>) -> String {
    count.map_or_else(|| "–".to_owned(), |count| format!("{count:.4}"))
}

fn short(ratio: Option<f64>) -> String {
    ratio.map_or_else(|| "–".to_owned(), |ratio| format!("{ratio:.2}"))
}

fn list() -> ExitCode {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING);
    for entry in SUITE {
        table.add_row([entry.name, entry.about]);
    }
    show::print(table.trim_fmt() + "\n")
}
