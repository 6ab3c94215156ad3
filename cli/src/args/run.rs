//! The arguments of `run`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::machine::{Accel, Added, MachineKind, Policy};
use crate::report::Destination;
use crate::size::Size;

const EXAMPLES: &str = "\
Exit status: that of the program, 128+n if signal n killed it, 125 if this command fails or refuses
(a time-out included), 130 if it is interrupted.

Examples:
  ./x run
  ./x run -- ebizzy -mTRp -S 5
  ./x run --policy classic --cpus 4 --memory 2G --json run.json -- page_fault1 -t 4
  ./x run --timeout 30 --list-unknown -- ./my-static-program
  ./x run --file words.txt -- /bin/busybox sort words.txt
  ./x run --root ./tree -- /bin/sh -c 'ls -l / | wc -l'
  ./x run --machine soft -- ebizzy -mTRp";

/// Run a program on Faultless page tables; without one, the demonstration: ebizzy under the three
/// fault policies, in one table.
///
/// The program reads this command's stdin, as far as it does read; its own output goes to stdout,
/// everything else to stderr.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct RunArguments {
    /// Where it runs: in the kernel, booted in QEMU, or on the soft machine, which has built-in
    /// workloads instead of programs [default: kernel]
    #[arg(long, value_enum)]
    pub machine: Option<MachineKind>,

    /// How faults are resolved [default: speculative; the demonstration: all three]
    #[arg(long, value_enum)]
    pub policy: Option<Policy>,

    /// Number of CPUs: 1 to 16 in the kernel, 1 to 64 on the soft machine
    #[arg(long, value_name = "N", default_value_t = 2)]
    pub cpus: u32,

    /// Memory of the machine: bytes, or with K, M or G
    #[arg(long, value_name = "SIZE", default_value = "1G")]
    pub memory: Size,

    /// What executes the kernel's instructions [default: tcg]
    #[arg(long, value_enum)]
    pub accel: Option<Accel>,

    /// Stop the program after this many seconds
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub timeout: Option<Duration>,

    /// Write figures and counters to a file; '-' is stdout, the program's own stdout then goes to
    /// stderr
    #[arg(long, value_name = "FILE")]
    pub json: Option<Destination>,

    /// List the system calls that the program made and the kernel does not know
    #[arg(long)]
    pub list_unknown: bool,

    /// Give the program a file or folder of the host, under the same path, relative to / if it is,
    /// or under another; can be repeated
    #[arg(long = "file", value_name = "HOST[:GUEST]")]
    pub files: Vec<Added>,

    /// Give the program a folder of the host as the tree at /; PROGRAM may then be in it
    #[arg(long, value_name = "DIR", value_parser = folder)]
    pub root: Option<PathBuf>,

    /// A static Linux program for x86-64, or the name of a packaged workload (ebizzy,
    /// page_fault1, guard, first_write), and its arguments
    #[arg(
        value_name = "PROGRAM",
        trailing_var_arg = true,
        allow_hyphen_values = true
    )]
    pub program: Vec<OsString>,
}

fn folder(text: &str) -> Result<PathBuf> {
    let path = PathBuf::from(text);
    ensure!(path.is_dir(), "not a folder");
    Ok(path)
}

/// A time limit.
pub fn seconds(text: &str) -> Result<Duration> {
    let seconds: f64 = text.parse().ok().context("not a number of seconds")?;
    ensure!(seconds > 0.0, "has to be more than 0 seconds");
    Duration::try_from_secs_f64(seconds)
        .ok()
        .context("too many seconds")
}
