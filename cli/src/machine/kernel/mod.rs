//! The kernel, booted in QEMU with one program.
//!
//! The program travels in an initramfs; its output comes back live through ports, and the kernel's
//! report through another.

mod channel;
mod control;
mod cpio;
mod guest_memory;
mod initramfs;
mod input;
mod load;
mod output;
mod packing;
mod pieces;
pub mod qemu;
mod swap_file;
mod tail;

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{fs, io};

use anyhow::{Context as _, Result, bail};

use super::watch::{self, Watch};
use super::{Accel, End, Machine, Outcome, Request};
use crate::arch::Arch;
use crate::paths;
use crate::plan::Need;
use crate::program::Program;
use crate::show::Sink;
use crate::size::Size;
use channel::Channel;
use control::Report;
use guest_memory::{GuestMemory, GuestRings, Places};
use input::{Input, StandardInput};
use load::Load;
use output::{Output, Sinks};
use qemu::{Channels, Qemu, Stop};
use tail::Tail;

/// The least and the most memory that the kernel is built for.
const MEMORY: (Size, Size) = (Size::mebi(32), Size::mebi(16 << 10));
/// The most CPUs that the kernel is built for.
const MOST_CPUS: u32 = 16;

/// The kernel as a machine.
pub struct Kernel;

impl Machine for Kernel {
    fn check(&self, request: &Request) -> Result<Vec<Need>> {
        super::check_size(request, MOST_CPUS, MEMORY)?;
        let arch = request.arch;
        qemu::check_accel(request.accel, arch)?;
        if !request.atomic_rmw && arch != Arch::AArch64 {
            bail!(
                "--atomic-rmw: an atomic instruction faults once on {}",
                arch.title()
            );
        }
        if request.kvm.is_some() && arch != Arch::X86_64 {
            bail!("--kvm: there are no guests on {}", arch.title());
        }
        let program = find(request)?;
        let mut needs = vec![Need::Qemu(arch), Need::Kernel(arch)];
        if let Program::Packaged(_) = program {
            needs.push(Need::Workloads(arch));
        } else {
            Load::find(request, &program)?;
        }
        Ok(needs)
    }

    fn watch(&self, request: &Request, watch: Watch<'_>) -> Result<Outcome> {
        // First, as the kernel is not built without an emulator.
        qemu::check(request.arch)?;
        Ok(System::ours(request.arch)?
            .boot_watched(request, watch)?
            .outcome)
    }
}

/// A system to boot: our kernel, or another one on the same machine, with the same program.
pub struct System {
    /// The image for `-kernel`.
    pub kernel: PathBuf,
    /// Its command line.
    pub append: Option<String>,
    /// Its first program, which reads `/.faultless/run`. Our kernel needs none: it reads that file itself.
    pub init: Option<Vec<u8>>,
    /// The modules that this program loads first, in this order.
    pub modules: Vec<Module>,
    /// Whether the host gives the machine all its memory before it starts.
    pub warm: bool,
    /// The seed of its random numbers; `None`: the host's. With a seed its clock starts at a fixed time, too. If
    /// the clock also counts instructions, a run can be repeated exactly.
    pub seed: Option<u32>,
    /// Where the program's stderr and the kernel's messages go.
    pub stderr: Sink,
}

/// A module of another kernel.
#[derive(Clone, Debug)]
pub struct Module {
    /// The name of its file, which says how it is compressed.
    pub file: String,
    /// That file.
    pub content: Vec<u8>,
}

/// The result of a boot.
pub struct Booted {
    /// The outcome, as of every machine.
    pub outcome: Outcome,
    /// The kernel's release, if it reports one.
    pub release: Option<String>,
    /// The last lines on stderr.
    pub stderr: Tail,
    /// The last lines on the kernel's own console.
    pub console: Tail,
}

impl System {
    /// Our kernel, as it was built.
    pub fn ours(arch: Arch) -> Result<Self> {
        Self::of(paths::kernel(arch))
    }

    /// The same, built so that it cannot record events.
    pub fn without_events(arch: Arch) -> Result<Self> {
        Self::of(paths::kernel_without_events(arch))
    }

    fn of(kernel: PathBuf) -> Result<Self> {
        if !kernel.is_file() {
            bail!(
                "the kernel is not built ({}): ./x setup builds it",
                kernel.display()
            );
        }
        Ok(System {
            kernel,
            append: None,
            init: None,
            modules: Vec::new(),
            warm: false,
            seed: None,
            stderr: Sink::Stderr,
        })
    }

    /// Boots it with one program and waits for the end.
    pub fn boot(&self, request: &Request) -> Result<Booted> {
        self.boot_watched(request, Watch::nothing())
    }

