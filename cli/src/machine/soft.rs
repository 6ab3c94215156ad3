//! The soft machine: host threads with software TLBs, and built-in workloads.

use std::cell::Cell;
use std::io::{self, Write};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use faultless_mm::{PAGE_SIZE, PerCpu};
use faultless_trace::{Event, Latency, Mask, Measure};
use faultless_workloads::{NAMES, Options, Report};

use super::watch::{self, Rings, Watch};
use super::{End, Machine, Outcome, Request};
use crate::counters::Counters;
use crate::figure::FigureFinder;
use crate::interrupt;
use crate::kvm::Kvm;
use crate::latencies::Latencies;
use crate::plan::Need;
use crate::show::Sink;
use crate::size::Size;
use crate::swap::{Swap, SwapDevice};

/// The least and the most memory of the machine.
const MEMORY: (Size, Size) = (Size::mebi(16), Size::mebi(64 << 10));
/// The most CPUs; each is a thread of the host.
const MOST_CPUS: u32 = 64;

/// The soft machine.
pub struct Soft;

impl Machine for Soft {
    fn check(&self, request: &Request) -> Result<Vec<Need>> {
        super::check_size(request, MOST_CPUS, MEMORY)?;
        words(request)?;
        request.swap.map(swap).transpose()?;
        Ok(Vec::new())
    }

    fn watch(&self, request: &Request, watch: Watch<'_>) -> Result<Outcome> {
        let words = words(request)?;
        let start = Instant::now();
        // The first reason to stop counts.
        let stopped = Cell::new(None);
        let stop = || {
            let late = request.timeout.is_some_and(|limit| start.elapsed() > limit);
            if stopped.get().is_none() && interrupt::is_requested() {
                stopped.set(Some(Stopped::Interrupted));
            } else if stopped.get().is_none() && late {
                stopped.set(Some(Stopped::TimedOut));
            }
            stopped.get().is_some()
        };
        let cpus = OnceLock::new();
        let options = Options {
            cpus: request.cpus as usize,
            memory: request.memory.0,
            swap: request.swap.map(swap).transpose()?,
            policy: request.policy.name().parse().map_err(anyhow::Error::msg)?,
            huge: request.huge.of_soft(),
            guests: request.kvm.as_ref().map(Kvm::of_soft).unwrap_or_default(),
            check: false,
            stop: &stop,
            record: watch.record,
            started: &|started| {
                // Called once.
                let _ = cpus.set(started);
            },
        };
        let mut stdout = Output::new(request.stdout);
        let mut stderr = Output::new(Sink::Stderr);
        let arguments = &words[1..];
        let report = watch::collect_during(watch.sink, SoftRings(&cpus), || {
            let name = &words[0];
            let report =
                faultless_workloads::run(name, arguments, &options, &mut stdout, &mut stderr);
            Ok(report?)
        })?;
        let mut outcome = outcome(&report, stopped.get(), stdout.figure);
        if watch.record != Mask::NONE {
            outcome.latencies = cpus.get().map(|cpus| latencies(cpus));
        }
        Ok(outcome)
    }
}

/// The rings of a machine, once it has started.
struct SoftRings<'a>(&'a OnceLock<&'static [PerCpu]>);

impl Rings for SoftRings<'_> {
    fn cpus(&self) -> u32 {
        self.0.get().map_or(0, |cpus| cpus.len() as u32)
    }

    fn collect(&mut self, cpu: u32, from: u64, each: &mut dyn FnMut(u64, Event)) -> Result<u64> {
        let cpu = self.0.get().and_then(|cpus| cpus.get(cpu as usize));
        Ok(cpu.map_or(from, |cpu| cpu.tracer().ring().collect(from, each)))
    }
}

fn latencies(cpus: &[PerCpu]) -> Latencies {
    Latencies::new(Measure::all().map(|measure| {
        let mut sum = Latency::default();
        for cpu in cpus {
            cpu.tracer().latencies().add_to(measure, &mut sum);
        }
        (measure, sum)
    }))
}

/// The machine's swap.
fn swap(swap: Swap) -> Result<faultless_workloads::Swap> {
    let slots = swap.size.0 / PAGE_SIZE;
    match swap.device {
        SwapDevice::Zram => Ok(faultless_workloads::Swap::Compressed { slots }),
        SwapDevice::Ram => Ok(faultless_workloads::Swap::Ram { slots }),
        SwapDevice::Disk => bail!("--swap {swap}: the soft machine has no disk"),
    }
}

/// Why the command stopped a workload.
#[derive(Clone, Copy)]
enum Stopped {
    TimedOut,
    Interrupted,
}

/// The workload and its arguments.
fn words(request: &Request) -> Result<Vec<String>> {
    let word = |word: &std::ffi::OsString| {
        let text = word.to_str().map(str::to_owned);
        text.with_context(|| format!("{} is not UTF-8", word.display()))
    };
    let words = request
        .program
        .iter()
        .map(word)
        .collect::<Result<Vec<_>>>()?;
    let name = words.first().context("no program")?;
    if NAMES.contains(&name.as_str()) {
        return Ok(words);
    }
    let names = NAMES.join(", ");
    if name.contains('/') || Path::new(name).exists() {
        bail!("the soft machine runs no ELF files such as {name}, only its workloads: {names}");
    }
    bail!("there is no workload {name} on the soft machine (there are: {names})");
}

fn outcome(report: &Report, stopped: Option<Stopped>, figure: FigureFinder) -> Outcome {
    let figures = figure.finish();
    let mut counters = Counters::default();
    for &(name, value) in &report.counters {
        counters.set(name, value);
    }
    let end = match (report.exit, report.signal, stopped) {
        (Some(status), ..) => End::Exited(u8::try_from(status & 0xff).unwrap_or_default()),
        (None, Some(signal), _) => End::Signalled(u8::try_from(signal & 0x7f).unwrap_or_default()),
        (None, None, Some(Stopped::TimedOut)) => End::TimedOut,
        (None, None, Some(Stopped::Interrupted)) => End::Interrupted,
        (None, None, None) => End::Failed("the workload stopped without a reason".to_owned()),
    };
    Outcome {
        end,
        seconds: report.seconds,
        counters,
        figure: figures.figure,
        steps: figures.steps,
        latencies: None,
        verified: None,
    }
}

/// Passes output on, and looks for the figure in it.
struct Output {
    sink: Sink,
    figure: FigureFinder,
}

impl Output {
    fn new(sink: Sink) -> Self {
        Self {
            sink,
            figure: FigureFinder::default(),
        }
    }
}

impl Write for Output {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        self.figure.feed(piece);
        self.sink.write(piece)?;
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
