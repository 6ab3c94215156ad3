//! The arguments of `fuzz`.

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};

use super::machine::seconds;
use crate::arch::Arch;
use crate::report::Destination;

const EXAMPLES: &str = "\
Programs of mmap, munmap, mprotect, mremap, madvise, mincore, msync, mlock, mseal, brk, setrlimit,
loads and stores, and of files that are mapped, truncated, punched, read and written, by up to 4
threads of up to 4 processes, run on each system; what differs that is not in docs/differences.md is
a difference. It is shown made small, as a program that can be put into tests/corpus/differential/.

Goes on until it is interrupted, unless --operations or --seconds say how far. Programs follow from
the seed, so that what was found is found again.

Exit status: 0 if nothing differs, 1 if something does, 125 if this command fails or refuses, 130 if
it is interrupted and nothing differed.

Examples:
  ./x fuzz differential --seconds 600
  ./x fuzz differential --seed 7 --operations 1000000 --json fuzz.json
  ./x fuzz differential --against host,soft --operations 500000
  ./x fuzz differential --arch aarch64 --seconds 600
  ./x fuzz differential --program found.script";

/// Look for bugs with random input, for as long as you like.
#[derive(Args, Debug)]
pub struct FuzzArguments {
    /// What is fuzzed.
    #[command(subcommand)]
    pub command: FuzzCommand,
}

/// What can be fuzzed.
#[derive(Debug, Subcommand)]
pub enum FuzzCommand {
    /// Run random programs of memory operations on Linux and on ours, and compare everything they
    /// see.
    Differential(DifferentialArguments),
}

/// A system that programs run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SystemName {
    /// The host's Linux.
    Host,
    /// Debian's Linux 6.12 in QEMU.
    #[value(name = "linux-6.12")]
    Linux,
    /// Our kernel in QEMU.
    Faultless,
    /// The soft machine.
    Soft,
}

impl SystemName {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            SystemName::Host => "host",
            SystemName::Linux => "linux-6.12",
            SystemName::Faultless => "faultless",
            SystemName::Soft => "soft",
        }
    }

    /// Those that there are for an architecture.
    pub const fn all(arch: Arch) -> &'static [Self] {
        use SystemName::{Faultless, Host, Linux, Soft};
        match arch {
            Arch::X86_64 => &[Host, Linux, Faultless, Soft],
            Arch::AArch64 => &[Linux, Faultless],
        }
    }
}

/// The arguments of `fuzz differential`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct DifferentialArguments {
    /// The seed of the programs [default: a new one each time]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32))]
    pub seed: Option<u32>,

    /// Stop after so many operations; 0: the programs that are kept, and no others
    #[arg(long, value_name = "N")]
    pub operations: Option<u64>,

    /// Stop after so many seconds
    #[arg(long, value_name = "S", value_parser = seconds)]
    pub seconds: Option<Duration>,

    /// The architecture of the emulated machines: x86_64 or aarch64
    #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
    pub arch: Arch,

    /// The systems: at least one Linux as the reference (6.12 if it is among them), and one of ours [default: all; with
    /// --arch aarch64: linux-6.12,faultless, and no others]
    #[arg(long, value_enum, value_name = "SYSTEM", value_delimiter = ',')]
    pub against: Vec<SystemName>,

    /// Run the programs of this file instead
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,

    /// Programs that run between two looks at the results, in one boot of each kernel
    #[arg(long, value_name = "N", default_value = "4000")]
    pub batch: NonZeroU64,

    /// CPUs of each kernel
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4))]
    pub cpus: u32,

    /// Show differences as they are, not made small
    #[arg(long)]
    pub no_shrink: bool,

    /// Write the report to a file, after each batch; '-' is stdout, instead of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<Destination>,
}
