//! The command line, as data. `command/` checks it.

mod bench;
mod compare;
mod fuzz;
mod machine;
mod run;
mod stat;
mod trace;

use clap::{Parser, Subcommand};

pub use bench::BenchArguments;
pub use compare::CompareArguments;
pub use fuzz::{DifferentialArguments, FuzzArguments, FuzzCommand, SystemName};
pub use machine::{GivenArguments, MachineArguments, ProgramArguments, Resources};
pub use run::RunArguments;
pub use stat::{PolicyChoice, StatArguments};
pub use trace::{SummaryArguments, TraceArguments, TraceCommand};

const EXAMPLES: &str = "\
Examples:
  ./x run
  ./x run --policy classic --cpus 4 -- ebizzy -mTRp -S 5
  ./x stat -e faults,spf,'pagefault:*' -- ebizzy -mTRp
  ./x trace -o trace.json -- ebizzy -mTRp -S 1
  ./x bench --list";

/// Run programs on Faultless page tables, and measure what their page faults cost.
#[derive(Debug, Parser)]
#[command(name = "faultless", bin_name = "./x", version, after_help = EXAMPLES)]
pub struct Arguments {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program; without one, the demonstration.
    Run(RunArguments),
    /// Run a program, and show what was counted and how long faults took.
    Stat(StatArguments),
    /// Run a program, and write what happened when to a file for Perfetto.
    Trace(TraceArguments),
    /// Measure.
    Bench(BenchArguments),
    /// Compare with Linux.
    Compare(CompareArguments),
    /// Look for differences from Linux.
    Fuzz(FuzzArguments),
}
