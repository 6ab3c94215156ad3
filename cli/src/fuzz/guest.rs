//! A kernel in QEMU, ours or Debian's, that runs programs. A batch is one boot. If the host has more CPUs
//! than one boot uses, it is several boots in parallel, each with a part of the programs.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use faultless_fuzz::executor::{Mode, SWAPPED_IN};
use faultless_fuzz::side::{Side, Stopped, read_digests, read_records};
use faultless_fuzz::{Program, Record, encode_all};

use crate::arch::Arch;
use crate::compare::Peer;
use crate::interrupt;
use crate::machine::kernel::{Booted, System};
use crate::machine::{Accel, Added, End, Files, Policy, Request};
use crate::paths;
use crate::show::{Kept, Sink};
use crate::size::Size;
use crate::swap::{Swap, SwapDevice};

/// Memory of the machine.
const MEMORY: Size = Size::mebi(1024);
/// Its swap: more than the programs' pages.
const SWAP: Swap = Swap {
    size: Size::mebi(256),
    device: SwapDevice::Zram,
};
/// How long one boot may take. A host that is busy with other things can be very slow.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Programs for which another boot pays off.
const WORTH_A_BOOT: usize = 300;
/// The most boots in parallel.
const MOST_BOOTS: usize = 8;
/// Lines of a Linux's console that are shown when it has died.
const CONSOLE_LINES: usize = 40;
/// The path of the programs in the guest.
const FILE: &str = "/programs";

/// A kernel in QEMU.
pub struct GuestSide {
    arch: Arch,
    /// Debian's kernel; `None`: ours.
    peer: Option<Peer>,
    cpus: u32,
    policy: usize,
    /// Pages that came back from the swap device.
    swapped_in: u64,
    /// The outputs of parallel boots.
    outputs: Vec<&'static Kept>,
    folder: tempfile::TempDir,
}

/// One boot, with its part of the programs.
struct Boot<'a> {
    programs: &'a [Program],
    /// The number of the part's first program.
    number: usize,
    output: &'static Kept,
    request: Request,
}

impl GuestSide {
    /// Our kernel, or that of `peer`. Boots nothing yet.
    pub fn new(peer: Option<Peer>, arch: Arch, cpus: u32) -> Result<Self> {
        let executor = paths::executor(arch);
        fs::metadata(&executor).with_context(|| {
            let executor = executor.display();
            format!("the executor is not built ({executor}): ./x fuzz builds it")
        })?;
        let folder = tempfile::Builder::new().prefix("faultless-fuzz-").tempdir();
        Ok(GuestSide {
            arch,
            peer,
            cpus,
            policy: 0,
            swapped_in: 0,
            // Leaked: they are needed as long as this command runs.
            outputs: (0..boots(cpus))
                .map(|_| &*Box::leak(Box::default()))
                .collect(),
            folder: folder.context("cannot make a folder for temporary files")?,
        })
    }

    /// Returns the next policy of our kernel.
    fn next_policy(&mut self) -> Policy {
        self.policy += 1;
        // The default one more often than the others.
        [
            Policy::Speculative,
            Policy::Speculative,
            Policy::Classic,
            Policy::Speculative,
            Policy::VmaLock,
        ][self.policy % 5]
    }

    fn request(&mut self, programs: PathBuf, mode: Mode, output: &'static Kept) -> Request {
        Request {
            program: vec![
                paths::executor(self.arch).into(),
                FILE.into(),
                mode.name().into(),
                "swap".into(),
            ],
            arch: self.arch,
            policy: self.next_policy(),
            cpus: self.cpus,
            memory: MEMORY,
            swap: Some(SWAP),
            // Programs switch them off, but for those of one scene.
            huge: crate::huge::Huge::Always,
            kvm: None,
            atomic_rmw: true,
            accel: Accel::Tcg,
            timeout: Some(PATIENCE),
            list_unknown: false,
            verify: false,
            count_instructions: false,
            stdout: Sink::Kept(output),
            files: Files {
                root: None,
                added: vec![Added {
                    host: programs,
                    guest: FILE.trim_start_matches('/').into(),
                }],
                variables: Vec::new(),
                input: false,
            },
        }
    }

