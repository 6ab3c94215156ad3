//! Which program runs, where, and for how long: the options of every command that runs one.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::arch::Arch;
use crate::huge::Huge;
use crate::kvm::Kvm;
use crate::machine::{Accel, Added, Files, MachineKind, Variable};
use crate::size::Size;
use crate::swap::Swap;

/// What a run may use. A command with other defaults sets them by `mut_arg`.
#[derive(Args, Clone, Debug)]
pub struct Resources {
    /// Number of CPUs: 1 to 16 in the kernel, 1 to 64 on the soft machine
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub cpus: u32,

    /// Memory of the machine: bytes, or with K, M or G
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub memory: Size,

    /// Give the machine swap of this size, in compressed memory: bytes before compression, or with K, M or G;
    /// 'SIZE:ram': in memory without compression; 'SIZE:disk': on a disk, a file of the host (kernel only)
    #[arg(long, value_name = "SIZE")]
    pub swap: Option<Swap>,

    /// Use huge pages for these mappings, as Linux's transparent_hugepage/enabled; 'compare --suite' uses none but in
    /// workloads named so
    #[arg(long, value_enum, default_value = "always")]
    pub huge: Huge,

    /// AArch64: resolve the first fault of an atomic instruction as the store that follows (Y), or as the load that it is, as
    /// Linux does (N)
    #[arg(long, value_name = "Y|N", default_value = "Y", value_parser = yes_or_no, action = clap::ArgAction::Set)]
    pub atomic_rmw: bool,

    /// Set how the machine's guests work: tdp_mmu=N, fast_page_fault=N, eager_page_split=N,
    /// accessed_bits=N, dirty_bits=Y, with commas between them; 'compare' boots Linux with its KVM
    #[arg(long, value_name = "PARAMETERS", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub kvm: Option<Kvm>,

    /// Stop the program after this many seconds
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub timeout: Option<Duration>,
}

/// What is run.
#[derive(Args, Debug)]
pub struct ProgramArguments {
    /// A Linux program for x86-64 or AArch64, or the name of a packaged workload, and its arguments
    #[arg(
        id = "program",
        value_name = "PROGRAM",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub words: Vec<OsString>,
}

/// What a program gets besides its own file.
#[derive(Args, Debug)]
pub struct GivenArguments {
    /// Give the program a file or folder of the host, under the same path (a relative one then begins
    /// at /) or under another; can be repeated. A program brings its interpreter and libraries
    #[arg(long = "file", value_name = "HOST[:GUEST]")]
    pub files: Vec<Added>,

    /// Give the program a folder of the host as the tree at /; PROGRAM may then be in it
    #[arg(long, value_name = "DIR", value_parser = folder)]
    pub root: Option<PathBuf>,

    /// Give the program a variable, with this value or the one that it has here; can be repeated.
    /// It has PATH=/bin:/usr/bin and HOME=/, and no other but LD_LIBRARY_PATH, if that is set here
    /// and PROGRAM has libraries
    #[arg(long = "env", value_name = "NAME[=VALUE]")]
    pub variables: Vec<Variable>,
}

impl GivenArguments {
    /// Whether nothing is given.
    pub fn is_nothing(&self) -> bool {
        self.files.is_empty() && self.root.is_none() && self.variables.is_empty()
    }

    /// The files of a request, with or without this command's standard input.
    pub fn files(&self, input: bool) -> Files {
        Files {
            root: self.root.clone(),
            added: self.files.clone(),
            variables: self.variables.clone(),
            input,
        }
    }
}

/// The machine, and how it runs.
#[derive(Args, Debug)]
pub struct MachineArguments {
    /// The architecture of the machine: x86_64 or aarch64 [default: that of PROGRAM, x86_64 for a packaged workload]
    #[arg(long, value_enum, hide_possible_values = true)]
    pub arch: Option<Arch>,

    /// Where it runs: in the kernel, booted in QEMU, or on the soft machine, which has built-in
    /// workloads instead of programs [default: kernel]
    #[arg(long, value_enum)]
    pub machine: Option<MachineKind>,

    /// How big it is.
    #[command(flatten)]
    pub resources: Resources,

    /// What executes the kernel's instructions [default: tcg]
    #[arg(long, value_enum)]
    pub accel: Option<Accel>,

    /// Let the machine's clock count instructions, one a nanosecond, so that the program's own times are instructions; with
    /// one CPU
    #[arg(long, conflicts_with_all = ["cpus", "accel", "machine"])]
    pub icount: bool,

    /// List the system calls that the program made and the kernel does not know
    #[arg(long)]
    pub list_unknown: bool,

    /// Check again and again, and at the end, while everything stands still, that the machine's
    /// memory is sound and that none of it is lost; if not, the run fails
    #[arg(long)]
    pub verify: bool,

    /// What the program is given.
    #[command(flatten)]
    pub given: GivenArguments,
}

fn yes_or_no(text: &str) -> Result<bool> {
    match text {
        "Y" => Ok(true),
        "N" => Ok(false),
        _ => anyhow::bail!("has to be Y or N"),
    }
}

fn folder(text: &str) -> Result<PathBuf> {
    let path = PathBuf::from(text);
    ensure!(path.is_dir(), "not a folder");
    Ok(path)
}

impl MachineArguments {
    /// The chosen machine; the kernel by default.
    pub fn kind(&self) -> MachineKind {
        self.machine.unwrap_or(MachineKind::Kernel)
    }
}

/// A time limit.
pub(super) fn seconds(text: &str) -> Result<Duration> {
    let seconds: f64 = text.parse().ok().context("not a number of seconds")?;
    ensure!(seconds > 0.0, "has to be more than 0 seconds");
    Duration::try_from_secs_f64(seconds)
        .ok()
        .context("too many seconds")
}
