//! The arguments of `bench`.

use std::path::PathBuf;

use clap::Args;

use crate::arch::Arch;
use crate::report::Destination;

const EXAMPLES: &str = "\
Examples:
  ./x bench --list
  ./x bench
  ./x bench --arch aarch64 growth
  ./x bench --json bench.json fault_over_limit_ns find_100k_ns
  ./x bench --markdown docs/figures.md --svg docs/figures.svg growth";

/// Measure: each figure is the median of its samples, with the 10th and 90th percentile.
///
/// The table goes to stdout, progress to stderr.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct BenchArguments {
    /// Write the figures and all samples to a file; '-' is stdout, instead of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<Destination>,

    /// Write the figures into a page, in place of those of the same names; all else in it stays
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,

    /// Draw the picture of that page
    #[arg(long, value_name = "FILE", requires = "markdown")]
    pub svg: Option<PathBuf>,

    /// List the figures and exit
    #[arg(long)]
    pub list: bool,

    /// The architecture of the kernel's machines: x86_64 or aarch64. With aarch64 only the kernel's figures are taken
    #[arg(
        long,
        value_enum,
        default_value_t,
        value_name = "ARCH",
        hide_possible_values = true
    )]
    pub arch: Arch,

    /// The figures to take; all of them if none is named
    #[arg(value_name = "NAME")]
    pub names: Vec<String>,
}
