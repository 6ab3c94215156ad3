//! The arguments of `compare`.

use std::path::PathBuf;

use clap::Args;

use super::{GivenArguments, ProgramArguments, Resources};
use crate::arch::Arch;
use crate::compare::Series;
use crate::report::Destination;

const EXAMPLES: &str = "\
A workload that says nothing with 1 CPU (fork_stall) runs only if it is named, and then with 2. Those
that need swap (forceswap_*) have 512M of it.
With 1 CPU guest instructions are compared, which repeat exactly. With more it is the host's time:
runs alternate, and the ratio is the median of the pairs, with its spread. A program that prints
'N records/s', 'average:N' or 'N ns/op' is compared by that figure; one that prints the times of its steps ('NAME N
ns/page', or 'NAME: Ns') step by step; any other by its whole run.

Exit status: 0 if everything was compared, 1 if something was not (a kernel that cannot be had, a
program that ends differently), 125 if this command fails or refuses, 130 if it is interrupted.

Examples:
  ./x compare -- page_fault1 -s 1
  ./x compare --linux 6.12 --cpus 2 --json compare.json -- ./my-program its arguments
  ./x compare --linux 6.12 --file words -- /usr/bin/sort words
  ./x compare --linux 6.12 --swap 512M -- forceswap 1 5000 64
  ./x compare --linux 6.12 --kvm -- ./kvm_cost 64 3
  ./x compare --linux 6.12 --kvm=tdp_mmu=N -- ./kvm_cost 64 3
  ./x compare --suite --quick
  ./x compare --suite --quick --linux 6.12 --policies --only ebizzy_compat,page_fault1_threads,fork_stall
  ./x compare --list";

/// Run a program in our kernel and in Debian's Linux, in the same emulator, and compare what it
/// costs: ratios above 1 are better for our kernel.
///
/// The table goes to stdout, progress to stderr.
#[derive(Args, Debug)]
#[command(
    after_help = EXAMPLES,
    mut_arg("cpus", |arg| arg.help("Number of CPUs of each machine").default_value("1")),
    mut_arg("memory", |arg| arg.help("Memory of each machine: bytes, or with K, M or G")),
    mut_arg("swap", |arg| arg.conflicts_with("suite").help("Give each machine swap of this size, in compressed \
        memory (LZ4; in Linux zram); 'SIZE:ram': in memory without compression (in Linux brd); \
        'SIZE:disk': on a disk, a file of the host")),
    mut_arg("timeout", |arg| arg.help("Stop a run after this many seconds").default_value("600")),
)]
pub struct CompareArguments {
    /// The kernels to compare with
    #[arg(long, value_enum, value_name = "VERSION", value_delimiter = ',', default_values = ["6.1", "6.12"])]
    pub linux: Vec<Series>,

    /// Compare also with our kernel under the policies classic and vma-lock
    #[arg(long)]
    pub policies: bool,

    /// The architecture of the machines: x86_64 or aarch64 [default: that of PROGRAM, x86_64 for a packaged workload]
    #[arg(long, value_enum, hide_possible_values = true)]
    pub arch: Option<Arch>,

    /// What each machine may use.
    #[command(flatten)]
    pub resources: Resources,

    /// What the program is given on each side.
    #[command(flatten)]
    pub given: GivenArguments,

    /// Number of pairs of runs [default: 1 with 1 CPU, 5 with more]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: Option<u32>,

    /// Write the results to a file, as they come; '-' is stdout, instead of the table
    #[arg(long, value_name = "FILE")]
    pub json: Option<Destination>,

    /// Write the results into a page, in place of those of the same names; all else in it stays
    #[arg(long, value_name = "FILE")]
    pub markdown: Option<PathBuf>,

    /// Draw the picture of that page
    #[arg(long, value_name = "FILE", requires = "markdown")]
    pub svg: Option<PathBuf>,

    /// Show on stderr what the program prints
    #[arg(long)]
    pub output: bool,

    /// Compare every workload of the suite
    #[arg(long, conflicts_with = "program")]
    pub suite: bool,

    /// With --suite: shorter runs, and fewer of them
    #[arg(long)]
    pub quick: bool,

    /// With --suite: only these workloads
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub only: Vec<String>,

    /// List the workloads of the suite and exit
    #[arg(long)]
    pub list: bool,

    /// What is run.
    #[command(flatten)]
    pub program: ProgramArguments,
}
