//! Machines run a program and count its faults.
//!
//! A machine takes a [`Request`] and returns an [`Outcome`]. The commands know nothing else of it.

mod files;
pub mod kernel;
pub mod soft;
pub mod watch;

use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::ValueEnum;

use crate::arch::Arch;
use crate::counters::Counters;
use crate::figure::{Figure, Step};
use crate::huge::Huge;
use crate::kvm::Kvm;
use crate::latencies::Latencies;
use crate::plan::Need;
use crate::show::Sink;
use crate::size::Size;
use crate::swap::Swap;
use crate::verified::Verified;
pub use files::{Added, Files, Variable};
use watch::Watch;

/// Where programs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MachineKind {
    /// The kernel, booted in QEMU.
    Kernel,
    /// Host threads with software TLBs.
    Soft,
}

/// How faults are resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Policy {
    /// Every fault takes the mmap lock for reading.
    Classic,
    /// A lock for reading on the mapping, as Linux does since 6.4.
    VmaLock,
    /// No lock.
    Speculative,
}

/// What executes the kernel's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Accel {
    /// QEMU's translator.
    Tcg,
    /// The host's processor.
    Kvm,
}

/// One run of one program.
#[derive(Clone, Debug)]
pub struct Request {
    /// The program and its arguments, as the user named them.
    pub program: Vec<OsString>,
    /// The architecture of its machine; the soft machine ignores it.
    pub arch: Arch,
    /// The fault policy of its address space.
    pub policy: Policy,
    /// The number of CPUs.
    pub cpus: u32,
    /// The memory of the machine.
    pub memory: Size,
    /// Its swap.
    pub swap: Option<Swap>,
    /// Where it uses huge pages.
    pub huge: Huge,
    /// How its guests work; `None`: as they do by themselves, and Linux has no KVM.
    pub kvm: Option<Kvm>,
    /// Whether the first fault of an atomic instruction is resolved as a store; of AArch64 alone.
    pub atomic_rmw: bool,
    /// What executes its instructions; the soft machine ignores it.
    pub accel: Accel,
    /// How long it may take.
    pub timeout: Option<Duration>,
    /// Whether unknown system calls are named, as they are made, on stderr.
    pub list_unknown: bool,
    /// Whether the kernel's memory is verified while it runs and at the end.
    pub verify: bool,
    /// Whether the machine's clock counts instructions (1 ns each) instead of time.
    pub count_instructions: bool,
    /// Where its stdout goes.
    pub stdout: Sink,
    /// What the program gets besides its own file; the soft machine has no files.
    pub files: Files,
}

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// How it ended.
    pub end: End,
    /// How long the program ran, on the machine's clock.
    pub seconds: f64,
    /// What was counted until then.
    pub counters: Counters,
    /// The figure that the program printed.
    pub figure: Option<Figure>,
    /// The times of its steps.
    pub steps: Vec<Step>,
    /// Latencies, if they were measured.
    pub latencies: Option<Latencies>,
    /// What was verified, if that was requested and the machine could still report it.
    pub verified: Option<Verified>,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The program ended by itself.
    Exited(u8),
    /// A signal killed the program.
    Signalled(u8),
    /// The time limit was reached, and the machine was stopped.
    TimedOut,
    /// The user stopped it.
    Interrupted,
    /// The machine failed for this reason, which has not been printed yet.
    Failed(String),
    /// The machine could not run the program, or continue, and printed why on stderr.
    Refused(String),
}

/// A machine that runs programs.
pub trait Machine {
    /// Checks a whole request, as far as that is possible before anything is built. Returns what has to be built.
    fn check(&self, request: &Request) -> Result<Vec<Need>>;

    /// Runs one program to its end, and records what `watch` asks for.
    ///
    /// An error means that the program was never started, or that what was recorded could not be
    /// kept; everything else is an [`End`].
    fn watch(&self, request: &Request, watch: Watch<'_>) -> Result<Outcome>;

    /// Runs one program to its end.
    ///
    /// An error means that the program was never started; everything later is an [`End`].
    fn run(&self, request: &Request) -> Result<Outcome> {
        self.watch(request, Watch::nothing())
    }
}

impl MachineKind {
    /// Its name in options and files.
    pub const fn name(self) -> &'static str {
        match self {
            MachineKind::Kernel => "kernel",
            MachineKind::Soft => "soft",
        }
    }

    /// The machine itself.
    pub fn machine(self) -> Box<dyn Machine> {
        match self {
            MachineKind::Kernel => Box::new(kernel::Kernel),
            MachineKind::Soft => Box::new(soft::Soft),
        }
    }
}

/// Refuses a number of CPUs or a size of memory that a machine cannot have.
fn check_size(request: &Request, most_cpus: u32, (least, most): (Size, Size)) -> Result<()> {
    let (cpus, memory) = (request.cpus, request.memory);
    if cpus == 0 || cpus > most_cpus {
        bail!("--cpus {cpus}: this machine has 1 to {most_cpus} CPUs");
    }
    if memory < least || memory > most {
        bail!("--memory {memory}: this machine has {least} to {most}");
    }
    Ok(())
}

impl Policy {
    /// All policies, the oldest first.
    pub const ALL: [Policy; 3] = [Policy::Classic, Policy::VmaLock, Policy::Speculative];

    /// Its name in options and files.
    pub const fn name(self) -> &'static str {
        match self {
            Policy::Classic => "classic",
            Policy::VmaLock => "vma-lock",
            Policy::Speculative => "speculative",
        }
    }
}

impl Accel {
    /// Its name in options and files.
    pub const fn name(self) -> &'static str {
        match self {
            Accel::Tcg => "tcg",
            Accel::Kvm => "kvm",
        }
    }
}
