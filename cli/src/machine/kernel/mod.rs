//! The kernel, booted in QEMU with one program.
//!
//! The program travels in an initramfs; its output comes back live through two ports, and the
//! kernel's report through a third.

mod channel;
mod control;
mod cpio;
mod initramfs;
pub mod qemu;

use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::{End, Machine, Outcome, Request};
use crate::figure::FigureFinder;
use crate::paths;
use crate::plan::Need;
use crate::program::Program;
use crate::show::Sink;
use crate::size::Size;
use channel::Channel;
use control::Report;
use qemu::{Ports, Qemu, Stop};

/// The least and the most memory that the kernel is built for.
const MEMORY: (Size, Size) = (Size::mebi(32), Size::mebi(16 << 10));
/// The most CPUs that the kernel is built for.
const MOST_CPUS: u32 = 16;

/// The machine.
pub struct Kernel;

impl Machine for Kernel {
    fn check(&self, request: &Request) -> Result<Vec<Need>> {
        super::check_size(request, MOST_CPUS, MEMORY)?;
        qemu::check_accel(request.accel)?;
        let program = Program::find(request.program.first().context("no program")?)?;
        if let Program::Packaged(_) = program {
            return Ok(vec![Need::Qemu, Need::Kernel, Need::Workloads]);
        }
        program.read(request.memory)?;
        Ok(vec![Need::Qemu, Need::Kernel])
    }

    fn run(&self, request: &Request) -> Result<Outcome> {
        qemu::check()?;
        let kernel = paths::kernel();
        if !kernel.is_file() {
            bail!(
                "the kernel is not built ({}): ./x setup builds it",
                kernel.display()
            );
        }
        let program = Program::find(request.program.first().context("no program")?)?;
        let content = program.read(request.memory)?;

        let folder = tempfile::Builder::new().prefix("faultless-").tempdir();
        let folder = folder.context("cannot make a folder for temporary files")?;
        let image = folder.path().join("initramfs");
        fs::write(&image, initramfs::build(request, &program.name(), &content))
            .with_context(|| format!("cannot write {}", image.display()))?;

        let sink = request.stdout;
        let stdout = Channel::open(folder.path().join("out"), FigureFinder::default(), {
            move |figure: &mut FigureFinder, piece: &[u8]| {
                figure.feed(piece);
                forward(sink, piece);
            }
        })?;
        let stderr = Channel::open(folder.path().join("err"), (), |(), piece: &[u8]| {
            forward(Sink::Stderr, piece);
        })?;
        let gather = |all: &mut Vec<u8>, piece: &[u8]| all.extend_from_slice(piece);
        let control = Channel::open(folder.path().join("control"), Vec::new(), gather)?;
        let monitor = folder.path().join("monitor");
        let ports = Ports {
            stdout: stdout.path(),
            stderr: stderr.path(),
            control: control.path(),
            monitor: &monitor,
        };

        let start = Instant::now();
        let qemu = Qemu::start(request, &kernel, &image, &ports)?;
        let (stop, messages) = qemu.wait(request.timeout)?;
        let elapsed = start.elapsed();
        let figure = stdout.close()?.finish();
        stderr.close()?;
        let report = Report::parse(&control.close()?);
        let mut outcome = outcome(stop, report, &messages, elapsed);
        outcome.figure = figure;
        Ok(outcome)
    }
}

/// Output that nobody reads any more is no reason to stop the program.
fn forward(sink: Sink, piece: &[u8]) {
    let _ = sink.write(piece);
}

fn outcome(stop: Stop, report: Option<Report>, messages: &str, elapsed: Duration) -> Outcome {
    let silent = report.is_none();
    let report = report.unwrap_or_default();
    let end = match stop {
        Stop::TimedOut => End::TimedOut,
        Stop::Interrupted => End::Interrupted,
        Stop::Itself => match (&report.error, report.exit, report.signal) {
            // The kernel's own line says why, if it is not the program's fault.
            (_, _, Some(signal)) => End::Signalled(signal),
            (Some(error), ..) => End::Refused(error.clone()),
            (None, Some(status), None) => End::Exited(status),
            (None, None, None) if silent && !messages.is_empty() => {
                End::Failed(format!("QEMU failed: {}", messages.replace('\n', "; ")))
            }
            (None, None, None) => End::Failed("the kernel stopped without a report".to_owned()),
        },
    };
    Outcome {
        end,
        seconds: if silent {
            elapsed.as_secs_f64()
        } else {
            report.seconds
        },
        counters: report.counters(),
        figure: None,
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, End, Report, Stop, outcome};

    fn end(stop: Stop, report: Option<&str>, messages: &str) -> End {
        let report = report.map(|text| Report::parse(text.as_bytes()).unwrap());
        outcome(stop, report, messages, Duration::from_secs(1)).end
    }

    #[test]
    fn a_report_says_how_the_program_ended() {
        assert_eq!(end(Stop::Itself, Some(r#"{"exit":3}"#), ""), End::Exited(3));
        assert_eq!(
            end(Stop::Itself, Some(r#"{"signal":11}"#), ""),
            End::Signalled(11)
        );
        let killed = r#"{"signal":9,"error":"memory is exhausted"}"#;
        assert_eq!(end(Stop::Itself, Some(killed), ""), End::Signalled(9));
        let error = r#"{"exit":null,"error":"no memory"}"#;
        assert_eq!(
            end(Stop::Itself, Some(error), ""),
            End::Refused("no memory".to_owned())
        );
    }

    #[test]
    fn without_a_report_the_emulator_says_what_is_wrong() {
        let failed = end(Stop::Itself, None, "qemu: bad\nreally");
        assert_eq!(
            failed,
            End::Failed("QEMU failed: qemu: bad; really".to_owned())
        );
        assert!(matches!(end(Stop::Itself, None, ""), End::Failed(_)));
        assert_eq!(end(Stop::TimedOut, None, ""), End::TimedOut);
    }
}