    /// Writes the files of these programs, and returns their boots.
    fn prepare<'a>(&mut self, programs: &'a [Program], mode: Mode) -> Result<Vec<Boot<'a>>> {
        let parts = programs
            .len()
            .div_ceil(WORTH_A_BOOT)
            .clamp(1, self.outputs.len());
        let each = programs.len().div_ceil(parts).max(1);
        let outputs = self.outputs.clone();
        let parts = programs.chunks(each).zip(outputs).enumerate();
        parts
            .map(|(number, (programs, output))| {
                let file = self.folder.path().join(format!("programs-{number}"));
                let write = || format!("cannot write {}", file.display());
                fs::write(&file, encode_all(programs)).with_context(write)?;
                Ok(Boot {
                    programs,
                    number: number * each,
                    output,
                    request: self.request(file, mode, output),
                })
            })
            .collect()
    }

    fn boot_once(&self, boot: &Boot<'_>) -> Result<(Booted, String)> {
        let system = match &self.peer {
            Some(peer) => System {
                modules: peer.modules(boot.request.swap, false)?,
                ..peer.system(boot.request.arch, false)?
            },
            None => System {
                stderr: Sink::Nowhere,
                ..System::ours(boot.request.arch)?
            },
        };
        let booted = system.boot(&boot.request)?;
        let text = String::from_utf8_lossy(&boot.output.take()).into_owned();
        Ok((booted, text))
    }

    /// Boots; returns what was printed, and how it ended.
    fn boot(&self, boot: &Boot<'_>) -> Result<(String, String)> {
        let (mut booted, mut text) = self.boot_once(boot)?;
        // Linux does this once in some hundred boots, without a message. For our kernel it would be a finding.
        let is_silent = text.is_empty() && matches!(booted.outcome.end, End::Failed(_));
        if self.peer.is_some() && is_silent && !interrupt::is_requested() {
            let (name, said) = (self.name(), self.said(&booted));
            eprintln!(
                "faultless: {name} stopped before it ran a program, and boots again ({said})"
            );
            (booted, text) = self.boot_once(boot)?;
        }
        let said = self.said(&booted);
        let why = match booted.outcome.end {
            End::Exited(status) => format!("the executor ended with {status}; {said}"),
            End::Signalled(signal) => format!("signal {signal} killed the executor; {said}"),
            other => format!("{other:?}; {said}"),
        };
        let policy = boot.request.policy.name();
        Ok((
            text,
            if self.peer.is_some() {
                why
            } else {
                format!("{why} (policy {policy})")
            },
        ))
    }

    /// Its last messages.
    fn said(&self, booted: &Booted) -> String {
        match &self.peer {
            // Silent unless it dies; then the last lines are its call trace.
            Some(_) => booted.console.last_lines(CONSOLE_LINES).join(" | "),
            None => booted.stderr.last_line().unwrap_or_default(),
        }
    }

    fn run<T>(
        &mut self,
        programs: &[Program],
        mode: Mode,
        read: fn(&str, usize, &str) -> Result<Vec<T>, Stopped>,
    ) -> Result<Vec<T>, Stopped> {
        let stopped = |why: String| Stopped { after: 0, why };
        let boots = self.prepare(programs, mode);
        let boots = boots.map_err(|error| stopped(format!("{error:#}")))?;
        let this = &*self;
        let ended: Vec<_> = thread::scope(|scope| {
            let boots = boots.iter().map(|boot| scope.spawn(|| this.boot(boot)));
            let boots: Vec<_> = boots.collect();
            boots.into_iter().map(|boot| boot.join()).collect()
        });
        let mut all = Vec::with_capacity(programs.len());
        for (boot, ended) in boots.iter().zip(ended) {
            let ended = ended.map_err(|_| stopped("a thread of this command failed".to_owned()));
            let (text, why) = ended?.map_err(|error| stopped(format!("{error:#}")))?;
            let mut counts = text
                .lines()
                .filter_map(|line| line.strip_prefix(SWAPPED_IN));
            let count = counts.next_back().and_then(|count| count.parse().ok());
            self.swapped_in += count.unwrap_or(0u64);
            let part = read(&text, boot.programs.len(), &why);
            all.extend(part.map_err(|stopped| Stopped {
                after: boot.number + stopped.after,
                ..stopped
            })?);
        }
        Ok(all)
    }
}

/// The number of boots that the host's CPUs can run in parallel.
fn boots(cpus: u32) -> usize {
    let all = thread::available_parallelism().map_or(1, usize::from);
    (all / cpus.max(1) as usize).clamp(1, MOST_BOOTS)
}

impl Side for GuestSide {
    fn name(&self) -> &'static str {
        self.peer.as_ref().map_or("faultless", Peer::name)
    }

    fn swapped_in(&self) -> Option<u64> {
        Some(self.swapped_in)
    }

    fn digests(&mut self, programs: &[Program]) -> Result<Vec<u64>, Stopped> {
        self.run(programs, Mode::Digest, read_digests)
    }

    fn records(&mut self, programs: &[Program]) -> Result<Vec<Record>, Stopped> {
        self.run(programs, Mode::Detail, read_records)
    }
}
