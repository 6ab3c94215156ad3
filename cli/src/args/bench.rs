//! The arguments of `bench`.

use clap::Args;

use crate::report::Destination;

const EXAMPLES: &str = "\
Examples:
  ./x bench --list
  ./x bench
  ./x bench --json bench.json fault_over_limit_ns find_100k_ns";

/// Measure: each figure is the median of its samples, with the 10th and 90th percentile.
///
/// The table goes to stdout, progress to stderr.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct BenchArguments {
    /// Write the figures and all samples to a file; '-' is stdout, instead of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<Destination>,

    /// List the figures and exit
    #[arg(long)]
    pub list: bool,

    /// The figures to take; all of them if none is named
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
}
