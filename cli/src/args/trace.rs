//! The arguments of `trace`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{MachineArguments, ProgramArguments};
use crate::machine::Policy;
use crate::report::Destination;

const EXAMPLES: &str = "\
Exit status: that of the program, 128+n if signal n killed it, 125 if this command fails or refuses,
130 if it is interrupted; what was recorded until then is in the file.

Open the file at https://ui.perfetto.dev or in chrome://tracing.

Examples:
  ./x trace -o trace.json -- ebizzy -mTRp -S 1
  ./x trace -e faults,'pagefault:*' --filter 'duration > 10us' -o slow.json -- ./my-program
  ./x trace -e 'tlb:*' --filter 'cpu == 1' --machine soft -o tlb.json -- guard
  ./x trace summary trace.json
  ./x trace --list";

const SUMMARY_EXAMPLES: &str = "\
Examples:
  ./x trace summary trace.json
  ./x trace summary --slowest 50 trace.json
  ./x trace summary --json - trace.json";

/// Run a program, and write what happened when to a file that Perfetto opens.
///
/// The program's own output goes to stdout, everything else to stderr.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES, args_conflicts_with_subcommands = true)]
pub struct TraceArguments {
    /// What to do with a file.
    #[command(subcommand)]
    pub command: Option<TraceCommand>,

    /// Where it runs.
    #[command(flatten)]
    pub on: MachineArguments,

    /// Events to record, by name, with wildcards; separated by commas, or repeated [default: all]
    #[arg(short, long = "event", value_name = "EVENT", value_delimiter = ',')]
    pub events: Vec<String>,

    /// Write only events for which this holds, such as 'duration > 10us && cpu == 1'; --list names
    /// the fields
    #[arg(long, value_name = "EXPR")]
    pub filter: Option<String>,

    /// How faults are resolved [default: speculative]
    #[arg(long, value_enum)]
    pub policy: Option<Policy>,

    /// The file to write
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// List the events and their fields, and exit
    #[arg(long)]
    pub list: bool,

    /// What is run.
    #[command(flatten)]
    pub program: ProgramArguments,
}

/// What to do with a file.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Show a summary of a file: counts, the slowest faults, histograms, lost events.
    Summary(SummaryArguments),
}

/// The arguments of `trace summary`.
#[derive(Args, Debug)]
#[command(after_help = SUMMARY_EXAMPLES)]
pub struct SummaryArguments {
    /// How many of the slowest faults to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub slowest: usize,

    /// Write it as JSON, by default to stdout, instead of text
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-", require_equals = true)]
    pub json: Option<Destination>,

    /// A file of ./x trace
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
}
