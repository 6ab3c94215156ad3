//! One run on one side.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use super::{Counts, Peer};
use crate::arch::Arch;
use crate::figure::Step;
use crate::huge::Huge;
use crate::kvm::Kvm;
use crate::machine::kernel::{Booted, System, qemu};
use crate::machine::{Accel, End, Files, Policy, Request};
use crate::paths;
use crate::show::Sink;
use crate::size::Size;
use crate::swap::Swap;

/// What both sides have in common.
#[derive(Clone, Debug)]
pub struct Conditions {
    /// The architecture of the machine.
    pub arch: Arch,
    /// CPUs of the machine; with one, its clock counts instructions.
    pub cpus: u32,
    /// Its memory.
    pub memory: Size,
    /// Its swap.
    pub swap: Option<Swap>,
    /// Where it uses huge pages.
    pub huge: Huge,
    /// How its guests work, and whether Linux has its KVM.
    pub kvm: Option<Kvm>,
    /// Whether our kernel resolves the first fault of an atomic instruction as a store.
    pub atomic_rmw: bool,
    /// How long a run may take.
    pub timeout: Option<Duration>,
    /// Where the program's output goes.
    pub output: Sink,
    /// What the program gets besides its own file.
    pub files: Files,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Shown {
    /// How the program ended.
    pub end: End,
    /// Nanoseconds for one operation, by the program's own figure.
    pub per_op: Option<f64>,
    /// The times of the program's steps.
    pub steps: Vec<Step>,
    /// Nanoseconds from its first instruction to its end.
    pub per_run: f64,
    /// What was counted.
    pub counts: Counts,
    /// The kernel's release, if it is Linux.
    pub release: Option<String>,
    /// Why it did not end well, if anything is known.
    pub remark: Option<String>,
}

impl Conditions {
    /// The request for a program.
    pub fn request(&self, program: &[OsString]) -> Request {
        Request {
            program: program.to_vec(),
            arch: self.arch,
            policy: Policy::Speculative,
            cpus: self.cpus,
            memory: self.memory,
            swap: self.swap,
            huge: self.huge,
            kvm: self.kvm.clone(),
            atomic_rmw: self.atomic_rmw,
            accel: Accel::Tcg,
            timeout: self.timeout,
            list_unknown: false,
            verify: false,
            count_instructions: self.cpus == 1,
            stdout: self.output,
            files: self.files.clone(),
        }
    }

    /// The emulator's options for the machine that both sides have.
    pub fn machine(&self) -> Vec<String> {
        qemu::machine(&self.request(&[]), None)
    }

    /// Runs it on this peer, or else in our kernel. Linux lays out its memory at random; the round is the seed.
    /// So rounds differ in their layout, and each can be repeated.
    pub fn run(&self, program: &[OsString], peer: Option<&Peer>, round: u32) -> Result<Shown> {
        // The guest's first touch of host memory would cost more than anything measured here. A clock that counts
        // instructions does not see it.
        let warm = self.cpus > 1;
        let system = match peer {
            Some(peer) => System {
                modules: peer.modules(self.swap, self.kvm.is_some())?,
                ..peer.system(self.arch, warm)?
            },
            None => System {
                warm,
                ..System::ours(self.arch)?
            },
        };
        let system = System {
            seed: (self.cpus == 1).then_some(round),
            stderr: self.output,
            ..system
        };
        let request = Request {
            policy: peer.map_or(Policy::Speculative, Peer::policy),
            ..self.request(program)
        };
        let booted = system.boot(&request)?;
        let console = peer.and_then(|peer| keep_console(peer, self.arch, &booted));
        Ok(Shown::of(booted, console))
    }
}

/// Keeps the console of a kernel that died; otherwise there is none.
fn keep_console(peer: &Peer, arch: Arch, booted: &Booted) -> Option<PathBuf> {
    if matches!(booted.outcome.end, End::Exited(_) | End::Signalled(_))
        || booted.console.bytes().is_empty()
    {
        return None;
    }
    let file = paths::linux().join(format!("{}{}.console", peer.name(), arch.suffix()));
    fs::write(&file, booted.console.bytes()).ok()?;
    Some(file)
}

impl Shown {
    fn of(booted: Booted, console: Option<PathBuf>) -> Self {
        let outcome = booted.outcome;
        let figure = outcome.figure.as_ref();
        let operations = figure.and_then(|figure| figure.operations(outcome.seconds));
        let per_op = figure.map(|figure| figure.nanoseconds());
        Shown {
            per_op: per_op.filter(|value| value.is_finite() && *value > 0.0),
            steps: outcome.steps,
            per_run: outcome.seconds * 1e9,
            counts: Counts::of(&outcome.counters, operations),
            release: booted.release,
            remark: match console {
                Some(file) => Some(format!("its console: {}", file.display())),
                None => booted.stderr.last_line(),
            },
            end: outcome.end,
        }
    }

    /// How it ended, in words.
    pub fn ending(&self) -> String {
        let remark = self.remark.as_ref();
        let said = remark.map_or_else(String::new, |line| format!(" ({line})"));
        match &self.end {
            End::Exited(0) => "ends well".to_owned(),
            End::Exited(status) => format!("exits with {status}{said}"),
            End::Signalled(signal) => format!("is killed by signal {signal}{said}"),
            End::TimedOut => format!("takes too long{said}"),
            End::Interrupted => "is interrupted".to_owned(),
            End::Failed(why) => format!("cannot be run: {why}{said}"),
            End::Refused(why) => format!("cannot be run: {why}"),
        }
    }
}