    /// The same; our kernel records what `watch` asks for.
    pub fn boot_watched(&self, request: &Request, watch: Watch<'_>) -> Result<Booted> {
        qemu::check(request.arch)?;
        let load = Load::find(request, &find(request)?)?;
        for warning in &load.warnings {
            eprintln!("faultless: {warning}");
        }
        let standard_input = if request.files.input {
            StandardInput::of_this_command(request.memory.0 / 2)
        } else {
            StandardInput::Nothing
        };

        let folder = tempfile::Builder::new().prefix("faultless-").tempdir();
        let folder = folder.context("cannot make a folder for temporary files")?;
        let image = folder.path().join("initramfs");
        let mut archive = initramfs::build(request, watch.record, &load, &standard_input)?;
        if let Some(init) = &self.init {
            archive.extend(initramfs::of_linux(init, &self.modules));
        }
        fs::write(&image, archive).with_context(|| format!("cannot write {}", image.display()))?;

        let sinks = Sinks {
            stdout: request.stdout,
            stderr: self.stderr,
        };
        let output = Output::open(folder.path(), sinks)?;
        let console = Channel::open(folder.path().join("console"), Tail::default(), Tail::feed)?;
        let places = Places::default();
        let gather = {
            let places = Arc::clone(&places);
            move |all: &mut Vec<u8>, piece: &[u8]| {
                all.extend_from_slice(piece);
                look_for_places(all, &places);
            }
        };
        let control = Channel::open(folder.path().join("control"), Vec::new(), gather)?;
        let monitor = folder.path().join("monitor");
        let stdin = match standard_input {
            StandardInput::Pieces => Some(Input::open(folder.path(), io::stdin())?),
            _ => None,
        };
        let (stdout, stderr, pieces) = output.paths();
        let channels = Channels {
            stdout,
            stderr,
            control: control.path(),
            pieces,
            console: self.append.is_some().then(|| console.path()),
            stdin: stdin.as_ref(),
            monitor: &monitor,
        };

        let start = Instant::now();
        let memory = match watch.sink {
            Some(_) => Some(GuestMemory::new(request.memory, request.arch)?),
            None => None,
        };
        let mut options = self.options();
        let disk = swap_file::make(request.swap, folder.path())?;
        options.extend(disk.iter().flat_map(|file| qemu::disk(file, request.arch)));
        let memory_file = memory.as_ref();
        let qemu = Qemu::start(
            request,
            &self.kernel,
            &image,
            memory_file,
            &channels,
            &options,
        )?;
        let wait = || qemu.wait(request.timeout);
        let (stop, messages) = match &memory {
            Some(memory) => {
                watch::collect_during(watch.sink, GuestRings::new(memory, places), wait)?
            }
            None => wait()?,
        };
        let elapsed = start.elapsed();
        let (figures, stderr) = output.close()?;
        let console = console.close()?;
        let report = Report::parse(&control.close()?);
        let release = report.as_ref().and_then(|report| report.release.clone());
        let mut outcome = outcome(request.accel, stop, report, &messages, elapsed);
        outcome.figure = figures.figure;
        outcome.steps = figures.steps;
        Ok(Booted {
            outcome,
            release,
            stderr,
            console,
        })
    }

    /// Options of the emulator that are this system's own.
    fn options(&self) -> Vec<OsString> {
        let mut options = Vec::new();
        if let Some(line) = &self.append {
            options.extend(["-append".into(), line.into()]);
        }
        if self.warm {
            options.push("-mem-prealloc".into());
        }
        if let Some(seed) = self.seed {
            options.extend(["-seed".into(), seed.to_string().into()]);
            options.extend(["-rtc".into(), "base=2026-01-01T00:00:00,clock=vm".into()]);
        }
        options
    }
}

/// Finds the program that the user named.
fn find(request: &Request) -> Result<Program> {
    let name = request.program.first().context("no program")?;
    Program::find(name, request.files.root.as_deref())
}

/// Looks for the line that says where the rings are.
fn look_for_places(control: &[u8], places: &Places) {
    if places.get().is_none() {
        let lines = control.split(|&byte| byte == b'\n');
        // Written once; an incomplete line cannot be parsed.
        if let Some(found) = lines.into_iter().find_map(guest_memory::parse_places) {
            let _ = places.set(found);
        }
    }
}

fn outcome(
    accel: Accel,
    stop: Stop,
    report: Option<Report>,
    messages: &str,
    elapsed: Duration,
) -> Outcome {
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
                End::Failed(failure(accel, messages))
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
        steps: Vec::new(),
        latencies: report.latencies(),
        verified: report.verified,
    }
}

/// Why QEMU failed, in one line.
fn failure(accel: Accel, messages: &str) -> String {
    match qemu::of_kvm(messages).filter(|_| accel == Accel::Kvm) {
        Some(line) => {
            format!("the KVM of this host cannot run this machine, use --accel tcg (QEMU: {line})")
        }
        None => format!("QEMU failed: {}", messages.replace('\n', "; ")),
    }
}

#[cfg(test)]
mod tests {
    use super::{Accel, Duration, End, Report, Stop, outcome};

    fn end_on(accel: Accel, stop: Stop, report: Option<&str>, messages: &str) -> End {
        let report = report.map(|text| Report::parse(text.as_bytes()).unwrap());
        outcome(accel, stop, report, messages, Duration::from_secs(1)).end
    }

    fn end(stop: Stop, report: Option<&str>, messages: &str) -> End {
        end_on(Accel::Tcg, stop, report, messages)
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
        let messages = "error: failed to set MSR 0x48f\nkvm.c: Assertion `ret' failed.";
        let failed = end_on(Accel::Kvm, Stop::Itself, None, messages);
        let expected = "the KVM of this host cannot run this machine, use --accel tcg \
                        (QEMU: kvm.c: Assertion `ret' failed.)";
        assert_eq!(failed, End::Failed(expected.to_owned()));
        let failed = end_on(Accel::Kvm, Stop::Itself, None, "no memory");
        assert_eq!(failed, End::Failed("QEMU failed: no memory".to_owned()));
        assert_eq!(end(Stop::TimedOut, None, ""), End::TimedOut);
    }
}
